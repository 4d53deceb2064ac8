"""Compilation of kernel images.

Input: the `CompileJob`s of a plan. Output: `KernelImage`s (code object, assembly text, resources) in a
content-addressed cache.
"""
