"""Parts of a real build: gathered they are the undivided one, and nothing that is not exactly that is ever assembled."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from aotforge.base.progress import SILENT
from aotforge.errors import ShardError, VerifyError
from aotforge.formats.archive import sha256_file
from aotforge.pipeline.build_release import build
from aotforge.pipeline.display import BuildDisplay
from aotforge.pipeline.requests import BuildRequest
from aotforge.pipeline.shards.make_shards import build_image_shards, build_library_shard
from aotforge.pipeline.shards.merge import merge_shards
from aotforge.pipeline.shards.shard_file import ShardArtifact, decode, encode
from aotforge.pipeline.shards.split import Shard
from aotforge.release.model import AssembledRelease
from tests.e2e.checkouts import HOME
from tests.support.families import PROJECT

pytestmark = pytest.mark.compiler


def request_of(output: Path | None, *, verify: bool = True, cache: Path | None = None) -> BuildRequest:
    return BuildRequest(
        root=PROJECT, archs=("gfx908",), profile="smoke", output=output, cache=cache or HOME / "cache", jobs=None, verify=verify,
        environment=dict(os.environ),
    )  # fmt: skip


def make_shard(folder: Path, number: int, count: int, *, verify: bool = True) -> Path:
    report = build_image_shards(
        request_of(folder, verify=verify), Shard(number=number, count=count), observer=BuildDisplay(quiet=True),
    )  # fmt: skip
    return report.written[0].path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parts of a build into two shards."""
    folder = tmp_path_factory.mktemp("parts")
    for number in (1, 2):
        make_shard(folder, number, 2)
    build_library_shard(request_of(folder), observer=SILENT)
    return folder


@pytest.fixture
def parts(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "parts"))


def gathered(parts: Path, output: Path, *, verify: bool = True) -> AssembledRelease:
    # a cache that is not there: whatever is not in the parts cannot come from elsewhere
    nowhere = request_of(output, verify=verify, cache=output / "no-cache")
    return merge_shards(nowhere, parts, observer=SILENT).release


def digests(release: AssembledRelease) -> dict[str, str]:
    found = {path.name: sha256_file(path) for path in release.folder.iterdir()}
    assert found == {file.name: file.sha256 for file in release.files}
    return found


def change(path: Path, **changes: object) -> None:
    """Write a part again with other contents, its digests right."""
    part = decode(path.read_bytes(), path)
    path.write_bytes(encode(replace(part, **changes)))  # type: ignore[arg-type]


def shard(parts: Path, number: int) -> Path:
    return parts / f"amd-gfx908-smoke-{number}of2.part.tar"


