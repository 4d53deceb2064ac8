"""What a change can affect, by paths and fingerprints; whatever is not known affects everything."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.base.source_groups import EFFECTS
from aotforge.pipeline.ci_jobs.changes import affected, effect
from tests.support.families import PROJECT

NOW = {"amd-gfx908": "1", "amd-gfx90a": "2"}
CHECKED = ["docs/ci.md", "README.md", "tests/unit/x.py", "benchmarks/x.py", "requirements/test.txt", "runtime/tests/x.cpp"]  # fmt: skip
CHECKED += ["cmake/images.cmake", "CMakeLists.txt"]


@pytest.mark.parametrize("path", CHECKED)
def test_what_enters_no_output_affects_nothing(path: str) -> None:
    found = affected([path], NOW, NOW)
    assert (found.packs, found.runtime) == (frozenset(), False)


@pytest.mark.parametrize(
    "path",
    ["aotforge/pack/writer.py", "aotforge/release/NOTES.md", "requirements/build.txt", "manifests/ci.yaml", "manifests/release.yaml", "ci/ci.yml",
     "LICENSE", "dev", "pyproject.toml", "docker/rocm/Dockerfile", ".github/workflows/ci.yml", "aotforge/cli/build.py", "something/new", "kernels"],
)  # fmt: skip
def test_what_is_not_known_affects_everything(path: str) -> None:
    found = affected([*CHECKED, path], NOW, NOW)
    assert (found.packs, found.runtime) == (frozenset(NOW), True)
    assert path in found.reasons[0]


def test_kernels_affect_the_packs_whose_fingerprint_changes() -> None:
    found = affected(["kernels/flash/rules.py"], {**NOW, "amd-gfx90a": "other"}, NOW)
    assert (found.packs, found.runtime) == (frozenset({"amd-gfx90a"}), True)
    unchanged = affected(["kernels/flash/SETTINGS.md", "manifests/profiles.yaml"], NOW, NOW)
    assert (unchanged.packs, unchanged.runtime) == (frozenset(), False)


def test_a_pack_that_was_not_there_before_is_affected() -> None:
    assert affected(["kernels/add/add.py"], {"amd-gfx908": "1"}, NOW).packs == {"amd-gfx90a"}


def test_plans_that_cannot_be_compared_affect_everything() -> None:
    found = affected(["kernels/add/add.py"], None, NOW)
    assert (found.packs, found.runtime) == (frozenset(NOW), True)


@pytest.mark.parametrize("path", ["runtime/src/pack.cpp", "runtime/README.md", "manifests/runtime.yaml"])
def test_the_librarys_sources_affect_the_library(path: str) -> None:
    found = affected([path], NOW, NOW)
    assert (found.packs, found.runtime) == (frozenset(), True)


@given(
    st.lists(st.sampled_from([*CHECKED, "kernels/a/rules.py", "runtime/src/a.cpp", "other"])),
    st.sampled_from(CHECKED),
)
def test_a_larger_change_never_affects_less(paths: list[str], more: str) -> None:
    before = {**NOW, "amd-gfx908": "old"}
    small, large = affected(paths, before, NOW), affected([*paths, more, "runtime/src/b.cpp"], before, NOW)
    assert small.packs <= large.packs and small.runtime <= large.runtime


@given(st.text(alphabet="abc./-_", min_size=1))
def test_paths_outside_the_rules_folders_affect_everything(path: str) -> None:
    if not path.endswith(".md"):
        assert effect(path) == "everything"


def test_every_rule_fits_something_that_is_there() -> None:
    folders = [path for path in PROJECT.iterdir() if path.name not in {".git", ".aotforge"}]
    files = [found for path in folders for found in (path, *path.rglob("*")) if found.is_file()]
    listed = [str(path.relative_to(PROJECT)) for path in files]
    first = {
        path: next((pattern for pattern, _ in EFFECTS if fnmatchcase(path, pattern)), "") for path in listed
    }
    assert {pattern for pattern, _ in EFFECTS} <= set(first.values())


def test_no_document_is_an_input_of_the_library() -> None:
    # the rule for documents follows the library's, whose digest covers every file in runtime/
    assert effect("runtime/docs.md") == "runtime"
    assert effect("aotforge/x.md") == "everything"
