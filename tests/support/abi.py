"""The headers that aotforge.conformance.checks.abi generates from compat/api_levels.yaml, and programs
compiled against them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.manifest_reader import read_yaml
from aotforge.conformance.checks import abi
from aotforge.conformance.matrix_models import Interface

from .runtime import ROOT

HIP, header, references, layout = abi.HIP, abi.header, abi.references, abi.layout


def facts() -> dict[str, Any]:
    return read_yaml(ROOT / "compat" / "api_levels.yaml").values


def interface() -> Interface:
    return Interface.model_validate_json(json.dumps(facts()))


def compile_program(
    source: str,
    folder: Path,
    includes: Sequence[Path],
    *,
    name: str = "program",
    flags: Sequence[str] = (),
    cxx: str = "g++",
) -> subprocess.CompletedProcess[str]:
    """Compile `source` in `folder` to `name`; the result is not checked."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.cpp").write_text(source)
    command = [
        cxx,
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-invalid-offsetof",
        f"{name}.cpp",
        "-o",
        name,
    ]
    command += [f"-I{path}" for path in includes] + list(flags)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def defined_symbols(library: Path) -> set[str]:
    return set(_nm(["nm", "-D", "--defined-only", str(library)]))


def undefined_symbols(objects: Path) -> set[str]:
    return set(_nm(["nm", "-u", str(objects)]))


def _nm(command: list[str]) -> Iterator[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        yield line.split()[-1].partition("@")[0]
