"""Triton on x86-64: TTIR to LLVM IR and a shared library; docs/cpu-backend.md describes it."""
