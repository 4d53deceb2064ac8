"""Compilation of kernel images.

Input: the `CompileJob`s of a plan. Output: `KernelImage`s (HSACO, assembly text, resources) in a content-addressed cache.
"""
