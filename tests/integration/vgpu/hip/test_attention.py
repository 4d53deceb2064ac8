"""The complete stack on virtual devices: a program, libaotriton_v2.so, image packs, code objects; numbers against float64."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aotforge.deliver.extract import ExtractedRelease, extract_release
from aotforge.devtools.demo.client import ClientRunner, build_client
from aotforge.devtools.demo.demo_report import CallResult
from aotforge.devtools.demo.run_demo import python_folders
from aotforge.errors import ExecutionError, ReleaseError
from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.writer import write_pack
from aotforge.release.assemble import assemble_release
from aotforge.release.model import PackInput
from aotforge.run.release_programs import available_programs
from kernels.flash.call import Case as Problem
from tests.integration.release.real import CACHE, ROOT, small_attention
from tests.integration.release.standin import LICENCE, MANIFEST, records
from vgpu.hip.build_hip import VirtualHip, environment

pytestmark = pytest.mark.compiler

ARCHS = ("gfx908", "gfx90a")
"""Of the second one, the emulator's tests execute images as well."""
PROBLEM = Problem(batch=2, heads_q=4, heads_k=2, seqlen_q=70, seqlen_k=129, head_dim=32, sm_scale=0.125)


@dataclass(frozen=True, kw_only=True)
class Stack:
    folder: Path
    extracted: ExtractedRelease
    client: Path
    virtual: VirtualHip

    def settings(self, *archs: str) -> dict[str, str]:
        return environment(self.virtual, devices=archs, texts=self.extracted.texts, cache=CACHE)


def run_problem(
    client: Path, problem: Problem, device: int, arch: str, settings: dict[str, str], folder: Path
) -> CallResult:
    """One call as the demo makes it, in the sandbox if there is one."""
    return ClientRunner(
        client=client,
        folder=folder,
        programs=available_programs(),
        settings=settings,
        readable=(folder, client.parent, *python_folders(ROOT)),
        cache=CACHE,
    ).run(problem, device, arch)


