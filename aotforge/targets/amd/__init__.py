"""AMD GPUs: HSACO code objects by Triton's AMD back end.

Input: a target and Triton's results. Output: checked images with their resources.
"""
