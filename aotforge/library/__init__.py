"""Build of the C++ library for Linux and Windows.

Input: the sources in `runtime/`. Output: libaotriton_v2, headers and CMake package below a prefix.
"""
