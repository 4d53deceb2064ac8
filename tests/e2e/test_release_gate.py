"""A kernel that computes something else is not released, except as a marked development build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checkouts import HOME, build_json, copy_checkout, invoke, shrink_smoke

pytestmark = pytest.mark.compiler
# what is compiled already need not be compiled for this
CACHE = ("--cache", str(HOME / "cache"))
RELEASE = "0.11.2b-r1"


def manifest(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / RELEASE / "MANIFEST.json").read_bytes())
    return found


def test_a_wrong_kernel_stops_the_release(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout)
    wanted = ("--profile", "smoke", "--output", str(tmp_path / "out"), *CACHE)
    good = build_json(checkout, *wanted)
    assert good["verified"] and not any("not verified" in reason for reason in good["development"])
    released = manifest(tmp_path / "out")
    assert released["verified"]
    kernel = checkout / "kernels" / "add" / "add.py"
    right = kernel.read_text()
    kernel.write_text(right.replace("(left + right)", "((left + right) * 1.01)"))
    done = invoke(checkout, "build", "--arch", "gfx908", *wanted, check=False)
    assert done.returncode == 1, done.stderr
    assert "add.add:gfx908:dtype=fp16:0:" in done.stderr
    assert " elements, aligned: out is wrong in " in done.stderr
    assert "flash" not in done.stderr
    assert "Next step: " in done.stderr and "Traceback" not in done.stderr
    assert manifest(tmp_path / "out") == released
    # a development build may have it, elsewhere, and is marked
    refused = invoke(checkout, "build", "--arch", "gfx908", *wanted, "--no-verify", check=False)
    assert refused.returncode == 3, refused.stderr
    assert "verified" in refused.stderr and "--output" in refused.stderr
    assert manifest(tmp_path / "out") == released
    elsewhere = ("--profile", "smoke", "--output", str(tmp_path / "other"), *CACHE)
    rough = build_json(checkout, *elsewhere, "--no-verify")
    reason = (
        f"{rough['images']} of {rough['images']} images of amd-gfx908 are not verified: nothing executed them"
    )
    assert reason in rough["development"] and not rough["verified"]
    document = manifest(tmp_path / "other")
    assert not document["verified"] and reason in document["development"]
    assert {row["verdict"] for row in document["packs"][0]["images"]} == {None}
    # once the kernel is right, a verified release takes its place
    kernel.write_text(right)
    repaired = build_json(checkout, *elsewhere)
    assert (repaired["fresh"], repaired["verified"]) == (True, True)
    again = build_json(checkout, *elsewhere, "--no-verify")
    assert (again["fresh"], again["verified"]) == (False, True)
