"""Delivery: from a store to a prefix, into PyTorch, onto a web page.

Input: a published or local release. Output: an installed prefix, a drop-in in torch/lib, CMake pins, an
HTML page.
"""
