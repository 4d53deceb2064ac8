"""aotforge: the release factory for ahead-of-time compiled Triton kernels (see docs/architecture.md)."""
