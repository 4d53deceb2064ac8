"""The pinned compiler: Triton's identity and the allocator of compile workers.

Input: the installed packages. Output: a `Toolchain` whose digest is part of every job key.
"""
