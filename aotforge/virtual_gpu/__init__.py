"""Virtual GPUs: code objects and kernels executed on the CPU.

Input: a code object and its assembly text, or a kernel's source. Output: the memory after the launch, and faults.
"""
