"""The PyTorch side of a release: the lines that make PyTorch's own build download it, and a server that offers it."""

from aotforge.pytorch.listing import Listing, list_release, newest_release
from aotforge.pytorch.pins import pins_for_pytorch, pins_text, prefix_text
from aotforge.pytorch.serve import ReleaseServer, serve

__all__ = [
    "Listing",
    "ReleaseServer",
    "list_release",
    "newest_release",
    "pins_for_pytorch",
    "pins_text",
    "prefix_text",
    "serve",
]
