"""A static page of releases: downloads per chip with digests, what was verified, how to install, and the PyTorch matrix."""

from aotforge.page.make import make_page, write_page
from aotforge.page.values import Download, PackLine, ReleasePage

__all__ = ["Download", "PackLine", "ReleasePage", "make_page", "write_page"]
