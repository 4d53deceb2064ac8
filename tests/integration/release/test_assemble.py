"""Release folders: same bytes wherever they are made, and never half of one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from aotforge.base.architectures import load_architectures
from aotforge.base.files import output_lock
from aotforge.errors import AotforgeError, OutputBusyError, OutputError, PublishError, ReleaseError
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.pack.model import ImagePack
from aotforge.pack.reader import read_pack
from aotforge.publish.upload import read_release_folder
from aotforge.release.assemble import find_release, inputs_digest
from aotforge.release.model import PackInput
from aotforge.release.release import Release
from tests.integration.release import standin
from tests.integration.release.real import unpack
from tests.integration.release.standin import IMAGES, LICENCE, MANIFEST, PLAN, ROOT, content, library, packed

PACKED = packed()
GFX908 = load_architectures(ROOT / "manifests").architectures["gfx908"]
TAG = "manylinux_2_28_x86_64"
ROCM = ("6.2", "6.3", "6.4", "7.0", "7.1", "7.2")
NAMES = sorted(
    [f"aotriton-0.11.2b-r1-{TAG}-rocm{rocm}-shared.tar.gz" for rocm in ROCM]
    + ["aotriton-0.11.2b-r1-asm-amd-test.tar.gz", "aotriton-0.11.2b-r1-images-amd-test.tar.gz"]
    + ["MANIFEST.json", "SHA256SUMS", "SHA256SUMS.uncompressed"]
)


def assemble(runtime: Path, output: Path, *packs: PackInput, inputs: str | None = None) -> Release:
    digest = inputs_digest(MANIFEST, [PLAN], runtime, epoch=MANIFEST.epoch, licence=LICENCE)
    return standin.assemble(runtime, output, *(packs or (PACKED,)), inputs=inputs or digest)


def test_files_of_a_release(runtime: Path, tmp_path: Path) -> None:
    release = assemble(runtime, tmp_path / "dist")
    assert release.folder == tmp_path / "dist" / "0.11.2b-r1"
    assert sorted(content(release.folder)) == NAMES == sorted(file.name for file in release.files)
    assert {file.name: file.sha256 for file in release.files} == content(release.folder)
    check = ["sha256sum", "--check", "--strict"]
    done = subprocess.run([*check, "SHA256SUMS"], cwd=release.folder, capture_output=True, check=True)
    assert len(done.stdout.splitlines()) == len(NAMES) - 1
    for name in NAMES:
        if name.endswith(".gz"):
            subprocess.run(["gunzip", "--keep", "--force", name], cwd=release.folder, check=True)
    subprocess.run([*check, "SHA256SUMS.uncompressed"], cwd=release.folder, capture_output=True, check=True)
    shared = [release.folder / name for name in NAMES if name.endswith("shared.tar.gz")]
    assert len({path.read_bytes() for path in shared}) == 1
    assert (release.contents.platform, release.contents.development) == (TAG, ())


IMAGES_OF = "aotriton-0.11.2b-r1-images-{}.tar.gz"


NEW_GLIBC = "void *dlopen(const char *, int); void *open_it(void) { return dlopen(0, 2); }"
"""dlopen moved into libc with glibc 2.34."""


@pytest.mark.parametrize("name", [MANIFEST.soname, OPERATOR_LIBRARY])
def test_a_library_that_needs_a_newer_glibc_than_promised_is_not_published(
    runtime: Path, tmp_path: Path, name: str
) -> None:
    library(runtime / "lib" / name, soname=name, code=NEW_GLIBC, flags="-lc")
    folder = assemble(runtime, tmp_path / "dist").folder
    manifest = json.loads((folder / "MANIFEST.json").read_bytes())
    (reason,) = manifest["development"]
    assert "2.34" in reason and "2.28" in reason
    assert not list(folder.glob(f"*{TAG}*")) and list(folder.glob("*manylinux_2_34_x86_64*"))
    with pytest.raises(PublishError, match=r"is a development build: .*2\.34"):
        read_release_folder(folder)
    assert read_release_folder(folder, allow_development=True).development == (reason,)


def test_another_archs_pack_is_not_deleted(runtime: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    folder = assemble(runtime, dist).folder
    other = replace(PACKED, pack=replace(PACKED.pack, name="amd-other"))
    fails(runtime, dist, OutputError, r"(?s)would delete: amd-test.*--arch a,b", other)
    # whatever the stamp holds, and also when there is none
    (folder / IMAGES_OF.format("amd-third")).write_bytes(b"")
    fails(runtime, dist, OutputError, "would delete: amd-third\n")
    (dist / ".0.11.2b-r1.stamp.json").unlink()
    fails(runtime, dist, OutputError, "would delete: amd-third\n")
    (folder / IMAGES_OF.format("amd-third")).unlink()
    assert assemble(runtime, dist).fresh
    # all architectures named: nothing is lost
    both = assemble(runtime, dist, PACKED, other, inputs="both")
    names = {file.name for file in both.files}
    assert {IMAGES_OF.format("amd-test"), IMAGES_OF.format("amd-other")} <= names
    fails(runtime, dist, OutputError, "would delete: amd-other\n")


@pytest.mark.parametrize(
    "name", ["SHA256SUMS.asc", "aotriton-0.11.2b-r1-images-amd-test.tar.gz.sig", ".note"]
)
def test_an_unknown_file_is_not_deleted(runtime: Path, tmp_path: Path, name: str) -> None:
    folder = assemble(runtime, tmp_path / "dist").folder
    (folder / name).write_bytes(b"signed")
    for _ in range(2):
        fails(
            runtime, tmp_path / "dist", OutputError, f"no build made and that this one would delete: {name}"
        )
        (tmp_path / "dist" / ".0.11.2b-r1.stamp.json").write_text("{}")
    (folder / name).unlink()
    assert assemble(runtime, tmp_path / "dist").fresh


def test_a_file_in_the_releases_place_is_not_deleted(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "0.11.2b-r1").write_bytes(b"mine")
    fails(runtime, tmp_path / "dist", OutputError, "Not a directory")
    assert (tmp_path / "dist" / "0.11.2b-r1").read_bytes() == b"mine"


def test_resources_of_every_image_are_beside_its_assembly(runtime: Path, tmp_path: Path) -> None:
    release = assemble(runtime, tmp_path / "dist")
    with tarfile.open(release.folder / "aotriton-0.11.2b-r1-asm-amd-test.tar.gz") as tar:
        stream = tar.extractfile("aotriton/share/aotriton/asm/amd-test/resources.json")
        assert stream is not None
        found = json.load(stream)
        texts = {Path(member.name).stem for member in tar if member.name.endswith(".s")}
    assert found["pack"] == "amd-test"
    assert {row["digest"] for row in found["images"]} == texts
    labels = {
        label: key for row in found["images"] for label, key in zip(row["labels"], row["jobs"], strict=True)
    }
    assert labels == {job.label: job.key for job in PLAN.jobs}
    expected = {one.digest: asdict(one.resources) for one in IMAGES}
    for row in found["images"]:
        assert {name: row[name] for name in expected[row["digest"]]} == expected[row["digest"]]


def test_tarballs_unpack_into_one_prefix(runtime: Path, tmp_path: Path) -> None:
    release = assemble(runtime, tmp_path / "dist")
    for name in NAMES:
        if name.endswith(".gz"):
            with tarfile.open(release.folder / name) as tar:
                tops = {member.name.split("/")[0] for member in tar}
            unpack(release.folder / name, tmp_path / "unpacked")
            assert tops == {"aotriton"}
    top = tmp_path / "unpacked" / "aotriton"
    real = (top / "lib" / "libaotriton_v2.so.0.11.2").read_bytes()
    for link in ("libaotriton_v2.so", "libaotriton_v2.so.0.11.0", "libaotriton_v2.so.0.11.1"):
        assert (top / "lib" / link).readlink() == Path("libaotriton_v2.so.0.11.2")
        assert (top / "lib" / link).read_bytes() == real
    assert read_pack(top / "lib" / "aotriton.images" / "amd-test") == ImagePack(
        name="amd-test", files=dict(PACKED.pack.files)
    )
    for one in IMAGES:
        assert (top / "share" / "aotriton" / "asm" / "amd-test" / f"{one.digest}.s").read_text() == one.asm
    assert (top / "share" / "licenses" / "aotriton" / "LICENSE").read_bytes() == LICENCE
    assert b"BSD License" in (top / "share" / "licenses" / "aotriton" / "LICENSE.zstd").read_bytes()
    assert (top / "include" / "aotriton" / "runtime.h").is_file()
    assert (top / "lib" / "cmake" / "aotriton" / "aotritonConfig.cmake").is_file()


PROGRAM = """
import os, sys
os.umask(int(sys.argv[1], 8))
from pathlib import Path
from tests.integration.release.standin import LICENCE, MANIFEST, packed
from aotforge.release.assemble import assemble_release
assemble_release(MANIFEST, [packed()], Path(sys.argv[2]), output=Path(sys.argv[3]), licence=LICENCE,
                 epoch=MANIFEST.epoch, inputs="0")
