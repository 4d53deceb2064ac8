"""NVIDIA GPUs: cubins by Triton's NVIDIA back end and the ptxas of its wheel.

Input: a target and Triton's results. Output: checked images with their resources.
"""