def test_gathered_parts_are_the_undivided_build_without_a_single_process(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undivided = build(request_of(tmp_path / "undivided"), observer=BuildDisplay(quiet=True))

    def never(*arguments: object, **settings: object) -> None:
        raise AssertionError(f"a process was started: {arguments}")

    with monkeypatch.context() as patched:
        # every way in which workers, compilers and interpreters start
        patched.setattr(subprocess.Popen, "__init__", never)
        patched.setattr(os, "fork", never)
        patched.setattr(os, "posix_spawn", never)
        release = gathered(parts, tmp_path / "out")
    assert digests(release) == digests(undivided.release)
    assert release.verified and release.fresh
    # it is the same release in every respect: neither way makes it again
    again = build(request_of(tmp_path / "out"), observer=BuildDisplay(quiet=True))
    assert not again.release.fresh
    assert not gathered(parts, tmp_path / "undivided").fresh


def test_parts_are_the_same_bytes_each_time(made: Path, tmp_path: Path) -> None:
    assert make_shard(tmp_path, 2, 2).read_bytes() == shard(made, 2).read_bytes()
    assert (
        build_library_shard(request_of(tmp_path), observer=SILENT).written[0].path.read_bytes()
        == (made / "runtime-linux.part.tar").read_bytes()
    )


def test_parts_may_lie_in_folders_of_their_own(parts: Path, tmp_path: Path) -> None:
    for path in list(parts.iterdir()):
        (parts / f"part-{path.stem}").mkdir()
        path.rename(parts / f"part-{path.stem}" / path.name)
    assert gathered(parts, tmp_path / "out").verified


def test_a_missing_shard_is_refused_and_an_earlier_release_stays(parts: Path, tmp_path: Path) -> None:
    before = digests(gathered(parts, tmp_path / "out"))
    away = shard(parts, 2).rename(tmp_path / "away")
    with pytest.raises(ShardError, match="missing shards of amd-gfx908, profile smoke: 2/2"):
        gathered(parts, tmp_path / "out")
    away.rename(shard(parts, 2))
    (parts / "runtime-linux.part.tar").unlink()
    with pytest.raises(ShardError, match="the runtime is missing"):
        gathered(parts, tmp_path / "out")
    assert {path.name: sha256_file(path) for path in (tmp_path / "out" / "0.11.2b-r1").iterdir()} == before


def test_a_duplicate_shard_is_refused(parts: Path, tmp_path: Path) -> None:
    shutil.copy(shard(parts, 1), parts / "again.part.tar")
    with pytest.raises(ShardError, match=r"shard 1/2 of amd-gfx908 exists 2 times: .*again"):
        gathered(parts, tmp_path / "out")
    assert not (tmp_path / "out" / "0.11.2b-r1").exists()


def test_a_damaged_part_is_refused(parts: Path, tmp_path: Path) -> None:
    for path in sorted(parts.iterdir()):
        good = path.read_bytes()
        path.write_bytes(
            good[: len(good) // 2] + bytes([good[len(good) // 2] ^ 1]) + good[len(good) // 2 + 1 :]
        )
        with pytest.raises(ShardError, match=f"{path.name} is damaged"):
            gathered(parts, tmp_path / "out")
        path.write_bytes(good)


def test_a_part_without_an_image_is_refused_and_nothing_is_compiled(parts: Path, tmp_path: Path) -> None:
    part = decode(shard(parts, 1).read_bytes(), shard(parts, 1))
    gone = next(name for name in part.files if name.startswith("images-"))
    change(shard(parts, 1), files={name: file for name, file in part.files.items() if name != gone})
    with pytest.raises(ShardError, match="lacks 1 of its images"):
        gathered(parts, tmp_path / "out")


def test_the_release_gate_refuses_images_whose_verdict_is_not_there(parts: Path, tmp_path: Path) -> None:
    part = decode(shard(parts, 1).read_bytes(), shard(parts, 1))
    verdicts = [name for name in part.files if name.startswith("verdicts-")]
    files = dict(part.files)
    # one is left out, one is the verdict of another image under this one's name
    del files[verdicts[0]]
    files[verdicts[1]] = files[verdicts[2]]
    change(shard(parts, 1), files=files)
    with pytest.raises(VerifyError, match=r"^2 of \d+ images have no passed verdict"):
        gathered(parts, tmp_path / "out")


def test_unverified_shards_make_a_development_build_only(made: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    shutil.copy(made / "runtime-linux.part.tar", parts)
    shutil.copy(shard(made, 1), parts)
    make_shard(parts, 2, 2, verify=False)
    with pytest.raises(VerifyError, match=r"^1\d of [23]\d images have no passed verdict"):
        gathered(parts, tmp_path / "out")
    rough = gathered(parts, tmp_path / "rough", verify=False)
    assert not rough.verified


@pytest.mark.parametrize(
    ("field", "cause"),
    [("toolchain", "another Triton"), ("verifier", "another virtual GPU"), ("producers", "another revision")],
)
def test_a_shard_of_another_build_is_refused(parts: Path, tmp_path: Path, field: str, cause: str) -> None:
    part = decode(shard(parts, 2).read_bytes(), shard(parts, 2))
    manifest = {**part.manifest, "identity": {**part.manifest["identity"], field: "0" * 64}}
    change(shard(parts, 2), manifest=manifest)
    with pytest.raises(
        ShardError,
        match=f"2of2.part.tar does not belong to this build: shard 2/2 of amd-gfx908 has another {field}",
    ) as caught:
        gathered(parts, tmp_path / "out")
    assert cause in caught.value.cause


def test_a_runtime_of_other_sources_is_refused(parts: Path, tmp_path: Path) -> None:
    path = parts / "runtime-linux.part.tar"
    part: ShardArtifact = decode(path.read_bytes(), path)
    change(path, manifest={**part.manifest, "identity": {**part.manifest["identity"], "sources": "0" * 64}})
    with pytest.raises(ShardError, match=r"runtime-linux\.part\.tar does not belong to this build"):
        gathered(parts, tmp_path / "out")


def test_a_folder_without_parts_is_refused(tmp_path: Path) -> None:
    for folder, message in ((tmp_path, "no shards in"), (tmp_path / "nowhere", "no shards in .*nowhere")):
        with pytest.raises(ShardError, match=message):
            gathered(folder, tmp_path / "out")
