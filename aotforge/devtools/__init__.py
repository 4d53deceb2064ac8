"""Tools for kernel writers: debugger, cost model, demo, the emulator's command line.

Input: a kernel, an image or a release. Output: text or JSON. No stage of the pipeline imports this package.
"""
