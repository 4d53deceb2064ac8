"""Verification of images. Input: a plan and its images. Output: a `Verdict` for each, against float64."""
