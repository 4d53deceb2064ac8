"""`./dev demo` and `./dev python -m vgpu hip` as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, copy_checkout, invoke, shrink_smoke

pytestmark = pytest.mark.compiler

CACHE = {"AOTFORGE_CACHE": str(HOME / "cache")}  # images and the interpreter are compiled once for all tests


def test_attention_by_a_release_on_a_virtual_mi100(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout, windows=True)
    shown = json.loads(
        invoke(checkout, "demo", "--arch", "gfx908", "--profile", "smoke", "--json", env=CACHE).stdout
    )
    assert shown["passed"] is True
    assert [(r["arch"], r["problem"]["window_right"]) for r in shown["results"]] == [
        ("gfx908", None),
        ("gfx908", 0),
    ]
    for result in shown["results"]:
        assert [o["name"] for o in result["outputs"]] == ["out", "lse", "dq", "dk", "dv"]
        assert all(0 < o["of_bound"] <= 1 for o in result["outputs"])
        assert [served[0] for served in result["served"]] == [
            "attn_fwd",
            "bwd_preprocess",
            "bwd_dk_dv",
            "bwd_dq",
        ]
    release = checkout / "releases" / "dist" / "smoke" / shown["release"]
    assert all((release / name).is_file() for name in shown["tarballs"])
    # the release that is there, as text; then one with another file than its sums name
    # the profile need not be named: the release's own images decide what is called
    again = invoke(checkout, "demo", "--release", str(release), "--quiet", env=CACHE)
    assert "every output is within the bounds of its rounding" in again.stdout and again.stderr == ""
    asm = next(release.glob("*-asm-*"))
    asm.write_bytes(b"")
    spoiled = invoke(
        checkout, "demo", "--profile", "smoke", "--release", str(release), "--json", env=CACHE, check=False
    )
    assert spoiled.returncode == 4
    assert "not the file that SHA256SUMS names" in json.loads(spoiled.stdout)["error"]["what"]
    missing = invoke(
        checkout, "demo", "--profile", "smoke", "--release", str(tmp_path), "--json", env=CACHE, check=False
    )
    assert (missing.returncode, json.loads(missing.stdout)["error"]["kind"]) == (4, "release")


def virtual_hip(checkout: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vgpu", "hip", *flags],
        cwd=checkout,
        env=os.environ | CACHE,
        capture_output=True,
        text=True,
        check=False,
    )


def test_any_program_runs_on_virtual_devices(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    given = tmp_path / "it's a text.tar.gz"
    given.touch()
    lines = virtual_hip(checkout, "--arch", "gfx1100,gfx942", "--asm", str(given)).stdout
    program = (
        "import ctypes, os; n = ctypes.c_int(); h = ctypes.CDLL('libamdhip64.so.7');"
        "h.hipGetDeviceCount(ctypes.byref(n)); print(n.value, os.environ['AOTFORGE_ASM'])"
    )
    done = subprocess.run(
        ["sh", "-c", f"{lines}\n{shlex.quote(sys.executable)} -c {shlex.quote(program)}"],
        env={k: v for k, v in os.environ.items() if not k.startswith("AOTFORGE_")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"2 {given}\n"
    older = virtual_hip(checkout, "--release", "5").stdout
    folder = re.search(r"LD_LIBRARY_PATH='?([^'\":]+)", older)
    assert folder and (Path(folder[1].rstrip('"$')) / "libamdhip64.so.5").is_file()
    assert virtual_hip(checkout, "--release", "4").returncode == 3
