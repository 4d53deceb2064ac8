"""Properties of an arch that the emulator uses: a view of manifests/architectures.yaml."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from vgpu.errors import UnknownNameError, suggest


@dataclass(frozen=True, kw_only=True)
class EmulatedTarget:
    """An arch: fields of its row in the manifest; `lanes` is `wavefront`, `lds_bytes` per workgroup."""

    arch: str
    lanes: int
    lds_bytes: int
    accumulators: Literal["split", "unified", "none"]
    keeps_high_half: bool
    vgpr_unit: int
    packed_ids: bool
    ids_in_ttmp: bool
    scratch_offset: bool

    @property
    def generation(self) -> int:
        """Major version of the instruction set: 9 for gfx90a, 11 for gfx1100."""
        return int(self.arch[3:-2])

    @property
    def resource_rules(self) -> int:
        """How word 3 of a buffer resource is read (memory.h): as gfx9's (0), gfx10's (1), gfx11's (2)."""
        return min(self.generation, 11) - 9


@cache
def amd_archs() -> Mapping[str, Mapping[str, Any]]:
    """The rows of AMD's archs, as manifests/architectures.yaml has them."""
    # loading a prepared program in a virtual HIP process needs no target
    import yaml  # noqa: PLC0415 - 20 ms

    text = (Path(__file__).parents[1] / "architectures.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return extended_rows(yaml.load(text, loader)["amd"])


_OWN = frozenset({"extends", "products", "device"})
"""Fields that a row does not take from the one that it extends."""


def extended_rows(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The rows with the fields of those that they extend. Raises ValueError."""
    done: dict[str, Any] = {}
    for name, row in rows.items():
        base = row.get("extends") if isinstance(row, dict) else None
        if base is not None and base not in done:
            raise ValueError(f"{name} extends {base}, which is not a row above it")
        if base is None:
            done[name] = row
            continue
        done[name] = {key: value for key, value in done[base].items() if key not in _OWN} | row
        if isinstance(row.get("cost"), dict):
            done[name]["cost"] = done[base].get("cost", {}) | row["cost"]
    return done


_MAKER = re.compile(r"\b(amd|radeon|instinct|graphics|gpu|nvidia|geforce)\b|\((r|tm)\)|[\s\u2122-]")


def simplified(product: str) -> str:
    """`AMD Radeon RX 7900 XTX` is `rx7900xtx`."""
    return _MAKER.sub("", product.lower().replace("_", " "))


def find_arch(text: str) -> str:
    """The arch of `gfx908`, `gfx908:xnack-`, `MI100`, `AMD Instinct MI100`. Raises UnknownNameError."""
    name = text.strip().lower().partition(":")[0]
    rows = amd_archs()
    for arch, row in rows.items():
        products = {simplified(one) for one in (row["device"]["product"], *row.get("products", ()))}
        if name == arch or {simplified(name), f"rx{simplified(name)}"} & products:
            return arch
    raise UnknownNameError(f"unknown arch {text}", hint=suggest(name, rows))


@cache
def emulated_targets() -> Mapping[str, EmulatedTarget]:
    """Every emulated arch by name."""
    fields = {"lanes": "wavefront", "lds_bytes": "lds_bytes", "accumulators": "accumulators"}
    return {
        arch: EmulatedTarget(
            arch=arch, **{field: row[name] for field, name in fields.items()}, **row["emulator"]
        )
        for arch, row in amd_archs().items()
        if row.get("emulator")
    }


def emulated_target(arch: str) -> EmulatedTarget:
    """The target of an arch. Raises UnknownNameError."""
    known = emulated_targets()
    if arch not in known:
        raise UnknownNameError(
            f"the emulator does not support the arch {arch}", hint=f"known archs: {', '.join(known)}"
        )
    return known[arch]
