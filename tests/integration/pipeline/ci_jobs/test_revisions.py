"""The effect of a change by git and by the plans of two revisions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.errors import ShardError
from aotforge.pipeline.ci_jobs.changes import affected_since, changed_paths
from tests.support.families import PROJECT

ARCHS = ("gfx908", "gfx90a")
BOTH = {"amd-gfx908", "amd-gfx90a"}
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(root: Path, *arguments: str) -> None:
    named = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "core.hooksPath=/dev/null",
    )
    subprocess.run(["git", *named, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    for part in ("kernels", "manifests", "requirements"):
        shutil.copytree(PROJECT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "README.md").write_text("read me\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def root(committed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "checkout"))


def packs_of(root: Path, revision: str = "HEAD") -> set[str]:
    return set(affected_since(root, revision, ARCHS, "smoke").packs)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_nothing_changed_affects_nothing(root: Path) -> None:
    found = affected_since(root, "HEAD", ARCHS, "smoke")
    assert (found.packs, found.runtime, found.reasons) == (frozenset(), False, ())


def test_paths_are_those_that_differ_staged_new_renamed_or_not(root: Path) -> None:
    edit(root / "README.md", "read", "raed")
    (root / "new file ü.txt").write_text("new")
    git(root, "mv", "manifests/release.yaml", "manifests/moved.yaml")
    assert changed_paths(root, "HEAD") == {"README.md", "new file ü.txt", "manifests/release.yaml", "manifests/moved.yaml"}  # fmt: skip


def test_a_comment_in_a_kernel_affects_no_pack(root: Path) -> None:
    kernel = root / "kernels" / "add" / "add.py"
    kernel.write_text(kernel.read_text() + "\n# a comment\n")
    assert packs_of(root) == set()


def test_a_kernels_code_affects_every_pack(root: Path) -> None:
    edit(root / "kernels" / "add" / "add.py", "(left + right)", "(left + right + 0)")
    assert packs_of(root) == BOTH


def test_a_familys_cases_affect_every_pack_that_has_it(root: Path) -> None:
    cases = root / "kernels" / "add" / "cases.py"
    cases.write_text(cases.read_text() + "\nMORE = 1\n")
    assert packs_of(root) == BOTH


def test_the_properties_of_an_arch_affect_its_own_pack(root: Path) -> None:
    text = (root / "manifests" / "architectures.yaml").read_text()
    at = text.index("gfx90a:")
    changed = text[:at] + text[at:].replace("max_workgroups_per_cu: 16", "max_workgroups_per_cu: 15", 1)
    (root / "manifests" / "architectures.yaml").write_text(changed)
    assert packs_of(root) == {"amd-gfx90a"}


def test_a_profile_that_is_not_built_affects_no_pack(root: Path) -> None:
    edit(root / "manifests" / "profiles.yaml", "width: [32, 64]\n", "width: [64]\n")
    assert packs_of(root) == set()


def test_rules_that_did_not_load_before_affect_every_pack(root: Path) -> None:
    rules = root / "kernels" / "add" / "rules.py"
    good = rules.read_text()
    rules.write_text("oops(")
    git(root, "commit", "-qam", "broken")
    rules.write_text(good)
    assert packs_of(root) == BOTH


@pytest.mark.parametrize("revision", ["0" * 40, "no-such-branch", "--help", ""])
def test_a_revision_that_git_does_not_know_affects_everything(root: Path, revision: str) -> None:
    found = affected_since(root, revision, ARCHS, "smoke")
    assert (set(found.packs), found.runtime) == (BOTH, True)
    with pytest.raises(ShardError):
        changed_paths(root, revision)


def test_no_checkout_at_all_affects_everything(root: Path) -> None:
    shutil.rmtree(root / ".git")
    assert packs_of(root) == BOTH
