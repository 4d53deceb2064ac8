"""docs/kernel-family.md: every listing and every command of the page, in order, in a copy of the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, ROOT, copy_checkout

pytestmark = pytest.mark.compiler

PAGE = ROOT / "docs" / "kernel-family.md"
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


def test_the_page_makes_a_family_that_a_program_calls(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    # the environment that runs the tests, and its cache
    (checkout / "dev").write_text(f'#!/bin/sh\nexec {sys.executable} tasks.py "$@"\n')
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AOTFORGE_", "AOTRITON_"))}
    text = script(PAGE.read_text(encoding="utf-8"))
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=checkout,
        env=environment | {"AOTFORGE_HOME": str(HOME)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "8 images for amd-gfx908, profile core-only" in done.stdout
    assert re.search(r"9 images of amd-gfx908.*9 passed", done.stdout)
    assert re.search(r"8 images of amd-gfx908.*8 passed", done.stdout)
    printed = r"printed     norm\.rms_norm:gfx908:.*\n    rows=3, columns=8, .*: program \(0, 0, 0\), wave 0, lane 0: .* scale: [\d.]+"
    assert re.search(printed, done.stdout)
    assert re.search(r"approximate norm\.rms_norm: .*v_sqrt_f32.* \(last place\)", done.stdout)
    assert "estimated cycles, launch on all units" in done.stdout
    assert "rows=0, columns=64, unaligned" in done.stdout
    assert re.search(r"out +passed", done.stdout)
    assert "development build: amd-gfx908 holds profile core-only" in done.stdout
    assert done.stdout.splitlines()[-1] == "largest error of the first row: below 1e-5"


def test_every_listing_is_a_file_of_the_page() -> None:
    blocks = list(_BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert [block["file"] for block in blocks if block["file"]] == [
        "kernels/norm/rms_norm.py",
        "kernels/norm/rules.py",
        "kernels/norm/cases.py",
        "kernels/codes/codes.py",
        "kernels/codes/rules.py",
        "kernels/codes/cases.py",
        "build/norm/client.cpp",
    ]
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "docs/kernel-family.md" in (ROOT / page).read_text(encoding="utf-8")
