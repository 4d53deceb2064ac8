"""`check_release` on a release that was really built, and on copies in which one thing is wrong: that thing, and nothing else, turns red."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotforge.compat import CheckReport, Finding, check_release
from aotforge.compat.compilers import Compiler, find_compilers, standin_hip
from aotforge.release.archive import Link, Member
from tests.support.releases import IMAGES, RUNTIME, TEXTS, Tree, altered, edit_bytes, edit_manifest, edit_text
from tests.support.runtime import CACHE, ROOT

pytestmark = pytest.mark.compiler
FLASH, UTIL = "aotriton/include/aotriton/flash.h", "aotriton/include/aotriton/util.h"
LIBRARY = "aotriton/lib/libaotriton_v2.so.0.11.2"
SERVED = {
    "upstream 2.9",
    "upstream 2.10",
    "upstream 2.11",
    "upstream 2.12",
    "rocm-fork 2.9",
    "rocm-fork 2.12",
}


def compilers() -> tuple[Compiler, ...]:
    """One is enough here; every installed one is tried in test_every_compiler."""
    found, _ = find_compilers()
    if not found:
        pytest.skip("none of gcc 9 to 12 and clang 11 to 14 is installed")
    return found[-1:]


def check(folder: Path, *, checkout: Path = ROOT) -> CheckReport:
    return check_release(
        folder,
        checkout=checkout,
        cache=CACHE,
        jobs=2,
        development=True,
        compilers=compilers(),
        hip=standin_hip(ROOT),
    )


def red(report: CheckReport) -> set[tuple[str, str]]:
    return {(finding.check, finding.row) for finding in report.of("failed")}


def of(report: CheckReport, name: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == name]


def rows(name: str) -> set[tuple[str, str]]:
    return {(name, row) for row in SERVED}


def test_a_whole_release_passes(release: Path) -> None:
    report = check(release)
    assert red(report) == set(), report.of("failed")
    assert {f.row for f in of(report, "calls") if f.status == "passed"} == SERVED
    refused = {f.row for f in of(report, "refused") if f.status == "passed"}
    assert refused == {f"upstream 2.{minor}" for minor in (3, 4, 5, 6, 7, 8, 13)}
    assert {f.row for f in of(report, "drop-in")} == SERVED
    assert len(of(report, "refusal")) == 3
    kinds = {
        "folder",
        "archives",
        "symbols",
        "layout",
        "abidiff",
        "names",
        "platform",
        "elf",
        "paths",
        "images",
        "windows",
    }
    assert kinds <= {f.check for f in report.findings}
    # what could not be tried says so, and is not counted as passed
    assert [f.status for f in of(report, "windows")] == ["not run"]


def test_every_compiler(release: Path) -> None:
    """With HIP's own headers where they are installed; those that are missing are named and never passed."""
    found, missing = find_compilers()
    report = check_release(release, checkout=ROOT, cache=CACHE, jobs=2, development=True)
    for finding in of(report, "calls"):
        if finding.row in SERVED:
            assert all(f"{one.name} C++{s}" in finding.evidence for one in found for s in ("17", "20"))
            assert not any(f"{name} C++" in finding.evidence for name in missing)
    said = {f.what for f in of(report, "calls") if f.status == "not run" and not f.row}
    assert said == {f"with {name}" for name in missing}


def test_a_development_build_is_no_release(release: Path) -> None:
    """The smoke profile is not complete, and the bare machine's library may be below its platform."""
    report = check_release(
        release, checkout=ROOT, cache=CACHE, jobs=2, compilers=compilers(), hip=standin_hip(ROOT)
    )
    assert any("smoke is not complete" in f.evidence for f in report.of("failed"))
    said = json.loads((release / "MANIFEST.json").read_bytes())["development"]
    if any("manylinux" in text for text in said):
        failed = {f.row for f in report.of("failed") if f.check == "platform"}
        assert failed == {"", *(row for row in SERVED if row.startswith("upstream"))}


def without(line: str, file: str = FLASH) -> Callable[[Tree], None]:
    return edit_text(file, line, "")


