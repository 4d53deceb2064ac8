"""The tutorials: every command and listing, in the order of the page, in a copy of the checkout."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from invoke.parser import Parser

import tasks
from aotforge.library.operator_functions import HEADER, function_sources
from tests.e2e.checkouts import ROOT, shrink_smoke
from tests.e2e.pages import DOCS, blocks, execute, listings, script, task_lines, tutorial_checkout, tutorials
from tests.support.families import FAKE_TOOLCHAIN, plan_project


def run_page(page: str, folder: Path) -> str:
    """What a page's commands print, with a home of its own for keys and releases."""
    home = folder / "home"
    home.mkdir()
    checkout = tutorial_checkout(folder)
    if "--profile smoke" in script(page):
        shrink_smoke(checkout)
    return execute(script(page), checkout, {"HOME": str(home)})


@pytest.mark.compiler
def test_the_page_makes_a_family_that_a_program_calls(tmp_path: Path) -> None:
    printed = run_page("kernel-family.md", tmp_path)
    assert "8 images for amd-gfx908, profile core-only" in printed
    assert re.search(r"9 images of amd-gfx908.*9 passed", printed)
    assert re.search(r"8 images of amd-gfx908.*8 passed", printed)
    text = r"printed     norm\.rms_norm:gfx908:.*\n    rows=3, columns=8, .*: program \(0, 0, 0\), wave 0, "
    assert re.search(text + r"lane 0: .* scale: [\d.]+", printed)
    assert re.search(r"approximate norm\.rms_norm: .*v_sqrt_f32.* \(last place\)", printed)
    assert "estimated cycles, launch on all units" in printed
    assert "rows=0, columns=64, unaligned" in printed
    assert re.search(r"out +largest error .*\npassed", printed)
    assert "development build: amd-gfx908 holds profile core-only" in printed
    assert printed.splitlines()[-1] == "largest error of the first row: below 1e-5"


@pytest.mark.slow
@pytest.mark.compiler
def test_the_page_adds_an_operator_that_a_c_program_calls(tmp_path: Path) -> None:
    page = (DOCS / "adding-an-operator.md").read_text(encoding="utf-8")
    printed = run_page("adding-an-operator.md", tmp_path)
    assert "8 images for amd-gfx908, profile core-only" in printed
    assert re.search(r"24 images of .*: 24 passed", printed)
    shown = page[page.index("It prints:") :].split("\n\n")[1]
    assert printed.endswith("".join(f"{line.strip()}\n" for line in shown.splitlines()))


@pytest.mark.slow  # three builds and the check of one
@pytest.mark.compiler
def test_a_packager_gets_a_prefix(tmp_path: Path) -> None:
    run_page("packaging.md", tmp_path)
    assert (tmp_path / "checkout/package/opt/aotriton/lib/libaotriton_v2.so.0.11.2").is_file()


@pytest.mark.slow  # a build, and the calls of every PyTorch compiled
@pytest.mark.compiler
def test_a_release_engineer_publishes_installs_and_withdraws(tmp_path: Path) -> None:
    printed = run_page("first-release.md", tmp_path)
    assert "signatures are valid" in printed and "Signature Verified Successfully" in printed
    assert "wrong results for bf16" in printed
    assert (tmp_path / "home" / "releases" / "0.11.2b-r1" / "SHA256SUMS").is_file()
    assert not (tmp_path / "home" / "aotriton").exists()
    assert (tmp_path / "checkout/releases/dist/finished/simple/aotforge-attention/index.html").is_file()


EXECUTED: dict[str, Callable[..., object]] = {
    "packaging.md": test_a_packager_gets_a_prefix,
    "kernel-family.md": test_the_page_makes_a_family_that_a_program_calls,
    "adding-an-operator.md": test_the_page_adds_an_operator_that_a_c_program_calls,
    "first-release.md": test_a_release_engineer_publishes_installs_and_withdraws,
}
"""The test of each tutorial."""


def test_every_tutorial_of_the_site_is_executed() -> None:
    assert set(tutorials()) == set(EXECUTED)


@pytest.mark.parametrize("page", tutorials())
def test_every_block_of_a_tutorial_is_a_listing_or_commands(page: str) -> None:
    assert any(block.kind == "sh" and "./dev" in block.body for block in blocks(page))
    script(page)  # a listing without a file name is refused
    others = [
        path.name for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md") if page in path.read_text()
    ]
    assert others, f"neither README.md nor CONTRIBUTING.md leads to {page}"


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


@pytest.mark.parametrize(
    "page", [path for path in PAGES if path.name != "tasks.md"], ids=lambda path: path.name
)
def test_every_task_that_a_page_shows_is_one_with_these_flags(page: Path) -> None:
    for _, *words in task_lines(page):
        if words and words[0].islower() and words[0] != "python":
            Parser(contexts=tasks.namespace.to_contexts()).parse_argv(words)


def test_the_rules_of_the_operator_page_are_planned_and_declared(tmp_path: Path) -> None:
    files = listings("adding-an-operator.md")
    for folder in ("manifests", "requirements"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "kernels" / "normalize").mkdir(parents=True)
    shutil.copy(ROOT / "kernels" / "batch.py", tmp_path / "kernels")
    for name, text in files.items():
        if name.startswith("kernels/"):
            (tmp_path / name).write_text(text, encoding="utf-8")
    plan = plan_project(tmp_path, archs=["gfx908"], profile="core", toolchain=lambda _: FAKE_TOOLCHAIN)
    assert len(plan.jobs) == 8
    parameters = "const aotforge_tensor* input, double eps, const aotforge_tensor* out"
    assert (
        f"int aotforge_normalize({parameters}, void* stream);"
        in function_sources(tmp_path / "kernels")[HEADER]
    )
