"""Verification of images: each is executed and compared with float64. Output: a `Verdict`."""
