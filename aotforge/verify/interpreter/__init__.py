"""Kernel sources on the CPU: the library's launches, run by Triton's interpreter on numpy buffers.

`dispatch` selects launches as the library does (pure); `machine` makes Triton's interpreter exact enough to
be a check: typed arguments, correctly rounded bfloat16, every memory access checked.
"""
