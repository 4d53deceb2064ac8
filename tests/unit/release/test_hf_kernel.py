"""Packages for Hugging Face's `kernels`: names, digests, and what a check finds."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping

import pytest

from aotforge.errors import ReleaseError
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.release import hf_kernel
from aotforge.release.hf_kernel import METADATA, hf_variants
from aotforge.release.model import load_release_manifest
from aotforge.rules import Form, Function, Option, OptionalInput, Parameter
from tests.support.families import PROJECT
from vgpu.elf import ElfFile, Symbol

MANIFEST = load_release_manifest(PROJECT / "manifests" / "release.yaml")
FUNCTION = Function(
    name="product",
    summary="out = input @ weight + bias",
    parameters=(
        Parameter(name="input", kind="input"),
        OptionalInput(name="bias"),
        Option(name="activation", options=("none", "relu")),
        Parameter(name="out", kind="output"),
    ),
    dtypes=("fp16",),
    forms=(Form(operator="product", rank=4),),
)
PACKS = {
    "amd-gfx908": ("gfx908",),
    "amd-gfx11xx": ("gfx1100", "gfx1101"),
    "nvidia-sm_90": ("sm_90",),
    "nvidia-sm_100": ("sm_100",),
    "cpu-x86-64": ("cpu-x86-64-v3",),
}


def variants(
    monkeypatch: pytest.MonkeyPatch, *, exported: str = "product", image: bytes = b""
) -> dict[str, dict[str, bytes]]:
    symbol = Symbol(name=f"__tvm_ffi_{exported}", value=0, size=0)
    monkeypatch.setattr(hf_kernel, "read_elf", lambda _: ElfFile(sections=(), symbols=(symbol,), memory=b""))
    runtime = {
        f"lib/{OPERATOR_LIBRARY}": b"library",
        "share/licenses/aotriton/LICENSE": b"MIT",
        "lib/other.so": b"",
    }
    images: Mapping[str, Mapping[str, bytes]] = {pack: {"dispatch": pack.encode() + image} for pack in PACKS}
    return dict(hf_variants(MANIFEST, PACKS, [FUNCTION], runtime, images, "manylinux_2_28_x86_64"))


def test_variants_are_the_builds_of_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = variants(monkeypatch)
    rocm = [f"tvm-ffi01-rocm{version.replace('.', '')}-x86_64-linux" for version in MANIFEST.rocm]
    cuda = [f"tvm-ffi01-cu{version}-x86_64-linux" for version in ("120", "130")]
    assert sorted(found) == sorted([*rocm, *cuda, "tvm-ffi01-cpu-x86_64-linux"])
    backends = {name: json.loads(one[METADATA])["backend"] for name, one in found.items()}
    assert backends[rocm[0]] == {"type": "rocm", "archs": ["gfx1100", "gfx1101", "gfx908"]}
    assert backends[cuda[0]] == {"type": "cuda", "archs": ["10.0", "9.0"]}
    assert backends["tvm-ffi01-cpu-x86_64-linux"] == {"type": "cpu"}
    assert sorted(found[cuda[0]]) == [
        "__init__.py",
        "aotriton.images/nvidia-sm_100/dispatch",
        "aotriton.images/nvidia-sm_90/dispatch",
        OPERATOR_LIBRARY,
        "licenses/LICENSE",
        METADATA,
    ]


def test_metadata_have_the_digest_of_every_file_and_an_identifier_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "tvm-ffi01-cpu-x86_64-linux"
    cpu = variants(monkeypatch)[name]
    fields = json.loads(cpu[METADATA])
    assert (fields["name"], fields["version"], fields["license"], fields["python-depends"]) == (
        "aotforge-ops", 0, "mit", ["tvm-ffi"],
    )  # fmt: skip
    assert fields["digest"] == {
        "algorithm": "sha256",
        "files": {
            file: base64.b64encode(hashlib.sha256(data).digest()).decode()
            for file, data in cpu.items()
            if file != METADATA
        },
    }
    assert re.fullmatch(r"_aotforge_ops_cpu_[0-9a-f]{12}", fields["id"])
    again, other = (variants(monkeypatch, image=image)[name] for image in (b"", b"new"))
    assert again == cpu and json.loads(other[METADATA])["id"] != fields["id"]


def test_the_python_module_names_every_function(monkeypatch: pytest.MonkeyPatch) -> None:
    text = variants(monkeypatch)["tvm-ffi01-cpu-x86_64-linux"]["__init__.py"].decode()
    compile(text, "__init__.py", "exec")
    assert '__all__ = ["product"]' in text and "def product(input, bias, activation, out):" in text
    assert "`bias` may be None. `activation`: none, relu." in text


def test_a_library_without_the_functions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReleaseError, match="has no function product"):
        variants(monkeypatch, exported="other")
