"""The page's bytes: a function of the releases and the matrix, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aotforge.base.files import write_atomic
from aotforge.deliver.page.model import ReleasePage

INDEX = "index.html"


def make_page(releases: Sequence[ReleasePage], *, matrix: str) -> bytes:
    """The page, newest release first; `matrix` is the compatibility matrix as an HTML fragment (`aotforge.conformance.matrix_html`)."""
    templates = Environment(
        loader=PackageLoader("aotforge.deliver.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    templates.filters["bytes"] = human_size
    text = templates.get_template("index.html").render(releases=releases, matrix=Markup(matrix))
    return text.encode("utf-8")


def write_page(folder: Path, page: bytes) -> Path:
    """Puts the page into `folder`, beside the releases' folders. Raises OutputError."""
    path = folder / INDEX
    write_atomic(path, page)
    return path


def human_size(size: int) -> str:
    """Bytes in the largest unit that leaves three digits: 342 kB, 1.1 MB (powers of 1000)."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
