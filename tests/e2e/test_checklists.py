"""The checklists of CONTRIBUTING.md, followed: the files that they name are all that changes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, ROOT, copy_checkout, invoke, shrink_smoke
from tests.e2e.pages import listings

LEVEL, LIKE = "0.15b", "0.14.2b"
PINS = ("commit: c11b5b88, evidence: pin}", "commit: 7a6963a7, evidence: pin}")
"""Of PyTorch's main, whose calls a level of the same interface serves as well."""


def checklist(title: str) -> set[str]:
    """Files that a section's numbered list names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d\. (.+(?:\n   .+)*)", section, re.MULTILINE)
    return {
        name for step in steps for name in re.findall(r"`([\w./-]+\.(?:py|md|yaml|txt|tsv|cpp|h))`", step)
    }


def add_level(checkout: Path) -> set[str]:
    """A level with the interface of another; the files that were changed."""

    def edit(name: str, old: str, new: str) -> str:
        path = checkout / name
        assert old in path.read_text(), f"{name}: {old}"
        path.write_text(path.read_text().replace(old, new, 1))
        return name

    interface = (checkout / "compat" / "api_levels.yaml").read_text()
    feature = interface[interface.index('  "0.14":') : interface.index("\nerrors:")]
    same = feature.replace('"0.14"', '"0.15"').replace("[0, 14, 2]", "[0, 15, 0]")
    names = checkout / "compat" / "api_names"
    shutil.copy(names / f"{LIKE}.tsv", names / f"{LEVEL}.tsv")
    also = f"\n  - {{relation: compiles, releases: [{LEVEL}], evidence: compiles}}"
    row = f'- {{api_level: {LEVEL}, revision: 1, other_names: [], rocm: ["7.0"]}}\n'
    return {
        edit("runtime/api_levels.txt", f"{LIKE}\n", f"{LIKE}\n{LEVEL}\n"),
        edit("manifests/release.yaml", "# Time of every member", f"{row}# Time of every member"),
        edit("compat/api_levels.yaml", "\nerrors:", f"\n{same}\nerrors:"),
        "compat/api_names/LEVEL.tsv",
        *(edit("compat/pytorch.yaml", pin, pin + also) for pin in PINS),
    }


@pytest.mark.parametrize("title", ["Add an arch", "Add a kernel family", "Add an API level"])
def test_every_file_of_a_checklist_exists(title: str) -> None:
    named = checklist(title)
    assert len(named) > 2
    for name in named:
        pattern = (
            name.replace("FAMILY/KERNEL.py", "add/add.py").replace("FAMILY", "add").replace("LEVEL", LIKE)
        )
        assert (ROOT / pattern).is_file(), name


def test_a_family_is_the_files_of_its_checklist() -> None:
    """As the tutorial makes one, whose listings another test executes."""
    made = [name for name in listings("kernel-family.md") if name.startswith("kernels/norm/")]
    named = {name.rpartition("/")[2] for name in checklist("Add a kernel family")}
    assert len(made) > 2
    assert {name.rpartition("/")[2] for name in made} - {"rms_norm.py"} <= named  # that is KERNEL.py


@pytest.mark.slow  # a library, and the checks of a release
@pytest.mark.compiler
def test_an_api_level_is_a_few_lines(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    changed = add_level(checkout)
    assert changed <= checklist("Add an API level")
    shrink_smoke(checkout)
    words = ("release", "--version", LEVEL, "--arch", "gfx908", "--profile", "smoke", "--development")
    flags = ("--unsigned", "--no-windows", "--executor", "local", "--json")
    done = invoke(checkout, *words, *flags, env={"AOTFORGE_CACHE": str(HOME / "cache")})
    report = json.loads(done.stdout)
    assert report["release"] == f"{LEVEL}-r1" and report["checks"]["failed"] == 0
    assert report["checks"]["passed"] > 40
