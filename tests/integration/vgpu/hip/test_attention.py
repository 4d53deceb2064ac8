"""The complete stack on virtual devices: a program, libaotriton_v2.so, image packs, code objects; numbers
against float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aotforge.deliver.extract import ExtractedRelease, extract_release
from aotforge.devtools.demo.client import ClientRunner, build_client
from aotforge.devtools.demo.demo_report import CallResult
from aotforge.devtools.demo.run_demo import python_folders
from aotforge.errors import ExecutionError
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
    settings = stack.settings("gfx908")
    settings["AOTFORGE_VIRTUAL"] += ",schedule=3,seed=9,checks=1,order=lazy"
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
        settings = stack.settings("gfx908")
        settings["AOTFORGE_VIRTUAL"] += f",fail={failing}"
        with pytest.raises(ExecutionError, match=words):
            run_problem(stack.client, PROBLEM, 0, "gfx908", settings, tmp_path)