@pytest.fixture(scope="module")
def stack(virtual: VirtualHip, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A release with packs of two archs, unpacked, and the demo's client built against it."""
    folder = tmp_path_factory.mktemp("stack")
    packs = []
    for arch in ARCHS:
        plan, images = small_attention(arch)
        pack = write_pack(plan, images, release=MANIFEST.name, compressor=MANIFEST.compressor)
        assembly = {image.digest: image.asm for image in images}
        packs.append(PackInput(pack=pack, assembly=assembly, records=records(plan, images)))
    prefix = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix
    release = assemble_release(
        MANIFEST, packs, prefix, output=folder / "dist", licence=LICENCE, epoch=MANIFEST.epoch, inputs="test"
    )
    extracted = extract_release(release.folder, [f"amd-{arch}" for arch in ARCHS], folder / "torch")
    client = build_client(ROOT, extracted, virtual, folder / "client", available_programs())
    return Stack(folder=folder, extracted=extracted, client=client, virtual=virtual)


@pytest.mark.parametrize("device", range(2))
def test_forward_and_backward_on_two_devices_of_one_process(
    stack: Stack, device: int, tmp_path: Path
) -> None:
    arch = ARCHS[device]
    result = run_problem(stack.client, PROBLEM, device, arch, stack.settings(*ARCHS), tmp_path)
    assert result.passed, result.outputs
    assert [o.name for o in result.outputs] == ["out", "lse", "dq", "dk", "dv"]
    # a comparison that can fail: nothing computed in float16 is exact
    assert all(output.largest_error > 0 for output in result.outputs)
    assert [kernel for kernel, *_ in result.served] == ["attn_fwd", "bwd_preprocess", "bwd_dk_dv", "bwd_dq"]


def test_random_schedules_lazy_streams_and_every_check_change_nothing(stack: Stack, tmp_path: Path) -> None:
    settings = stack.settings("gfx908") | {
        "AOTFORGE_VIRTUAL_SCHEDULE": "3", "AOTFORGE_VIRTUAL_SEED": "9", "AOTFORGE_VIRTUAL_CHECKS": "1", "AOTFORGE_VIRTUAL_ORDER": "lazy",
    }  # fmt: skip
    result = run_problem(stack.client, PROBLEM, 0, "gfx908", settings, tmp_path)
    assert result.passed, result.outputs


def test_failures_reach_the_caller(stack: Stack, tmp_path: Path) -> None:
    wrong = replace(PROBLEM, head_dim=256)  # the pack has no image that wide
    with pytest.raises(ExecutionError, match="operation not supported"):
        run_problem(stack.client, wrong, 0, "gfx908", stack.settings("gfx908"), tmp_path)
    with pytest.raises(ExecutionError, match="no kernel image is available"):
        run_problem(stack.client, PROBLEM, 0, "gfx1201", stack.settings("gfx1201"), tmp_path)
    without = stack.settings("gfx908") | {"AOTFORGE_ASM": str(tmp_path)}
    with pytest.raises(ExecutionError, match=r"no assembly text for the image [0-9a-f]{64}"):
        run_problem(stack.client, PROBLEM, 0, "gfx908", without, tmp_path)
    for failing, words in (
        ("hipModuleLaunchKernel:2:719", r"backward.*unspecified launch failure"),
        ("hipMalloc:3:2", "out of memory"),
    ):
        settings = stack.settings("gfx908") | {"AOTFORGE_VIRTUAL_FAIL": failing}
        with pytest.raises(ExecutionError, match=words):
            run_problem(stack.client, PROBLEM, 0, "gfx908", settings, tmp_path)


def test_a_release_without_a_pack_is_refused(stack: Stack, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="amd-gfx942"):
        extract_release(stack.folder / "dist" / MANIFEST.name, ["amd-gfx942"], tmp_path)
    with pytest.raises(ReleaseError, match="no runtime tarball"):
        extract_release(tmp_path, ["amd-gfx908"], tmp_path / "out")


def test_a_client_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "client"
    client.write_text("#!/bin/sh\nexec sleep 60\n")
    client.chmod(0o755)
    monkeypatch.setattr("aotforge.devtools.demo.client._SECONDS", 0.2)
    with pytest.raises(ExecutionError, match="has not ended"):
        run_problem(client, PROBLEM, 0, "gfx908", {}, tmp_path)


PYTHON = """
import ctypes, sys, threading
from ctypes import byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p
import numpy as np
from kernels.flash.bounds import bounds
from kernels.flash.call import Case, values_of
from kernels.flash.operators import ATTN_FWD

class Value(ctypes.Structure):
    class As(ctypes.Union):
        _fields_ = [("ptr", c_void_p), ("i32", c_int32), ("i64", c_int64), ("u64", ctypes.c_uint64), ("f32", c_float)]
    _fields_ = [("name", c_char_p), ("type", c_int32), ("reserved", c_int32), ("to", As)]

KINDS = ["ptr", "i32", "i64", "u64", "f32"]
class Dense:  # the attributes that values_of uses
    def __init__(self, data):
        self.data, self.at = np.ascontiguousarray(data), c_void_p()
        assert hip.hipMalloc(byref(self.at), c_size_t(self.data.nbytes)) == 0
        assert hip.hipMemcpy(self.at, self.data.ctypes.data_as(c_void_p), c_size_t(self.data.nbytes), 1) == 0
        self.address, self.strides = self.at.value, [s // self.data.itemsize for s in self.data.strides]
    def read(self):
        assert hip.hipMemcpy(self.data.ctypes.data_as(c_void_p), self.at, c_size_t(self.data.nbytes), 2) == 0
        return self.data.astype(np.float64)

def attention(device):
    assert hip.hipSetDevice(device) == 0
    case = Case(batch=1, heads_q=4, heads_k=2, seqlen_q=40 + device, seqlen_k=129, head_dim=32, sm_scale=0.125, seed=device)
    inputs = case.inputs()
    tensors = {name: Dense(inputs[name].astype(np.float16)) for name in "QKV"}
    tensors["Out"] = Dense(np.zeros(case.shape("Q"), np.float16))
    tensors["L"] = Dense(np.zeros((1, case.heads_q, case.seqlen_q), np.float32))
    known = values_of(case, tensors)
    values = (Value * len(ATTN_FWD.values))()
    for value, declared in zip(values, ATTN_FWD.values):
        value.name, value.type = declared.name.encode(), KINDS.index(declared.type)
        setattr(value.to, declared.type, known.get(declared.name, 0))
    code = library.aotforge_launch(b"attn_fwd", values, c_size_t(len(values)), 10, None)
    assert code == 0, code
    expected = bounds(*(inputs[n] for n in ("Q", "K", "V", "DO")), case.options(inputs), dtype="fp16")
    out, lse = tensors["Out"].read(), tensors["L"].read()
    right[device] = max(expected["out"].misses(out).max(), expected["lse"].misses(lse).max()) <= 1

hip, library, right = ctypes.CDLL("libamdhip64.so.7"), ctypes.CDLL(sys.argv[1]), {}
threads = [threading.Thread(target=attention, args=(device,)) for device in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(right == {0: True, 1: True})
"""


def test_python_through_ctypes_on_two_devices_at_once(stack: Stack) -> None:
    """Forward attention through the C interface, from two threads of one process, each with its own device."""
    library = stack.extracted.prefix / "lib" / "libaotriton_v2.so"
    done = subprocess.run(
        [sys.executable, "-c", PYTHON, str(library)],
        env=dict(os.environ) | stack.settings(*ARCHS) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