"""


def test_other_folder_umask_locale_and_hash_seed_give_the_same_bytes(runtime: Path, tmp_path: Path) -> None:
    expected = content(assemble(runtime, tmp_path / "dist").folder)
    for umask, seed, locale, zone in (("077", "1", "C", "UTC"), ("000", "77", "tr_TR.UTF-8", "Asia/Kolkata")):
        other = tmp_path / f"other {umask}"
        shutil.copytree(runtime, other / "prefix")
        for path in (other / "prefix").rglob("*"):
            os.utime(path, (1, int(seed)))
            if path.is_file():
                path.chmod(0o600 if umask == "077" else 0o777)
        environment = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone}
        command = [sys.executable, "-c", PROGRAM, umask, str(other / "prefix"), str(other / "dist")]
        subprocess.run(command, env=environment | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, check=True)
        assert content(other / "dist" / "0.11.2b-r1") == expected
        for path in (other / "dist" / "0.11.2b-r1").iterdir():
            assert path.stat().st_mode & 0o777 == 0o666 & ~int(umask, 8)


def test_nothing_is_made_again_when_nothing_changed(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = assemble(runtime, tmp_path / "dist")
    inode = first.folder.stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr("aotforge.release.assemble.release_contents", None)  # calling it would fail
        second = assemble(runtime, tmp_path / "dist")
    assert (first.fresh, second.fresh) == (True, False)
    assert second == replace(first, fresh=False)
    assert first.folder.stat().st_ino == inode
    assert assemble(runtime, tmp_path / "dist", inputs="other").fresh


@pytest.mark.parametrize("damage", ["change", "delete"])
def test_damaged_release_is_made_again(runtime: Path, tmp_path: Path, damage: str) -> None:
    folder = assemble(runtime, tmp_path / "dist").folder
    expected = content(folder)
    victim = folder / NAMES[-1]
    if damage == "change":
        data = bytearray(victim.read_bytes())
        data[50] ^= 1
        victim.write_bytes(data)
    else:
        victim.unlink()
    assert assemble(runtime, tmp_path / "dist").fresh
    assert content(folder) == expected


def test_each_input_changes_the_digest(runtime: Path) -> None:
    def digest(**changes: object) -> str:
        of_plan = {name: value for name, value in changes.items() if name in ("profile", "jobs")}
        plan = replace(PLAN, **of_plan)  # type: ignore[arg-type]
        manifest = MANIFEST.model_copy(update={k: v for k, v in changes.items() if k in ("revision", "rocm")})
        epoch = changes.get("epoch", 1)
        assert isinstance(epoch, int)
        waves = changes.get("waves", 10)
        architectures = {"gfx908": GFX908.model_copy(update={"max_waves_per_simd": waves})}
        return inputs_digest(manifest, [plan], runtime, epoch=epoch, architectures=architectures)

    before = digest()
    assert digest() == before
    changes: list[dict[str, object]] = [
        {"profile": "x"}, {"jobs": PLAN.jobs[1:]}, {"revision": 2}, {"rocm": ("7.2",)}, {"epoch": 2},
        {"waves": 8},
    ]  # fmt: skip
    digests = {digest(**change) for change in changes}
    (runtime / "include" / "aotriton" / "more.h").write_bytes(b"")
    digests |= {before, digest()}
    assert len(digests) == len(changes) + 2


def test_damaged_stamp_means_a_fresh_release(runtime: Path, tmp_path: Path) -> None:
    assemble(runtime, tmp_path / "dist")
    stamp = tmp_path / "dist" / ".0.11.2b-r1.stamp.json"
    intact = stamp.read_text()
    for text in ("", "{}", "[]", intact.replace("a", "b"), intact[:-9]):
        stamp.write_text(text)
        assert find_release(MANIFEST, tmp_path / "dist", "x") is None
        assert assemble(runtime, tmp_path / "dist").fresh


def fails(
    runtime: Path, output: Path, kind: type[AotforgeError], reason: str, pack: PackInput = PACKED
) -> None:
    """The build fails for this reason, and nothing of an earlier result has changed."""
    folder = output / "0.11.2b-r1"
    before = content(folder) if folder.is_dir() else {}
    with pytest.raises(kind, match=reason):
        assemble(runtime, output, pack, inputs="new")
    assert (content(folder) if folder.is_dir() else {}) == before
    if output.is_dir():
        assert not list(output.glob(".*.staged*"))


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize(
    "call", ["os.fsync", "pathlib.Path.hardlink_to", "aotforge.base.files._put_in_place"]
)
def test_disk_full_leaves_earlier_results(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, earlier: bool
) -> None:
    if earlier:
        assemble(runtime, tmp_path / "dist")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(call, full)
        fails(runtime, tmp_path / "dist", OutputError, "(?s)No space left.*the disk is full")
    assert assemble(runtime, tmp_path / "dist").fresh is not earlier


def test_output_that_cannot_be_written(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    fails(runtime, tmp_path / "file" / "dist", OutputError, "cannot write")
    fails(runtime, Path("/proc/dist"), OutputError, "cannot write")


def test_second_build_at_the_same_time_is_refused(runtime: Path, tmp_path: Path) -> None:
    assemble(runtime, tmp_path / "dist")
    with output_lock(tmp_path / "dist" / "0.11.2b-r1"):
        fails(runtime, tmp_path / "dist", OutputBusyError, "another build is writing")
    assert not assemble(runtime, tmp_path / "dist").fresh


def test_runtime_that_breaks_its_contract_is_refused(runtime: Path, tmp_path: Path) -> None:
    soname = runtime / "lib" / MANIFEST.soname
    soname.write_bytes(b"not ELF")
    fails(runtime, tmp_path / "dist", ReleaseError, "cannot be measured")
    library(soname)
    (runtime / "lib" / "other.so").symlink_to("/etc/passwd")
    release = assemble(runtime, tmp_path / "dist")
    assert not any("other.so" in name for name in release.members(release.runtime))


def test_pack_that_is_damaged_or_lacks_assembly_is_refused(runtime: Path, tmp_path: Path) -> None:
    lacking = replace(PACKED, assembly=dict(list(PACKED.assembly.items())[1:]))
    fails(runtime, tmp_path / "dist", ReleaseError, "has no assembly text", lacking)
    unrecorded = replace(PACKED, records=PACKED.records[1:])
    fails(runtime, tmp_path / "dist", ReleaseError, "has no record of its resources", unrecorded)
    files = {**PACKED.pack.files, "dispatch.aotd": b""}
    damaged = replace(PACKED, pack=ImagePack(name="amd-test", files=files))
    fails(runtime, tmp_path / "dist", AotforgeError, r"dispatch\.aotd", damaged)


def test_two_packs_of_one_name_are_refused(runtime: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="two image packs are named amd-test"):
        assemble(runtime, tmp_path / "dist", PACKED, PACKED)
    assert not list((tmp_path / "dist").glob("[!.]*"))


def test_new_release_replaces_the_old_one(runtime: Path, tmp_path: Path) -> None:
    old = content(assemble(runtime, tmp_path / "dist").folder)
    (runtime / "include" / "aotriton" / "more.h").write_bytes(b"")
    new = content(assemble(runtime, tmp_path / "dist").folder)
    assert sorted(new) == NAMES
    assert {name for name in NAMES if new[name] != old[name]} == {
        name for name in NAMES if "shared" in name or "SUMS" in name or "MANIFEST" in name
    }
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        ".0.11.2b-r1.lock", ".0.11.2b-r1.stamp.json", "0.11.2b-r1",
    ]  # fmt: skip
