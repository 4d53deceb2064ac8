"""An arch is a row: a variant of a known generation touches one file and no code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.base.architectures import Architectures, load_architectures
from aotforge.base.manifest_reader import load
from aotforge.errors import ManifestError
from tests.support.families import PROJECT

ROW = """\
  gfx1159:
    extends: gfx1150
    pack: amd-gfx1159
    device: {product: AMD Radeon 999M, compute_units: 4, memory_gib: 4, clock_mhz: 2000, memory_gb_per_s: 100}
"""
PROGRAM = """
import json, struct
from dataclasses import asdict
from pathlib import Path
from aotforge.base.architectures import find_arch, load_architectures
from aotforge.devtools.cost.rates import model_of
from vgpu.code_object import CodeObjectError
from aotforge.plan.checkout import Checkout
from aotforge.plan.planner import plan_project
from vgpu.emulator.targets import emulated_target

plan = plan_project(Checkout(Path.cwd()), archs=["gfx1159"], profile="quick")
relative = plan_project(Checkout(Path.cwd()), archs=["gfx1150"], profile="quick")
jobs = {job.label.replace("gfx1159", "gfx1150"): job for job in plan.jobs}
fields = ("cures", "constants", "options", "signature", "aliases")
print(json.dumps({
    "product": find_arch("Radeon 999M", load_architectures()).arch,
    "pack": plan.pack,
    "jobs": len(plan.jobs),
    "same": all(
        str(getattr(jobs[job.label], name)) == str(getattr(job, name))
        for job in relative.jobs
        for name in fields
    ),
    "other keys": not {job.key for job in plan.jobs} & {job.key for job in relative.jobs},
    "cures": sorted({cure for job in plan.jobs for cure in job.cures}),
    "lanes": emulated_target("gfx1159").lanes,
    "cost": [model_of("gfx1159").units, model_of("gfx1159").clock_mhz, model_of("gfx1159").matrix_latency],
}))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the sources that has one row more."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("aotforge", "vgpu", "ttcpu", "kernels", "manifests", "requirements"):
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, tmp_path / name, ignore=ignored, symlinks=True)
    manifest = tmp_path / "manifests" / "architectures.yaml"
    manifest.write_text(manifest.read_text().replace("compile_aliases:\n", f"{ROW}compile_aliases:\n", 1))
    return tmp_path


def test_a_variant_of_a_generation_is_planned_loaded_and_estimated(checkout: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made.pop("jobs") > 10
    assert made == {
        "product": "gfx1159",
        "pack": "amd-gfx1159",
        "same": True,
        "other keys": True,
        "cures": ["dual-issue-after-dpp", "dual-issue-parity"],
        "lanes": 32,
        "cost": [4, 2000, 4],
    }


def test_a_row_takes_the_fields_of_another() -> None:
    known = load_architectures()
    gfx950, gfx942 = known.amd["gfx950"], known.amd["gfx942"]
    assert known.lineage("gfx950") == ("gfx950", "gfx942", "gfx90a")
    assert gfx950.vgprs == gfx942.vgprs and gfx950.shared_bytes > gfx942.shared_bytes
    assert gfx950.cost and gfx942.cost and gfx950.cost.vector == gfx942.cost.vector
    assert not set(gfx950.products) & set(gfx942.products)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("extends: gfx90a", "extends: gfx950", "gfx942 extends gfx950, which is not a row above it"),
        (
            "    device: {product: AMD Radeon RX 7800 XT, compute_units: 30, memory_gib: 16}\n",
            "",
            "amd.gfx1101.device: required key is missing",
        ),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "architectures.yaml"
    path.write_text((PROJECT / "manifests" / "architectures.yaml").read_text().replace(old, new, 1))
    with pytest.raises(ManifestError, match=re.escape(message)):
        load(path, Architectures)
