"""A matrix of two archs with shards, run job by job as CI would, gives the tarballs of one undivided build, bit for bit."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.formats.archive import sha256_file
from tests.e2e.checkouts import HOME, copy_checkout, invoke, shrink_smoke, tarballs

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(shutil.which("git") is None, reason="needs git"),
    pytest.mark.skipif(
        not list(HOME.glob("venv-*/bin/python")),
        reason="no environment made by ./dev: jobs would install one each",
    ),
]
SELECTION = ("--arch", "gfx908,gfx90a", "--profile", "smoke")
CACHE = ("--cache", str(HOME / "cache"))
RELEASE = "0.11.2b-r1"


def commit(checkout: Path) -> None:
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
    for arguments in (["init", "-q"], ["add", "-A"], [*named, "commit", "-qm", "all"]):
        subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True)


def test_a_matrix_of_two_archs_gives_the_undivided_builds_tarballs(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    shrink_smoke(checkout)
    commit(checkout)
    work = tmp_path / "work"
    # jobs run ./dev, whose environment is made once
    shared = {"AOTFORGE_HOME": str(HOME)}

    def run(job: str, *more: str) -> str:
        flags = ("--shards", "2", "--executor", "local", "--folder", str(work), *SELECTION, *CACHE, *more)
        return invoke(checkout, "ci.run", "--job", job, *flags, env=shared).stdout

    matrix = json.loads(invoke(checkout, "ci.matrix", "--shards", "2", *SELECTION).stdout)
    names = [job["name"] for job in matrix["jobs"] if job["kind"] in {"runtime", "images"}]
    names.remove("runtime-windows")  # not part of the release
    assert len(names) == 5
    assert f"### {names[0]}" in run(names[0])
    # the others first, because the release needs them; that one is not run again
    output = run("release-smoke", "--needs")
    assert output.count("\n-- ") + output.startswith("-- ") == len(names)
    assert f"-- {names[0]}:" not in output

    undivided = json.loads(
        invoke(
            checkout, "build", *SELECTION, *CACHE, "--json", "--output", str(tmp_path / "undivided")
        ).stdout
    )
    passed = "different images in amd-gfx908 (smoke), amd-gfx90a (smoke), all executed and passed."
    assert f"{undivided['images']} {passed}" in output
    (kept,) = work.glob("*/artefacts/release-smoke")
    files = [path for path in kept.rglob("*") if path.is_file()]
    made = {path.relative_to(kept).as_posix(): sha256_file(path) for path in files}
    assert made == {f"{RELEASE}/{name}": digest for name, digest in tarballs(undivided).items()}

    parts = tmp_path / "parts"
    for folder in work.glob("*/artefacts/part-*"):
        shutil.copytree(folder, parts, dirs_exist_ok=True)
    gather = ("build", *SELECTION, "--gather", str(parts), "--output", str(tmp_path / "out"), "--json")
    duplicate = shutil.copy(parts / "amd-gfx90a-smoke-1of2.part.tar", parts / "again.part.tar")
    refused = invoke(checkout, *gather, check=False)
    assert refused.returncode == 4, refused.stderr
    error = json.loads(refused.stdout)["error"]
    assert error["kind"] == "shard" and error["what"].startswith("shard 1/2 of amd-gfx90a exists 2 times: ")
    Path(duplicate).rename(tmp_path / "again")
    (parts / "amd-gfx908-smoke-2of2.part.tar").unlink()
    refused = invoke(checkout, *gather, check=False)
    assert refused.returncode == 4, refused.stderr
    assert "missing shards of amd-gfx908, profile smoke: 2/2" in refused.stderr
    assert "--arch gfx908 --profile smoke --shard 2/2" in refused.stderr
    assert not (tmp_path / "out" / RELEASE).exists()
