"""Everything that verifies a family is in the digest; its kernels are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.errors import RulesError
from aotforge.verify import verifier_digest as tools
from aotforge.verify.verifier_digest import family_verifier_digest, verifier_digest, verifier_files
from tests.support.families import PROJECT

FILES = ["cases", "bounds", "call", "expectations", "mask_cases", "philox", "problems", "sequences"]
FILES += ["same_precision_reference", "reference"]


@pytest.fixture
def family(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT / "kernels" / "flash", tmp_path / "flash")
    return tmp_path / "flash"


def test_the_verifier_files_are_those_that_cases_import() -> None:
    wanted = {f"flash/{name}.py" for name in [*FILES, "__init__"]}
    assert {*verifier_files(PROJECT / "kernels" / "flash"), "flash/__init__.py"} == wanted
    assert set(verifier_files(PROJECT / "kernels" / "add")) <= {"add/cases.py", "add/__init__.py"}


@pytest.mark.parametrize("name", FILES)
def test_a_change_in_the_verifier_changes_the_digest(family: Path, name: str) -> None:
    before = (family_verifier_digest(family), verifier_digest(family.parent, ["flash"]))
    file = family / f"{name}.py"
    file.write_text(file.read_text() + "\n# changed\n")
    after = (family_verifier_digest(family), verifier_digest(family.parent, ["flash"]))
    assert before[0] != after[0] and before[1] != after[1]


@pytest.mark.parametrize("name", ["forward.py", "backward.py", "tiles.py", "rules.py", "forward_settings.py"])
def test_kernels_have_no_part(family: Path, name: str) -> None:
    before = family_verifier_digest(family)
    (family / name).write_text((family / name).read_text() + "\n# changed\n")
    assert family_verifier_digest(family) == before


def test_sources_and_numpy_have_a_part(family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (family_verifier_digest(family), verifier_digest(family.parent, ["flash"]))
    monkeypatch.setattr(tools, "version", lambda _: "another")
    assert verifier_digest(family.parent, ["flash"]) != before[1]
    monkeypatch.setattr(tools, "group_digest", lambda group: f"other {group}")
    assert family_verifier_digest(family) != before[0]


def test_cases_that_are_missing_or_broken(tmp_path: Path) -> None:
    assert verifier_files(tmp_path) == () and family_verifier_digest(tmp_path)
    (tmp_path / "cases.py").write_text("from . import (")
    with pytest.raises(RulesError, match=r"cases\.py:1: not valid Python"):
        verifier_files(tmp_path)


def test_files_in_folders_are_included(tmp_path: Path) -> None:
    texts = {
        "cases.py": "def cases(kernel, keys):\n    from .parts.sums import total\n    return total",
        "parts/__init__.py": "",
        "parts/sums.py": "from ..reference import one\nfrom . import more\nfrom .deep import y",
        "parts/more.py": "import numpy",
        "parts/deep/__init__.py": "from ...upper import y",
        "parts/unused.py": "",
        "reference.py": "one = 1",
        "upper.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    wanted = set(texts) - {"parts/unused.py"}
    assert set(verifier_files(tmp_path)) == {f"{tmp_path.name}/{name}" for name in wanted}


@pytest.mark.parametrize(
    "line",
    [
        "from kernels.shared import FACTOR",
        "import os, kernels.shared as one",
        "def f():\n    import torch",
        "from aotforge.plan import model",
        "import aotforge.devtools.cost as cost",
    ],
)
def test_imports_of_what_no_digest_covers_are_refused(tmp_path: Path, line: str) -> None:
    """A verdict would stay "passed" when the other file changes, and its release would be verified
    otherwise."""
    (tmp_path / "cases.py").write_text(
        "from .reference import one\nimport collections.abc\nimport numpy.typing\n"
    )
    (tmp_path / "reference.py").write_text(f"{line}\n")
    with pytest.raises(RulesError, match=f"{tmp_path.name}/reference.py imports (kernels|torch|aotforge)"):
        family_verifier_digest(tmp_path)


def test_data_files_of_a_family_have_a_part(family: Path) -> None:
    """`cases.py` may read them, whatever their names are."""
    before = family_verifier_digest(family)
    (family / "parts").mkdir()
    (family / "parts" / "expected.npy").write_bytes(b"1")
    made = family_verifier_digest(family)
    (family / "parts" / "expected.npy").write_bytes(b"2")
    assert len({before, made, family_verifier_digest(family)}) == 3
    (family / "NOTES.md").write_text("notes")
    (family / ".cases.py.swp").write_text("of an editor")
    (family / "cases.py~").write_text("the same")
    (family / "__pycache__").mkdir(exist_ok=True)
    (family / "__pycache__" / "cases.cpython-311.pyc").write_bytes(b"x")
    assert not {"flash/NOTES.md", "flash/.cases.py.swp", "flash/cases.py~"}.intersection(
        verifier_files(family)
    )
    assert not [name for name in verifier_files(family) if name.endswith(".pyc")]
