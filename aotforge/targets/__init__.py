"""Targets that are not GPUs: what turns Triton's TTIR into their machine code.

Input: a Triton function and a target. Output: a compiled kernel that this process can run.
"""
