"""Kernels on the CPU: what the library would launch for a call, run by Triton's interpreter on numpy buffers.

`dispatch` answers like the library does (pure); `machine` makes Triton's interpreter faithful enough to be a
check: typed arguments, correctly rounded bfloat16, and every memory access inside the buffers that the caller
named. `run` joins the two.
"""
