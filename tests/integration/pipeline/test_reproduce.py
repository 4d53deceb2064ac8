"""Reproduction in a git history whose `./dev build` is a script that packs one text."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import OutputError, ReproduceError, UnknownNameError
from aotforge.pipeline.reproduce import Reproduction, reproduce
from aotforge.pipeline.requests import ReproduceRequest
from aotforge.release.record import Record

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
RELEASE = "0.11.2b-r1"
TAR = f"aotriton-{RELEASE}-images-amd-gfx908.tar"
ZIP = f"aotriton-{RELEASE}-win_amd64-shared.zip"
DEV = '''#!/usr/bin/env python3
"""Packs source.txt as a build would pack images; writes its flags to called.json."""
import gzip, hashlib, io, json, os, pathlib, sys, tarfile
task, words = sys.argv[1], sys.argv[2:]
words.remove("--json")
words = dict(zip(words[::2], words[1::2])) | {"task": task}
folder = pathlib.Path(words["--output"]) / "0.11.2b-r1"
folder.mkdir(parents=True)
here = pathlib.Path(__file__).parent
kept = {k: v for k, v in os.environ.items() if k.startswith(("AOTFORGE_", "SOURCE_"))}
cache = sorted(p.name for p in pathlib.Path(words["--cache"]).iterdir())
(folder.parent / "called.json").write_text(json.dumps({"words": words, "environment": kept, "cache": cache}))
content = (here / "source.txt").read_bytes()
if content.startswith(b"broken"):
    sys.exit("it does not compile")
report = {"release": "0.11.2b-r1"}
if words["task"] == "build.windows":
    path = folder / "aotriton-0.11.2b-r1-win_amd64-shared.zip"
    path.write_bytes(content)
    report |= {"file": str(path), "sha256": hashlib.sha256(content).hexdigest()}
else:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("aotriton/lib/image")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    name = "aotriton-0.11.2b-r1-images-amd-gfx908.tar"
    (folder / f"{name}.gz").write_bytes(gzip.compress(made.getvalue()))
    digest = hashlib.sha256(made.getvalue()).hexdigest()
    (folder / "SHA256SUMS.uncompressed").write_text(f"{digest}  {name}\\n")
    compiled = int((here / "compiled").read_text())
    report |= {"images": 3, "compiled": compiled, "cached": 3 - compiled, "shared": 0, "files": []}
print(json.dumps(report))
'''


class History:
    """A repository with commits of the text; `record` writes the record of one of them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        (self.root / "releases").mkdir(parents=True)
        (self.root / "dev").write_text(DEV)
        (self.root / "dev").chmod(0o755)
        self.cache = folder / "cache"
        (self.cache / "containers").mkdir(parents=True)
        (self.cache / "images-1").mkdir()
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
        return subprocess.run(
            command, cwd=self.root, check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, content: str, *, compiled: int = 3) -> str:
        (self.root / "source.txt").write_text(content)
        (self.root / "compiled").write_text(str(compiled))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def record(self, commit: str, content: str, **changed: Any) -> Record:
        fields = {
            "schema": 1, "release": RELEASE, "commit": commit, "archs": ("gfx908",), "profile": "core",
            "platforms": ("linux", "windows"), "executor": "bubblewrap", "roots": {}, "epoch": 1767225600,
            "python": "3.11", "triton": "3.9.0", "triton_files": "0" * 64, "compiler": "c++",
            "packs": {"amd-gfx908": {"jobs": 3, "images": "0" * 64}},
            "tars": {
                TAR: hashlib.sha256(packed(content)).hexdigest(),
                ZIP: hashlib.sha256(content.encode()).hexdigest(),
            },
        } | changed  # fmt: skip
        record = Record.model_validate(fields)
        (self.root / "releases" / f"{RELEASE}.json").write_text(
            json.dumps(record.model_dump(mode="json", by_alias=True))
        )
        return record

    def reproduce(self, work: Path | None = None, published: Path | None = None) -> Reproduction:
        request = ReproduceRequest(
            root=self.root, release=RELEASE, published=published, cache=self.cache, work=work,
            home=self.root / "home",
            environment=dict(os.environ) | {"AOTFORGE_CACHE": "/elsewhere"},
        )  # fmt: skip
        return reproduce(request, observer=SILENT)


def packed(content: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("aotriton/lib/image")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content.encode()))
    return made.getvalue()


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_the_recorded_commit_with_the_recorded_request_and_nothing_else(
    history: History, tmp_path: Path
) -> None:
    commit = history.commit("one")
    history.commit("two")  # what came later is of no account
    (history.root / "source.txt").write_text("three")  # nor is what was never committed
    history.record(commit, "one")
    done = history.reproduce(tmp_path / "new" / "work")
    assert done == Reproduction(release=RELEASE, commit=commit, compiled=3, archives=(TAR, ZIP))
    called = json.loads((tmp_path / "new/work/linux/called.json").read_text())
    words = called["words"]
    assert (words["--arch"], words["--profile"], words["--executor"]) == ("gfx908", "core", "bubblewrap")
    assert called["cache"] == ["containers"]  # roots, which the record names by digest; no image
    assert called["environment"]["SOURCE_DATE_EPOCH"] == "1767225600"
    assert "AOTFORGE_CACHE" not in called["environment"]
    with pytest.raises(OutputError, match="not empty"):
        history.reproduce(tmp_path / "new" / "work")


