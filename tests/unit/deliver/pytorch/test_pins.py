"""The lines for PyTorch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.conformance.candidate import newest_release
from aotforge.deliver.page import make_site
from aotforge.deliver.pytorch.pins import _commit, pins_text, prefix_text
from aotforge.errors import ReleaseError
from aotforge.release.release import Release
from tests.support.publishing import make_release

ROOT = Path(__file__).parents[4]


@pytest.fixture
def opened(tmp_path: Path) -> Release:
    folder = make_release(tmp_path / "r1", rocm=("10.0", "6.4"), packs=("amd-gfx908", "amd-gfx11xx"))
    return Release.open(folder)


def listed(folder: Path) -> Path:
    """A folder with a list of files."""
    folder.mkdir(exist_ok=True)
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  MANIFEST.json\n")
    return folder


def values(text: str, name: str) -> list[str]:
    """A variable's list, read as CMake would."""
    (body,) = re.findall(rf"set\({name}\b([^)]*)\)", re.sub(r"#.*", "", text))
    return re.findall(r'"([^"]*)"', body)


def test_lists_run_in_step(opened: Release) -> None:
    sums = {name.partition("-r1-")[2]: digest for name, digest in opened.sums.items()}
    text = pins_text(opened, base_url="https://example.org/a", commit="c" * 40, environment_url=False)
    assert values(text, "__AOTRITON_VER") == ["0.11.2b-r1"]
    assert values(text, "__AOTRITON_ROCM_LIST") == ["rocm6.4", "rocm10.0"]
    assert values(text, "__AOTRITON_MANYLINUX_LIST") == ["manylinux_2_28"] * 2
    assert values(text, "__AOTRITON_SHA256_LIST") == [
        sums[f"manylinux_2_28_x86_64-rocm{rocm}-shared.tar.gz"] for rocm in ("6.4", "10.0")
    ]
    assert values(text, "__AOTRITON_IMAGE_LIST") == ["amd-gfx11xx", "amd-gfx908"]
    assert values(text, "__AOTRITON_IMAGE_SHA256_LIST") == [
        sums[f"images-{pack}.tar.gz"] for pack in ("amd-gfx11xx", "amd-gfx908")
    ]
    assert values(text, "__AOTRITON_CI_COMMIT") == ["c" * 40]
    assert values(text, "__AOTRITON_BASE_URL") == ["https://example.org/a/"]
    later = pins_text(opened, base_url="https://example.org/a/", commit="", environment_url=True)
    assert "__AOTRITON_BASE_URL" not in later and "__AOTRITON_CI_COMMIT" not in later
    assert "PYTORCH_AOTRITON_BASE_URL=https://example.org/a/" in later


@pytest.mark.parametrize(
    ("commit", "shown"),
    [
        ("c" * 40, "c" * 40),
        ('c")\nexecute_process(COMMAND touch x)\nset(y "', ""),
        ("${x}", ""),
        ("", ""),
        (7, ""),
    ],
)
def test_commands_of_a_release_do_not_reach_the_build(tmp_path: Path, commit: object, shown: str) -> None:
    (tmp_path / "release.json").write_text(json.dumps({"origin": {"commit": commit}}))
    assert _commit(tmp_path) == shown


def test_the_way_without_an_edit(opened: Release) -> None:
    text = prefix_text(opened.folder, "s3://bucket/aot")
    (install,) = (line for line in text.splitlines() if "install" in line and line.startswith("./dev"))
    words = install.split()
    prefix = words[words.index("--prefix") + 1]
    assert words[words.index("--version") + 1] == "0.11.2b-r1" and "--from s3://bucket/aot " in install
    assert f"export AOTRITON_INSTALLED_PREFIX={prefix} " in text
    assert "gfx11xx, gfx908" in text


def test_the_newest_release_is_a_finished_one(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="holds no release"):
        newest_release(tmp_path / "finished", tmp_path)
    for at, name in enumerate(("finished/a", "finished/b", "c")):
        (tmp_path / name).mkdir(parents=True)
        os.utime(
            listed(tmp_path / name) / "SHA256SUMS",
            (1000 - at, 1000 - at if "c" not in name else 9000),
        )
    assert newest_release(tmp_path / "finished", tmp_path) == tmp_path / "finished/a"
    (tmp_path / "finished/a/SHA256SUMS").unlink()
    (tmp_path / "finished/b/SHA256SUMS").unlink()
    assert newest_release(tmp_path / "finished", tmp_path) == tmp_path / "c"


@pytest.mark.parametrize("kind", ["images", "manylinux"])
def test_a_release_that_is_not_for_pytorch(opened: Release, kind: str) -> None:
    sums = {name: digest for name, digest in opened.sums.items() if kind not in name}
    with pytest.raises(ReleaseError, match="is not a release for PyTorch"):
        pins_text(replace(opened, sums=sums), base_url="", commit="", environment_url=True)


def test_a_release_in_progress_is_not_a_release_yet(tmp_path: Path) -> None:
    """A staged folder, newer than all others, of a release whose checks run or that was killed."""
    staged = tmp_path / "finished" / ".0.11.2b-r1.staged-x"
    staged.mkdir(parents=True)
    for name in ("SHA256SUMS", "MANIFEST.json", "release.json"):
        (staged / name).write_text("{}")
    looks: tuple[Callable[[], object], ...] = (
        lambda: newest_release(tmp_path / "finished", tmp_path),
        lambda: newest_release(tmp_path / "finished"),
        lambda: make_site(ROOT, tmp_path / "finished", base_url="x", yanked={}),
    )
    for look in looks:
        with pytest.raises(ReleaseError, match=r"holds no (finished )?release"):
            look()
    done = listed(tmp_path / "finished" / "0.11.2b-r1")
    os.utime(done / "SHA256SUMS", (1, 1))
    assert newest_release(tmp_path / "finished", tmp_path) == done
