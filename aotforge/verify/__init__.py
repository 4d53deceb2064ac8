"""Verification of images.

Input: a plan and its images. Output: a `Verdict` per image: executed on the virtual GPU, compared with
float64.
"""
