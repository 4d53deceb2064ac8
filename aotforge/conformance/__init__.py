"""Conformance with PyTorch: the matrix, and the checks that prove its rows.

Input: a release folder and `compat/`. Output: findings (passed, failed, not run).
"""
