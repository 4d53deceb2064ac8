"""Triton on x86-64, from the PyPI wheel alone: TTIR to LLVM IR, machine code by the LLVM inside libtriton, a driver.

Input: TTIR. Output: a shared library whose function runs a range of the grid. docs/cpu-backend.md describes it.
"""
