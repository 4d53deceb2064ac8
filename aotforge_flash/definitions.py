"""Registers operators with PyTorch.

`torch.library.custom_op` would import PyTorch's compiler at the first call: seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
NAME = "aotforge_flash"
_LIBRARY = torch.library.Library(NAME, "DEF")


def operator(name: str, schema: str) -> Callable[[Function], Function]:
    """A decorator: the function computes the operator on processors and on GPUs."""

    def register(function: Function) -> Function:
        _LIBRARY.define(f"{name}{schema}")
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, function, key)
        return function

    return register


def shapes(name: str) -> Callable[[Function], Function]:
    """A decorator: the function makes results without values, for tracing."""

    def register(function: Function) -> Function:
        torch.library.register_fake(f"{NAME}::{name}", function, lib=_LIBRARY)
        return function

    return register


def gradients(name: str, backward: Callable[..., Any], setup: Callable[..., Any] | None = None) -> None:
    """How an operator is differentiated."""
    torch.library.register_autograd(f"{NAME}::{name}", backward, setup_context=setup, lib=_LIBRARY)
