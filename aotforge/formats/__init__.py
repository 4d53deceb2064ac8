"""Byte formats without policy: ELF, PE, code objects, archives, sums, archive names.

Input: bytes or a stream. Output: values, and for the writers deterministic bytes.
"""
