"""check_gpu: it succeeds where the pack serves the gate of the library's API level, or where the user permits
less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from tests.support.attention import Problem, spy_pack
from tests.support.runtime import ROOT, Driver, Objects
from tests.support.small_pack import write

NOT_SUPPORTED, NO_BINARY = 801, 209
GATES = {"0.11.2b": "0.11", "0.12.1b": "0.12", "0.13b": "0.13", "0.14.2b": "0.14"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of packs: with every gate, with none, and with one gate each."""
    folder = tmp_path_factory.mktemp("gates")
    rows = {"all": tuple(GATES.values()), "none": (), **{gate: (gate,) for gate in GATES.values()}}
    for name, gates in rows.items():
        write(replace(spy_pack(), gates=[(gate, "gfx908") for gate in gates]), folder / name / "amd-gfx908")
    return {name: folder / name for name in rows}


@pytest.mark.parametrize("level", GATES)
def test_check_gpu_needs_the_gate_of_its_level(level: str, objects: Objects, images: dict[str, Path]) -> None:
    for name, folder in images.items():
        served = name in ("all", GATES[level])
        with Driver(objects.at(level), folder, log="warn", AOTFORGE_PARTIAL_PACK="") as driver:
            assert driver.rc("check") == (0 if served else NOT_SUPPORTED)
            assert driver.send("lasterror") == "0"
            assert driver.rc(Problem().line("fwd")) == 0  # a call that has an image is served all the same
        assert ("AOTFORGE_PARTIAL_PACK=1 permits its use" in driver.log) != served
        assert served or f"API level {GATES[level]}" in driver.log


@pytest.mark.parametrize(
    ("value", "code"), [("1", 0), ("0", 801), ("yes", 801), ("11", 801), ("1" * 99, 801)]
)
def test_the_user_permits_a_smaller_pack(
    objects: Objects, images: dict[str, Path], value: str, code: int
) -> None:
    with Driver(objects, images["none"], AOTFORGE_PARTIAL_PACK=value) as driver:
        assert driver.rc("check") == code


def test_a_pack_without_attention_is_none_whatever_it_states(objects: Objects, tmp_path: Path) -> None:
    pack = spy_pack()
    other = [replace(kernel, operator="other") for kernel in pack.kernels[:1]]
    operators = {"other": pack.operators["attn_fwd"]}
    write(
        replace(pack, kernels=other, operators=operators, gates=[("0.11", "gfx908")]), tmp_path / "amd-gfx908"
    )
    with Driver(objects, tmp_path) as driver:
        assert driver.rc("check") == NO_BINARY


ARCHS = tuple(arch for arch in load_architectures(ROOT / "manifests").architectures if arch.startswith("gfx"))


@pytest.mark.parametrize("arch", ARCHS)
def test_the_probe_of_comfyui(arch: str, objects: Objects, tmp_path: Path) -> None:
    """The gate, one fp16 call of shape (1, 1, 8, 64), synchronisation, and the pending error."""
    probe = Problem(batch=1, heads_q=1, heads_k=1, seqlen_q=8, seqlen_k=8, head_dim=64)
    for served in (True, False):
        folder = tmp_path / str(served)
        pack = spy_pack(arch, widths=(64,) if served else (32,))
        write(replace(pack, gates=[("0.11", arch)] if served else []), folder / "pack")
        with Driver(objects, folder, AOTFORGE_PARTIAL_PACK="", HIP_DOUBLE_DEVICES=f"{arch}@120") as driver:
            assert driver.rc("check") == (0 if served else NOT_SUPPORTED)
            assert driver.send("lasterror") == "0"  # a client that checks first has nothing to clear
            assert driver.rc(probe.line("fwd")) == (0 if served else NOT_SUPPORTED)
            # a client that calls all the same notices at its next check, once
            assert driver.send("lasterror") == ("0" if served else "1")
            assert driver.send("lasterror") == "0"


@pytest.mark.parametrize("hip", [5, 6, 7])
def test_both_kinds_of_callers(hip: int, objects: Objects, images: dict[str, Path]) -> None:
    """One drops the result and finds the last error; the other checks it as PyTorch does, clears the error
    and continues."""
    refused = Problem(head_dim=72).line("fwd")
    with Driver(objects, images["all"], hip=hip) as driver:
        assert driver.rc("check") == 0
        assert driver.rc(refused) == NOT_SUPPORTED
        assert driver.send("lasterror") == "1"
        assert driver.rc(refused) == NOT_SUPPORTED
        driver.send("lasterror")  # C10_HIP_CHECK calls hipGetLastError before it throws
        assert driver.rc(Problem().line("fwd")) == 0
        assert driver.send("lasterror") == "0"
