"""docs/kernel-family.md, adding-an-operator.md, packaging.md: every listing and command of a page, in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tasks  # noqa: F401 - registers the tasks
from aotforge.cli.flags import parse_flags
from aotforge.cli.program import find_task
from aotforge.library.operator_functions import HEADER, function_sources
from aotforge.plan.planner import plan_project
from tests.e2e.checkouts import HOME, ROOT, copy_checkout
from tests.support.families import FAKE_TOOLCHAIN

pytestmark = pytest.mark.compiler

PAGE, OPERATOR_PAGE, PACKAGING_PAGE = (
    ROOT / "docs" / f"{name}.md" for name in ("kernel-family", "adding-an-operator", "packaging")
)
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL
)


def script(page: str) -> str:
    """Listings are written to the files that they name, and commands run, in the order of the page."""
    parts = ["set -euo pipefail"]
    for block in _BLOCK.finditer(page):
        if block["file"]:
            parts.append(f"mkdir -p $(dirname {block['file']})")
            parts.append(f"cat > {block['file']} <<'END_OF_LISTING'\n{block['body']}END_OF_LISTING")
        else:
            assert block["kind"] == "sh", block["kind"]
            parts.append(block["body"])
    return "\n".join(parts)


def listings(page: str) -> dict[str, str]:
    """Texts of the page's listings by file."""
    return {block["file"]: block["body"] for block in _BLOCK.finditer(page) if block["file"]}


def execute(page: str, folder: Path) -> str:
    """What the commands of a page print in a checkout, with the cache and in the environment that run the tests."""
    checkout = copy_checkout(folder / "checkout")
    (checkout / "dev").write_text(f'#!/bin/sh\nexec {sys.executable} tasks.py "$@"\n')
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_"))}
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=checkout,
        env=environment | {"AOTFORGE_HOME": str(HOME)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_the_page_makes_a_family_that_a_program_calls(tmp_path: Path) -> None:
    printed = execute(PAGE.read_text(encoding="utf-8"), tmp_path)
    assert "8 images for amd-gfx908, profile core-only" in printed
    assert re.search(r"9 images of amd-gfx908.*9 passed", printed)
    assert re.search(r"8 images of amd-gfx908.*8 passed", printed)
    text = r"printed     norm\.rms_norm:gfx908:.*\n    rows=3, columns=8, .*: program \(0, 0, 0\), wave 0, lane 0: .* scale: [\d.]+"
    assert re.search(text, printed)
    assert re.search(r"approximate norm\.rms_norm: .*v_sqrt_f32.* \(last place\)", printed)
    assert "estimated cycles, launch on all units" in printed
    assert "rows=0, columns=64, unaligned" in printed
    assert re.search(r"out +passed", printed)
    assert "development build: amd-gfx908 holds profile core-only" in printed
    assert printed.splitlines()[-1] == "largest error of the first row: below 1e-5"


@pytest.mark.slow
def test_the_page_adds_an_operator_that_a_c_program_calls(tmp_path: Path) -> None:
    page = OPERATOR_PAGE.read_text(encoding="utf-8")
    printed = execute(page, tmp_path)
    assert "8 images for amd-gfx908, profile core-only" in printed
    assert re.search(r"24 images of .*: 24 passed", printed)
    shown = page[page.index("It prints:") :].split("\n\n")[1]
    assert printed.endswith("".join(f"{line.strip()}\n" for line in shown.splitlines()))


def test_the_rules_of_the_operator_page_are_planned_and_declared(tmp_path: Path) -> None:
    files = listings(OPERATOR_PAGE.read_text(encoding="utf-8"))
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


def test_every_listing_is_a_file_of_the_page() -> None:
    assert list(listings(PAGE.read_text(encoding="utf-8"))) == [
        "kernels/norm/rms_norm.py",
        "kernels/norm/rules.py",
        "kernels/norm/cases.py",
        "kernels/codes/codes.py",
        "kernels/codes/rules.py",
        "kernels/codes/cases.py",
        "build/norm/client.cpp",
    ]
    assert list(listings(OPERATOR_PAGE.read_text(encoding="utf-8"))) == [
        "kernels/normalize/normalize.py",
        "kernels/normalize/rules.py",
        "kernels/normalize/cases.py",
        "build/normalize/main.c",
        "build/normalize/CMakeLists.txt",
    ]
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "docs/kernel-family.md" in (ROOT / page).read_text(encoding="utf-8")
    assert "docs/adding-an-operator.md" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.slow  # three builds and the check of one
def test_a_packager_gets_a_prefix(tmp_path: Path) -> None:
    execute(PACKAGING_PAGE.read_text(encoding="utf-8"), tmp_path)
    assert (tmp_path / "checkout/package/opt/aotriton/lib/libaotriton_v2.so.0.11.2").is_file()


def test_every_command_for_packagers_is_a_valid_one() -> None:
    lines = "\n".join(block["body"] for block in _BLOCK.finditer(PACKAGING_PAGE.read_text(encoding="utf-8")))
    words = [shlex.split(line) for line in lines.splitlines() if line.startswith("./dev ")]
    assert len(words) >= 5
    for _, name, *flags in words:
        parse_flags(find_task(name), flags)
