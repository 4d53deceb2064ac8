"""`./dev demo` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, copy_checkout, invoke, shrink_smoke

pytestmark = pytest.mark.compiler

CACHE = {"AOTFORGE_CACHE": str(HOME / "cache")}  # images and the interpreter are compiled once for all tests


@pytest.mark.parametrize("windows", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_attention_by_a_release_on_a_virtual_mi100(windows: bool, tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout, windows=windows)
    shown = json.loads(
        invoke(checkout, "demo", "--arch", "gfx908", "--profile", "smoke", "--json", env=CACHE).stdout
    )
    assert shown["passed"] is True
    masks = [(result["arch"], result["problem"]["window_right"]) for result in shown["results"]]
    assert masks == [("gfx908", None), ("gfx908", 0)][: 1 + windows]
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
