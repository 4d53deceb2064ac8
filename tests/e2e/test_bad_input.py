"""Mistakes on the command line: the right exit code, a message with the value, earlier results untouched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.checkouts import HOME, ROOT, copy_checkout, invoke


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("checkout"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("build", "--arch", "gfx980"), 2, ("gfx980", "gfx908")),
        (("build", "--arch", "gfx909"), 2, ("no kernels for gfx909", "gfx908")),
        (("plan", "--arch", "gfx908", "--profile", "quik"), 2, ("quik", "quick")),
        (("compile", "--job", "flash.attn_fw", "--arch", "gfx908"), 2, ("flash.attn_fw",)),
        (("images", "no/such/pack"), 4, ("no/such/pack", "a release folder")),
        (("verify", "--arch", "gfx908", "--jobs", "-1"), 2, ("--jobs -1",)),
        (("release.publish", "--folder", "a/folder"), 2, ("release.publish needs --to",)),
    ],
)
def test_what_does_not_exist(
    checkout: Path, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    done = invoke(checkout, *arguments, check=False)
    assert done.returncode == code, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_json_errors_are_for_programs(checkout: Path) -> None:
    done = invoke(checkout, "build", "--arch", "gfx000", "--json", check=False)
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (2, "unknown-name")
    assert "gfx000" in error["what"]


def test_a_missing_compiler_is_reported_with_its_package(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    done = invoke(checkout, "build", "--arch", "gfx908", env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 3
    assert "apt-get install" in done.stderr


def test_a_read_only_output_is_refused() -> None:
    # /proc takes no folders, not even from root
    cache = str(HOME / "cache")  # what is compiled already need not be compiled for this
    words = ("build", "--arch", "gfx908", "--profile", "smoke", "--output", "/proc/aotforge", "--cache")
    done = invoke(ROOT, *words, cache, check=False)
    assert done.returncode == 3, done.stderr
    assert "/proc/aotforge" in done.stderr


def test_dev_in_an_unwritable_folder_suggests_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [str(ROOT / "dev"), "plan"],
        env=os.environ | {"AOTFORGE_HOME": str(tmp_path / "file" / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "AOTFORGE_HOME=" in done.stderr
