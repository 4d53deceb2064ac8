"""The cases of the matrix product reach every part of a tile's loop with every setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest

from aotforge.base.architectures import MANIFESTS, load_architectures
from aotforge.rules import Between, Functional, MultipleOf, Setting
from kernels.gemm import cases
from kernels.gemm.rules import FAMILY

ARCHITECTURES = load_architectures(MANIFESTS)


def serves(setting: Setting, shape: Mapping[str, int]) -> bool:
    for one in setting.when:
        assert isinstance(one, Between | MultipleOf)
        names = (one.value,) if isinstance(one.value, str) else one.value
        value = math.prod(shape[name] for name in names)
        if not (one.low <= value <= one.high if isinstance(one, Between) else value % one.of == 0):
            return False
    return True


def reached(settings: tuple[Setting, ...], setting: Setting, functional: Functional) -> list[dict[str, int]]:
    """Shapes of the cases that are dispatched to a setting; without hints by calls that are not aligned."""
    settings = settings if setting.hinted else tuple(one for one in settings if one.unaligned)

    def dispatched(shapes: tuple[dict[str, int], ...]) -> list[dict[str, int]]:
        fitting = (shape for shape in shapes if (shape["rows"] <= 16) == (functional.get("rows") == 16))
        return [shape for shape in fitting if next(one for one in settings if serves(one, shape)) is setting]

    if not setting.hinted:
        return dispatched(cases._SHAPES)
    return dispatched((*cases._SHAPES, *cases._TALL)) or dispatched(cases._LARGE)


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES.architectures))
def test_every_setting_has_groups_remainders_and_several_blocks(arch: str) -> None:
    target = ARCHITECTURES.architectures[arch].target(arch)
    kernel = next(one for one in FAMILY.kernels if one.name == "gemm_nn")
    for values in itertools.product(*(choice.options for choice in kernel.choices)):
        functional = dict(zip((choice.name for choice in kernel.choices), values, strict=True))
        settings = kernel.settings(target, functional)
        for setting in settings:
            block = {
                name: int(setting.constants[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP")
            }
            shapes = reached(settings, setting, functional)
            name = f"{arch} {functional} {block}"
            assert any(shape["inner"] > block["BLOCK_K"] for shape in shapes), name
            assert any(shape["columns"] % block["BLOCK_N"] for shape in shapes), name
            assert any(shape["columns"] > block["BLOCK_N"] for shape in shapes), name
            most_rows = min(
                (one.high for one in setting.when if isinstance(one, Between) and one.value == "rows"),
                default=functional["rows"],
            )
            if most_rows == "any" and setting.hinted:
                # the last group of rows of tiles has fewer than the others
                assert any(shape["rows"] > block["GROUP"] * block["BLOCK_M"] for shape in shapes), name
                assert any(-(-shape["rows"] // block["BLOCK_M"]) % block["GROUP"] for shape in shapes), name
            complete = any(isinstance(one, MultipleOf) and one.value == "rows" for one in setting.when)
            partial = any(shape["rows"] % block["BLOCK_M"] for shape in shapes)
            assert partial or complete or functional["rows"] == 16, name
            if not setting.constants["EVEN"]:
                assert any(shape["inner"] % block["BLOCK_K"] for shape in shapes), name
