"""Triton on x86-64: TTIR to LLVM IR, machine code by the LLVM inside the wheel's libtriton.

Input: TTIR. Output: a shared library whose function runs a range of the grid. docs/cpu-backend.md describes
it.
"""
