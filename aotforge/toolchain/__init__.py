"""The pinned compiler: Triton's identity and the allocator of compile workers; native code compiled into the cache.

Input: the installed packages. Output: a `Toolchain` whose digest is part of every job key.
"""
