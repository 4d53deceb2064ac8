"""A release inside an installed PyTorch: links for the names that it was linked to, images beside them, and a way back."""

from aotforge.dropin.apply import drop_in, undo
from aotforge.dropin.source import read_source
from aotforge.dropin.torch_lib import read_torch_lib
from aotforge.dropin.values import Report, Source, TorchLib

__all__ = ["Report", "Source", "TorchLib", "drop_in", "read_source", "read_torch_lib", "undo"]
