"""`check_release` on a small release, and on copies with one fault each, which alone is reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotforge.conformance.check_release import check_release
from aotforge.conformance.compilers import Compiler, find_compilers, standin_hip
from aotforge.conformance.findings import CheckReport, Finding
from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_show import matrix_text
from aotforge.formats.archive import Link, Member, sha256_file
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.release.model import load_release_manifest
from tests.support.releases import IMAGES, RUNTIME, TEXTS, Tree, altered, build_small, edit_bytes, edit_text
from tests.support.runtime import CACHE, ROOT

pytestmark = pytest.mark.compiler
FLASH, UTIL = "aotriton/include/aotriton/flash.h", "aotriton/include/aotriton/util.h"
LIBRARY = "aotriton/lib/libaotriton_v2.so.0.11.2"
SERVED = {*(f"upstream 2.{minor}" for minor in (9, 10, 11, 12)), "rocm-fork 2.9", "rocm-fork 2.12"}


def compilers() -> tuple[Compiler, ...]:
    """One is enough here: test_compilers.py has the others."""
    found = [one for one in find_compilers() if one.family == "gcc"]
    if not found:
        pytest.skip("none of gcc 9 to 12 is installed")
    return tuple(found[-1:])


def check(folder: Path, *only: str, checkout: Path = ROOT, development: bool = True) -> CheckReport:
    return check_release(
        folder, checkout=checkout, cache=CACHE, jobs=2, development=development, compilers=compilers(),
            hip=standin_hip(ROOT), only=only
    )  # fmt: skip


def red(report: CheckReport) -> set[tuple[str, str]]:
    return {(finding.check, finding.row) for finding in report.of("failed")}


def of(report: CheckReport, name: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == name]


def rows(name: str) -> set[tuple[str, str]]:
    return {(name, row) for row in SERVED}


def test_a_complete_release_passes(release: Path) -> None:
    report = check(release)
    assert red(report) == set(), report.of("failed")
    assert {f.row for f in of(report, "calls") if f.status == "passed"} == SERVED
    refused = {f.row for f in of(report, "refused") if f.status == "passed"}
    older = {f"upstream 2.{minor}" for minor in (3, 4, 5, 6, 7, 8, 13)}
    assert refused == older | {"upstream 2.14", "upstream main (after 2026-09-26)", "upstream main (2026-11)"}
    assert {f.row for f in of(report, "drop-in")} == SERVED
    assert len(of(report, "serving")) == 1
    kinds = "folder archives symbols layout names sonames platform elf paths images windows"
    assert {*kinds.split()} <= {f.check for f in report.findings}
    # what could not be tried is reported as such, and not counted as passed
    assert [f.status for f in of(report, "windows")] == ["not run"]


def test_a_development_build_is_no_release(release: Path) -> None:
    """The smoke profile is not complete, and a library built on the host may be below its platform."""
    report = check(release, "platform", "images", development=False)
    assert any("smoke is not complete" in f.evidence for f in report.of("failed"))
    reported = json.loads((release / "MANIFEST.json").read_bytes())["development"]
    if any("manylinux" in text for text in reported):
        failed = {f.row for f in report.of("failed") if f.check == "platform"}
        assert failed == {"", *(row for row in SERVED if row.startswith("upstream"))}


HEADERS: dict[str, tuple[list[Callable[[Tree], None]], set[tuple[str, str]], list[str]]] = {
    "a field that PyTorch sets": (
        [edit_text(FLASH, "T0 philox_seed_output, philox_offset_output;", "T0 philox_offset_output;")],
        rows("calls") | {("layout", "")},
        ["attn_fwd_params.philox_seed_output: ", "attn_fwd_params.philox_seed_output"],
    ),
    "a function, an enumerator, a callback and a macro": (
        [
            edit_text(UTIL, "AOTRITON_API bool isArchExperimentallySupported(hipStream_t stream);", ""),
            edit_text("aotriton/include/aotriton/dtypes.h", "  kUInt16 = 21,\n", ""),
            edit_text("aotriton/include/aotriton/config.h", "#define AOTRITON_VERSION_MINOR 11u\n", ""),
        ],
        rows("calls") | {("layout", "")},
        ["isArchExperimentallySupported(hipStream_t): ", "DType::kUInt16: ", "AOTRITON_VERSION_MINOR"],
    ),
    "what no PyTorch uses": (
        [
            edit_text(FLASH, "  T2 L;\n  T4 Out;\n#if", "  T4 Out;\n  T2 L;\n#if"),
            edit_text(FLASH, "kVersion = 3;", "kVersion = 4;"),
        ],
        {("layout", "")},
        ["attn_fwd_params.L is ", "attn_bwd_params::kVersion is 4, not 3"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
def test_a_change_of_the_headers_turns_its_rows_red(release: Path, tmp_path: Path, what: str) -> None:
    changes, wanted, named = HEADERS[what]

    def change(tree: Tree) -> None:
        for one in changes:
            one(tree)

    report = check(altered(release, tmp_path / "r", RUNTIME, change), "calls", "layout")
    assert red(report) == wanted, report.of("failed")
    for text in named:
        assert any(text in f.evidence for f in report.of("failed")), (text, report.of("failed"))


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

    report = check(altered(release, tmp_path / "r", RUNTIME, change), "calls", checkout=checkout)
    assert {row for kind, row in red(report) if kind == "calls"} == SERVED - {"upstream 2.11"}
    assert all("v2::flash::attn_bwd_fused" in f.evidence for f in of(report, "calls") if f.status == "failed")


def test_a_symbol_that_the_library_lost(release: Path, tmp_path: Path) -> None:
    change = edit_bytes(
        LIBRARY, b"_ZN8aotriton2v25flash14attn_bwd_fused", b"_ZN8aotriton2v25flash14attn_bwd_fuseX"
    )
    report = check(altered(release, tmp_path / "r", RUNTIME, change), "calls", "symbols")
    assert rows("calls") <= red(report) and ("symbols", "") in red(report)
    assert any(
        "attn_bwd_fused" in f.evidence and "not in the library" in f.evidence for f in of(report, "calls")
    )
    assert any("attn_bwd_fused" in f.evidence and "is missing" in f.evidence for f in of(report, "symbols"))


def spoil(tree: Tree) -> None:
    """Nine things at once."""
    lib = "aotriton/lib"
    del tree[f"{lib}/libaotriton_v2.so.0.11.0"]
    tree[f"{lib}/libaotriton_v2.so.0.11.1"] = Member(content=b"x")
    tree[f"{lib}/libaotriton_v2.so"] = Link(target="libaotriton_v2.so.0.11.1")
    tree[f"{lib}/libstdc++.so.6"] = Member(content=b"x")
    del tree[f"{lib}/cmake/aotriton/aotritonConfig.cmake"]
    tree["README"] = Member(content=b"x")
    tree["aotriton/share/notes"] = Member(content=b"made in /home/builder/aotforge")


def test_everything_wrong_with_the_runtime_is_named(release: Path, tmp_path: Path) -> None:
    report = check(altered(release, tmp_path / "r", RUNTIME, spoil), "folder", "sonames", "paths", "elf")
    assert red(report) == {
        ("archives", ""), ("sonames", ""), ("sonames", "upstream 2.9"), ("sonames", "upstream 2.10"),
            ("sonames", "rocm-fork 2.9"), ("paths", ""),
    }  # fmt: skip
    reported = "\n".join(f"{f.row} {f.what}: {f.evidence}" for f in report.of("failed"))
    for text in (
        "README",
        "upstream 2.9 link libaotriton_v2.so.0.11.0: is missing",
            "upstream 2.10 link libaotriton_v2.so.0.11.1: is a copy",
        "link libaotriton_v2.so: points to libaotriton_v2.so.0.11.1", "libstdc++.so.6",
            "aotritonConfig.cmake is missing", "/home/builder/aotforge",
    ):  # fmt: skip
        assert text in reported, (text, reported)


def operators(
    *flags: str, soname: str = OPERATOR_LIBRARY, code: str = "int x;", name: str = OPERATOR_LIBRARY
) -> Callable[[Tree, Path], None]:
    """Another operator library, as the build links its own but for `flags`."""

    def change(tree: Tree, folder: Path) -> None:
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-s", "-nostdlib",
                f"-Wl,-z,relro,-z,now,--build-id=sha1,-soname,{soname}", "-x", "c", "-", "-x", "none",
             "-o", folder / "x.so", *flags],
            input=code.encode(), check=True,
        )  # fmt: skip
        tree[f"aotriton/lib/{name}"] = Member(content=(folder / "x.so").read_bytes())

    return change


def content(name: str, data: bytes) -> Callable[[Tree, Path], None]:
    return lambda tree, _: tree.update({f"aotriton/lib/{name}": Member(content=data)})


FUNCTIONS = " ".join(
    f"int {prefix}{name};"
    for name in ("add", "gemm", "rms_norm", "softmax")
    for prefix in ("aotforge_", "__tvm_ffi_")
)
ALL_FUNCTIONS = f"int aotforge_ops_error; {FUNCTIONS}"
OPERATORS: dict[str, tuple[Callable[[Tree, Path], object], set[str], str]] = {
    "text": (content(OPERATOR_LIBRARY, b"not even an ELF file"), {"elf", "sonames", "platform", "symbols"},
        "is not a readable library"),
    "none": (lambda tree, _: tree.pop(f"aotriton/lib/{OPERATOR_LIBRARY}"),
        {"elf", "sonames", "platform", "symbols"}, "No such file"),
    "runpath": (operators("-Wl,-rpath,$ORIGIN/cmake/aotforge_ops", code=ALL_FUNCTIONS), {"elf"},
        f"{OPERATOR_LIBRARY}: DT_RUNPATH"),
    "name": (operators(soname="libother.so", code=ALL_FUNCTIONS), {"sonames"},
        f"is libother.so, not {OPERATOR_LIBRARY}"),
    "functions": (operators(code=ALL_FUNCTIONS + "int malloc;"), {"symbols"},
        "malloc is exported and not part of it"),
    "no functions": (operators(), {"symbols"}, "aotforge_gemm is missing"),
    "platform": (operators("-Wl,--no-as-needed", "-lgomp", code=ALL_FUNCTIONS), {"elf", "platform"},
        "the libraries are linux_x86_64"),
    "nothing": (operators(code=ALL_FUNCTIONS), set(), ""),
}  # fmt: skip


@pytest.mark.parametrize("what", OPERATORS)
def test_a_fault_of_the_operator_library(release: Path, tmp_path: Path, what: str) -> None:
    """Programs load it as they load the library itself."""
    change, wanted, evidence = OPERATORS[what]
    changed = altered(release, tmp_path / "r", RUNTIME, lambda tree: change(tree, tmp_path))
    report = check(changed, "symbols", "sonames", "platform", "elf")
    assert {kind for kind, _ in red(report)} == wanted, report.of("failed")
    assert any(evidence in f"{f.what}: {f.evidence}" for f in report.findings), report.of("failed")


def test_a_release_without_the_operator_library(release: Path, tmp_path: Path) -> None:
    def change(tree: Tree) -> None:
        for name in [name for name in tree if "aotforge_ops" in name or name.endswith("aotforge/ops.h")]:
            del tree[name]

    report = check(altered(release, tmp_path / "r", RUNTIME, change), "symbols", "sonames", "elf")
    assert red(report) == set(), report.of("failed")


def test_incomplete_packs_and_texts(release: Path, tmp_path: Path) -> None:
    folder = altered(
        release,
        tmp_path / "a",
        TEXTS,
        lambda tree: tree.pop(next(name for name in tree if name.endswith(".s"))),
    )
    (finding,) = check(folder, "images").of("failed")
    assert "image without text" in finding.evidence
    name = "aotriton/lib/aotriton.images/amd-gfx908/__signature__"
    folder = altered(release, tmp_path / "b", IMAGES, lambda tree: tree.pop(name))
    report = check(folder, "images", "sonames")
    assert red(report) == {("images", ""), ("sonames", "")}
    assert all("__signature__" in f.evidence + f.what for f in report.of("failed"))


def test_everything_is_collected_and_the_exit_code_is_1(release: Path, tmp_path: Path) -> None:
    """Several things at once, through the command line: one JSON text, all of them in it."""
    shutil.copytree(release, tmp_path / "r")
    (tmp_path / "r" / "stray.txt").write_text("x")
    for path in (tmp_path / "r").glob("*rocm7.2*"):
        path.unlink()
    next((tmp_path / "r").glob("*rocm6.2*")).unlink()
    damaged = next((tmp_path / "r").glob("*-asm-*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    done = subprocess.run(
        [sys.executable, "tasks.py", "check", "--release", str(tmp_path / "r"), "--json", "--development",
            "--cache", str(CACHE)],
        cwd=ROOT, env=os.environ | {"PATH": "/nonexistent"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    reported = json.loads(done.stdout)
    assert reported["ok"] is False and reported["error"]["kind"] == "compat"
    what = reported["error"]["what"]
    for named in (
        "stray.txt are in the folder or in SHA256SUMS, not in both",
        "no runtime tarball for ROCm 7.2",
        "ROCm 6.2",
        "cannot be unpacked",
    ):
        assert named in what
    # without a compiler nothing about calls is passed
    status = {
        f["status"]
        for f in reported["findings"]
        if f["check"] in {"calls", "refused", "symbols", "layout", "serving", "drop-in"}
        and "operator library" not in f["what"]
    }
    assert status == {"not run"}


def test_a_folder_that_is_not_a_release(tmp_path: Path) -> None:
    from aotforge.errors import ReleaseError

    with pytest.raises(ReleaseError, match="is not a release"):
        check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("level", load_release_manifest(ROOT / "manifests" / "release.yaml").api_levels[1:])
def test_a_release_of_another_level(level: str, release: Path, tmp_path: Path) -> None:
    """All checks, and the same image tarball."""
    made = build_small(tmp_path, version=level)
    assert made.name == f"{level}-r1"
    report = check_release(made, checkout=ROOT, cache=CACHE, jobs=2, development=True, hip=standin_hip(ROOT))
    assert not [one for one in report.of("failed") if "smoke is not complete" not in one.evidence]
    images = [
        [sha256_file(path) for path in sorted(folder.glob("*-images-*.tar.gz"))] for folder in (made, release)
    ]
    assert images[0] == images[1] != []
    assert level in of(report, "names")[0].what


def test_no_colour_where_none_is_wanted() -> None:
    done = subprocess.run(
        [sys.executable, "tasks.py", "compat"],
        cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.rstrip("\n") == matrix_text(load_matrix(ROOT))
