"""Compatibility: the PyTorch matrix, and the checks that prove its rows on a candidate release."""

from typing import TYPE_CHECKING

from aotforge.lazy import lazy_names

if TYPE_CHECKING:
    from aotforge.compat.check import check_release
    from aotforge.compat.findings import CheckReport, Finding
    from aotforge.compat.html import matrix_html
    from aotforge.compat.matrix import Compatibility, load_matrix

__getattr__ = lazy_names(
    __name__,
    {
        "CheckReport": "aotforge.compat.findings",
        "Compatibility": "aotforge.compat.matrix",
        "Finding": "aotforge.compat.findings",
        "check_release": "aotforge.compat.check",
        "load_matrix": "aotforge.compat.matrix",
        "matrix_html": "aotforge.compat.html",
    },
)

__all__ = ["CheckReport", "Compatibility", "Finding", "check_release", "load_matrix", "matrix_html"]
