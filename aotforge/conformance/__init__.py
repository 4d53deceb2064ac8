"""Conformance with PyTorch: the matrix, and the checks of releases that prove its rows."""