HEADERS: dict[str, tuple[Callable[[Tree], None], set[tuple[str, str]], str]] = {
    "a field that PyTorch sets": (
        edit_text(FLASH, "T0 philox_seed_output, philox_offset_output;", "T0 philox_offset_output;"),
        rows("calls") | rows("drop-in") | {("layout", ""), ("abidiff", "")},
        "attn_fwd_params.philox_seed_output",
    ),
    "a callback's type": (
        edit_text(FLASH, "(*acquire)(void* cookie)", "(*acquire)(const int* cookie)"),
        rows("calls") | rows("drop-in") | {("abidiff", "")},
        "LazyTensor<2>::acquire",
    ),
    "a function": (
        without("AOTRITON_API bool isArchExperimentallySupported(hipStream_t stream);", UTIL),
        rows("calls") | rows("drop-in"),
        "isArchExperimentallySupported(hipStream_t)",
    ),
    "an enumerator": (
        without("  kUInt16 = 21,\n", "aotriton/include/aotriton/dtypes.h"),
        rows("calls") | rows("drop-in") | {("layout", ""), ("abidiff", "")},
        "DType::kUInt16",
    ),
    "a version macro": (
        without("#define AOTRITON_VERSION_MINOR 11u\n", "aotriton/include/aotriton/config.h"),
        rows("calls") | rows("drop-in"),
        "AOTRITON_VERSION",
    ),
    "a field that no PyTorch sets": (without("  T2 A;\n"), {("layout", ""), ("abidiff", "")}, "attn_fwd_params.A"),
    "an order of fields": (
        edit_text(FLASH, "  T2 L;\n  T4 Out;\n  T1 cu", "  T4 Out;\n  T2 L;\n  T1 cu"),
        {("layout", ""), ("abidiff", "")},
        "attn_fwd_params.L is ",
    ),
    "kVersion": (
        edit_text(FLASH, "kVersion = 3;", "kVersion = 4;"),
        {("layout", "")},
        "attn_bwd_params::kVersion is 4, not 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
def test_a_change_of_the_headers_turns_its_rows_red(release: Path, tmp_path: Path, what: str) -> None:
    change, wanted, named = HEADERS[what]
    report = check(altered(release, tmp_path / "r", RUNTIME, change))
    found = red(report) - {("refusal", "")}  # programs that do not compile cannot ask
    if shutil.which("abidiff") is None:
        wanted = wanted - {("abidiff", "")}
    assert found == wanted, report.of("failed")
    assert any(named in f.evidence for f in report.of("failed"))


def test_exactly_the_rows_that_use_it(release: Path, tmp_path: Path) -> None:
    """PyTorch 2.11 given calls of its own, without attn_bwd_fused: it alone does not mind the loss."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("kernels", "manifests", "runtime", "requirements"):
        (checkout / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "compat", checkout / "compat")
    calls, matrix = checkout / "compat" / "pytorch_calls.yaml", checkout / "compat" / "pytorch.yaml"
    text = matrix.read_text()
    at = text.index('pytorch: "2.11"')
    matrix.write_text(text[:at] + text[at:].replace('calls: "2.9-2.12"', 'calls: "own"', 1))
    start = calls.read_text().index('  "2.9-2.12":')
    block = calls.read_text()[start:].partition('  "2.13":')[0]
    own = block.replace('"2.9-2.12"', '"own"').replace("attn_bwd, attn_bwd_fused, ", "attn_bwd, ")
    calls.write_text(calls.read_text() + own)

    def change(tree: Tree) -> None:
        name = "aotriton/include/aotriton/v2/flash.h"
        member = tree[name]
        assert isinstance(member, Member)
        before, _, rest = member.content.decode().partition("AOTRITON_API hipError_t attn_bwd_fused(")
        tree[name] = Member(content=(before + rest.partition(";")[2]).encode())

    report = check(altered(release, tmp_path / "r", RUNTIME, change), checkout=checkout)
    assert {row for kind, row in red(report) if kind == "calls"} == SERVED - {"upstream 2.11"}
    assert all("v2::flash::attn_bwd_fused" in f.evidence for f in of(report, "calls") if f.status == "failed")


def test_a_symbol_that_the_library_lost(release: Path, tmp_path: Path) -> None:
    change = edit_bytes(
        LIBRARY, b"_ZN8aotriton2v25flash14attn_bwd_fused", b"_ZN8aotriton2v25flash14attn_bwd_fuseX"
    )
    report = check(altered(release, tmp_path / "r", RUNTIME, change))
    assert rows("calls") <= red(report) and ("symbols", "") in red(report)
    assert any(
        "attn_bwd_fused" in f.evidence and "not in the library" in f.evidence for f in of(report, "calls")
    )
    assert any("attn_bwd_fused" in f.evidence and "is missing" in f.evidence for f in of(report, "symbols"))
    if shutil.which("abidiff"):
        assert any("attn_bwd_fused" in f.evidence for f in of(report, "abidiff") if f.status == "failed")


def drop(name: str) -> Callable[[Tree], object]:
    return lambda tree: tree.pop(name)


def put(name: str, content: bytes) -> Callable[[Tree], object]:
    return lambda tree: tree.update({name: Member(content=content)})


CONTENT: dict[str, tuple[str, Callable[[Tree], object], set[tuple[str, str]], str]] = {
    "a link of an older release": (
        RUNTIME, drop("aotriton/lib/libaotriton_v2.so.0.11.0"), {("names", "upstream 2.9"), ("names", "rocm-fork 2.9")}, "is missing",
    ),
    "a copy instead of a link": (
        RUNTIME, put("aotriton/lib/libaotriton_v2.so.0.11.1", b"x"), {("names", "upstream 2.10"), ("names", "rocm-fork 2.9")}, "is a copy",
    ),
    "a link to something else": (
        RUNTIME, lambda tree: tree.update({"aotriton/lib/libaotriton_v2.so": Link(target="libaotriton_v2.so.0.11.1")}),
        {("names", "")}, "leads to",
    ),
    "another library": (RUNTIME, put("aotriton/lib/libstdc++.so.6", b"x"), {("names", "")}, "libstdc++.so.6"),
    "the CMake package": (RUNTIME, drop("aotriton/lib/cmake/aotriton/aotritonConfig.cmake"), {("names", "")}, "aotritonConfig.cmake is missing"),
    "a second top": (RUNTIME, put("README", b"x"), {("archives", "")}, "2 top entries"),
    "a path of the builder": (
        RUNTIME, put("aotriton/share/notes", b"made in /home/builder/aotforge"),
        {("paths", "")}, "/home/builder/aotforge",
    ),
    "a log without the format": (
        RUNTIME, edit_bytes(LIBRARY, b"is of format %u, this", b"is of for-at %u, this"), {("refusal", "")}, "format 2 is not named",
    ),
    "a pack's signature": (
        IMAGES, drop("aotriton/lib/aotriton.images/amd-gfx908/__signature__"), {("names", ""), ("images", "")}, "__signature__",
    ),
    "a text": (TEXTS, lambda tree: tree.pop(next(name for name in tree if name.endswith(".s"))), {("images", "")}, "image without text"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONTENT)
def test_a_change_of_the_contents_is_named(release: Path, tmp_path: Path, what: str) -> None:
    kind, change, wanted, named = CONTENT[what]
    report = check(altered(release, tmp_path / "r", kind, change))
    found = red(report)
    # without its signature a pack cannot be opened, so what needs it cannot be run either
    assert wanted <= found and {name for name, _ in found - wanted} <= (
        {"refusal", "drop-in"} if kind == IMAGES else set()
    ), report.of("failed")
    assert any(named in f.evidence for f in report.of("failed"))


def first(said: dict[str, Any]) -> dict[str, Any]:
    image: dict[str, Any] = said["packs"][0]["images"][0]
    return image


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "failed": (lambda said: first(said)["verdict"].update(outcome="failed"), "failed"),
    "never executed": (lambda said: first(said).update(verdict=None), "never executed"),
    "a verdict without runs": (lambda said: first(said)["verdict"].update(runs=0), "names no case, run or judge"),
    "another image": (lambda said: first(said).update(digest="0" * 64), "in the pack and not in MANIFEST.json"),
    "a planned image": (lambda said: said["packs"][0]["images"].pop(0), "is planned and missing"),
    "an image that nobody planned": (
        lambda said: first(said).update(jobs=["f" * 64], labels=["flash.stray"]), "flash.stray is not planned",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MANIFESTS)
def test_images_are_held_against_manifest_and_plan(release: Path, tmp_path: Path, what: str) -> None:
    change, named = MANIFESTS[what]
    shutil.copytree(release, tmp_path / "r")
    edit_manifest(tmp_path / "r", change)
    report = check(tmp_path / "r")
    assert {kind for kind, _ in red(report)} == {"images"}
    assert any(named in f.evidence for f in report.of("failed")), report.of("failed")


def test_everything_is_collected_and_the_exit_code_is_32(release: Path, tmp_path: Path) -> None:
    """Several things at once, through the front door: one JSON text, all of them in it."""
    shutil.copytree(release, tmp_path / "r")
    (tmp_path / "r" / "stray.txt").write_text("x")
    for path in (tmp_path / "r").glob("*rocm7.2*"):
        path.unlink()
    next((tmp_path / "r").glob("*rocm6.2*")).unlink()
    damaged = next((tmp_path / "r").glob("*-asm-*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "invoke", "check", "--release", str(tmp_path / "r"), "--json", "--development", "--cache", str(CACHE)],
        cwd=ROOT, env=os.environ | {"PATH": "/nonexistent"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 32, done.stderr
    said = json.loads(done.stdout)
    assert said["ok"] is False and said["error"]["kind"] == "compat"
    what = said["error"]["what"]
    for named in (
        "stray.txt is not listed",
        "no runtime tarball for ROCm 7.2",
        "ROCm 6.2",
        "cannot be unpacked",
        "is not the file",
    ):
        assert named in what
    # without a compiler nothing about calls is passed
    status = {
        f["status"]
        for f in said["findings"]
        if f["check"] in {"calls", "refused", "symbols", "layout", "refusal", "drop-in"}
    }
    assert status == {"not run"}


def test_what_is_no_release(tmp_path: Path) -> None:
    from aotforge.errors import ReleaseError

    with pytest.raises(ReleaseError, match="is no release"):
        check(tmp_path)
