"""Vendors: the options of their Triton back ends, checks of their images, occupancy.

Input: an arch's vendor. Output: its `Backend` (`backend.py`), by `backends.backend_of`.
"""
