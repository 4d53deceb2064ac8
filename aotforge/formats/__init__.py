"""Byte formats without policy: ELF, PE, archives, sums, archive names; writers are deterministic."""
