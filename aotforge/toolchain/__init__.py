"""The pinned compiler: Triton's identity, the allocator of compile workers, and native code.

Input: the installed packages. Output: a `Toolchain` whose digest is part of every job key.
"""