def test_a_difference_is_reported_by_member(history: History, tmp_path: Path) -> None:
    history.record(history.commit("two"), "one")
    published = tmp_path / "published"
    published.mkdir()
    (published / f"{TAR}.gz").write_bytes(gzip.compress(packed("one")))
    with pytest.raises(ReproduceError) as caught:
        history.reproduce(published=published)
    lines = caught.value.what.splitlines()
    assert lines[0] == f"{RELEASE} was not reproduced:" and f"{TAR}: other bytes" in lines
    (member,) = (line for line in lines if line.startswith("  "))
    assert member.startswith("  aotriton/lib/image: ")
    assert all(hashlib.sha256(text).hexdigest() in member for text in (b"one", b"two"))
    (published / f"{TAR}.gz").write_bytes(b"of a stranger")
    with pytest.raises(ReproduceError, match=f"{TAR}: other bytes\n  .* cannot be read"):
        history.reproduce(published=published)
    with pytest.raises(ReproduceError) as caught:
        history.reproduce()
    assert "--published" in caught.value.hint


def test_the_published_archives_are_compared(history: History, tmp_path: Path) -> None:
    """A release of a stranger passed: only the record was compared."""
    commit = history.commit("one")
    history.record(commit, "one")
    published = tmp_path / "published"
    published.mkdir()
    (published / f"{TAR}.gz").write_bytes(gzip.compress(packed("one"), 1))
    (published / ZIP).write_bytes(b"one")
    done = history.reproduce(published=published)
    assert done.published == str(published) and f"and with those in {published}" in done.lines()[0]

    def refused(*lines: str) -> None:
        with pytest.raises(ReproduceError) as caught:
            history.reproduce(published=published)
        assert caught.value.what.splitlines()[1:] == list(lines)

    (published / f"{TAR}.gz").write_bytes(gzip.compress(packed("two")))
    (published / "more.tar.gz").write_bytes(b"")
    (published / ZIP).unlink()
    refused(f"{TAR}.gz: other bytes", "more.tar.gz: not in the record", f"{ZIP}: missing")


@pytest.mark.parametrize("name", [f"{TAR}.xz", f"{TAR}.GZ", "x.tgz", "evil-1.0.whl", "folder"])
def test_a_published_folder_has_no_files_that_no_release_has(
    history: History, tmp_path: Path, name: str
) -> None:
    """Programs that take images or wheels from the folder may know them by other names."""
    history.record(history.commit("one"), "one")
    published = tmp_path / "published"
    published.mkdir()
    (published / f"{TAR}.gz").write_bytes(gzip.compress(packed("one")))
    (published / ZIP).write_bytes(b"one")
    for document in ("SHA256SUMS", "SHA256SUMS.uncompressed", "MANIFEST.json", "release.json"):
        (published / document).write_text("of a mirror")
    history.reproduce(published=published)
    if name == "folder":
        (published / name).mkdir()
    else:
        (published / name).write_bytes(gzip.compress(packed("one")))
    with pytest.raises(ReproduceError, match=f"{re.escape(name)}: not in the record"):
        history.reproduce(published=published)


def test_archives_that_are_missing_or_too_many(history: History) -> None:
    commit = history.commit("one")
    known = history.record(commit, "one").tars
    history.record(commit, "one", tars={TAR: known[TAR], "another.tar": "1" * 64})
    with pytest.raises(ReproduceError) as caught:
        history.reproduce()
    assert caught.value.what.splitlines()[1:] == ["another.tar: not made", f"{ZIP}: not in the record"]


@pytest.mark.parametrize(("compiled", "jobs"), [(2, 3), (0, 3), (3, 4)])
def test_images_that_were_not_compiled_prove_nothing(history: History, compiled: int, jobs: int) -> None:
    commit = history.commit("one", compiled=compiled)
    history.record(commit, "one", packs={"amd-gfx908": {"jobs": jobs, "images": "0" * 64}})
    with pytest.raises(ReproduceError, match=f"{compiled} of 3 images were compiled, the release has {jobs}"):
        history.reproduce()


def test_what_cannot_be_made_again(history: History) -> None:
    history.commit("one")
    with pytest.raises(UnknownNameError, match="no record"):
        history.reproduce()
    history.record("d" * 40, "one")
    with pytest.raises(ReproduceError, match="are not available"):
        history.reproduce()
    history.record(history.commit("broken"), "broken")
    with pytest.raises(ReproduceError, match="linux ended with 1"):
        history.reproduce()
