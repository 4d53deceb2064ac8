"""Execution of CPU images by this machine's processor, under guard pages.

Input: a loaded image and the tensors of a launch. Output: the tensors after it, or an ExecutionError that
names the fault.
"""
