"""Fault campaigns: images altered on purpose, and what becomes of them on the virtual GPU
(docs/verification.md)."""
