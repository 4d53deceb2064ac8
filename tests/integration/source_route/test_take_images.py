"""Ready images of others: which are taken, and which are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.source_route.ready_images import IMAGES, pack, release, take
from tests.integration.source_route.routes import files

pytestmark = pytest.mark.compiler


def test_every_form_of_ready_images_is_taken_unchanged(tmp_path: Path) -> None:
    made = release(tmp_path / "a release é", {"amd-gfx908": "gfx908", "amd-gfx90a": "gfx90a"})
    one = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    two = pack(tmp_path / "packs", "amd-gfx90a", "gfx90a")
    tarball = made / "aotriton-0.11.2b-r1-images-amd-gfx908.tar.gz"
    for ready, archs, wanted in (
        ([made], "", [one, two]),
        ([made], "gfx908", [one]),
        ([made], "gfx908;gfx1010", [one]),
        ([tmp_path / "packs"], "gfx90a", [two]),
        ([tarball], "gfx90a", [one]),  # named itself, it is wanted itself
        ([one, two], "", [one, two]),
    ):
        done, output = take(tmp_path, ready, archs, LC_ALL="C")
        assert done.returncode == 0, done.stderr
        assert files(output) == {f"{p.name}/{name}": data for p in wanted for name, data in files(p).items()}
        assert ("no images for gfx1010" in " ".join(done.stderr.split())) == ("gfx1010" in archs)


def test_damaged_unknown_and_duplicate_images_are_refused(tmp_path: Path) -> None:
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    good, output = take(tmp_path, [made])
    assert good.returncode == 0
    before = files(output)
    tarball = made / "aotriton-0.11.2b-r1-images-amd-gfx908.tar.gz"
    one = pack(tmp_path / "packs", "amd-gfx908", "gfx908")

    def refused(*ready: Path, archs: str = "") -> str:
        done, _ = take(tmp_path, ready, archs)
        assert done.returncode != 0
        assert files(output) == before, "what was there stays"
        return " ".join(done.stderr.split())

    assert "has the pack amd-gfx908 twice" in refused(made, one)
    assert "has no images for gfx1010" in refused(made, archs="gfx1010")
    assert "holds no images" in refused(tmp_path / "packs" / ".." / "release" / "..")
    (one / "dispatch.aotd").unlink()
    assert "is not an image pack of this library's format: it has no dispatch.aotd" in refused(one)
    other = made / "aotriton-0.11.2b-r1-images-amd-gfx90a.tar.gz"
    other.write_bytes(tarball.read_bytes())
    assert "SHA256SUMS does not name aotriton-0.11.2b-r1-images-amd-gfx90a.tar.gz" in refused(other)
    other.unlink()
    damaged = bytearray(tarball.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    tarball.write_bytes(damaged)
    assert "is damaged: its SHA-256 is" in refused(made)
    (made / "SHA256SUMS").unlink()
    assert "tar.gz" in refused(made), "without sums the archive's own checksum"


Add = Callable[[tarfile.TarFile, str], object]


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", content: bytes = b"", **more: str
) -> Add:
    """Adds a member; `{}` in `link` is the victim's path."""

    def add(tar: tarfile.TarFile, victim: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link.format(victim), len(content)
        info.pax_headers = {key: value.format(victim) for key, value in more.items()}
        tar.addfile(info, io.BytesIO(content))

    return add


UNUSUAL: dict[str, list[Add]] = {
    "upwards": [member("aotriton/../../evil")],
    "another folder": [member("other/x")],
    "absolute": [member("/tmp/evil")],
    "symbolic link": [
        member("aotriton/x", tarfile.SYMTYPE, link="{}"),
        member("aotriton/x", content=b"evil"),
    ],
    "hard link": [member("aotriton/x", tarfile.LNKTYPE, link="{}", content=b"evil")],
    "hard link of pax": [member("aotriton/x", tarfile.LNKTYPE, link="{}", content=b"evil", comment="x")],
    "hard link like a line of a file": [
        member("aotriton/x", tarfile.LNKTYPE, link="0 1 Jan 1970 aotriton/x", content=b"evil", comment="x")
    ],
    "name by pax": [member("aotriton/x", content=b"evil", path="{}")],
    # in a listing these are two lines, of which none has a link's form
    "lines": [
        member("aotriton/1970 q/", tarfile.DIRTYPE),
        member("aotriton/x\n-rw-r--r-- 0 x y 5", tarfile.LNKTYPE, link="{}", content=b"evil\n", comment="x"),
    ],
    "device": [member("aotriton/x", tarfile.CHRTYPE)],
    "pipe": [member("aotriton/x", tarfile.FIFOTYPE)],
    **{
        repr(name): [member(f"aotriton/{name}", content=b"x")]
        for name in ("a b", "a;b", "a\x1b]0;e\x07", "[x", "ä")
    },
}


@pytest.mark.parametrize(
    ("unusual", "layout"),
    [
        pytest.param(members, layout, id=f"{name}-{layout}")
        for layout in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        for name, members in UNUSUAL.items()
        if layout == tarfile.PAX_FORMAT or "by pax" not in name
    ],
)
def test_a_tarball_with_other_members_is_refused(unusual: list[Add], layout: int, tmp_path: Path) -> None:
    """CMake's reader follows links while it unpacks, and writes a hard link's content into the file that it
    leads to."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz", format=layout) as tar:
        tar.add(pack(tmp_path / "p", "amd-gfx908", "gfx908"), f"aotriton/{IMAGES}/amd-gfx908")
        for add in unusual:
            add(tar, str(victim))
    done, output = take(tmp_path, [path])
    printed = " ".join(done.stderr.split())
    assert done.returncode and ("members other than files and folders" in printed or "is damaged" in printed)
    assert victim.read_text() == "mine" and not output.exists() and "\x1b" not in done.stderr


def test_other_formats_inside_a_tarball_are_not_read(tmp_path: Path) -> None:
    """A zip file as a member, behind a header with a wrong sum: CMake's reader would unpack it, with a link
    and a file below that."""
    victim = tmp_path / "victim"
    victim.mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        link = zipfile.ZipInfo("aotriton/l")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(victim))
        archive.writestr("aotriton/l/file", "evil")
        for file in pack(tmp_path / "p", "amd-gfx908", "gfx908").iterdir():
            archive.writestr(f"aotriton/{IMAGES}/amd-gfx908/{file.name}", file.read_bytes())
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo("aotriton/f")
        info.size = len(packed.getvalue())
        tar.addfile(info, io.BytesIO(packed.getvalue()))
    content = made.getvalue()[:148] + b"000000\0 " + made.getvalue()[156:]
    path = tmp_path / "evil.tar.gz"
    path.write_bytes(gzip.compress(content[: 512 + (info.size + 511) // 512 * 512 + 1024]))
    done, output = take(tmp_path, [path])
    assert done.returncode and not output.exists() and not list(victim.iterdir())


@pytest.mark.parametrize("end", ["cut", "header"])
def test_a_tarball_without_its_end_is_refused(end: str, tmp_path: Path) -> None:
    made = release(tmp_path / "r", {"amd-gfx908": "gfx908"})
    (path,) = made.glob("*.tar.gz")
    (made / "SHA256SUMS").unlink()
    content = gzip.decompress(path.read_bytes())
    last = len(content.rstrip(b"\0")) // 512 * 512
    changed = {"cut": content[: last - 100], "header": content[:last] + b"aotriton"}[end]
    path.write_bytes(gzip.compress(changed))
    done, output = take(tmp_path, [made])
    assert done.returncode and not output.exists()
    assert "is damaged: CMake cannot read it to its end" in " ".join(done.stderr.split())


def test_a_tarball_that_unpacks_to_a_disk_of_zeros_is_refused(tmp_path: Path) -> None:
    """A text of mtree's format in a gzip file, a gzip file of zeros, and thousands of folders."""
    path = tmp_path / "aotriton-0.11.2b-images-amd-gfx908.tar.gz"
    path.write_bytes(gzip.compress(b"#mtree\naotriton/x.aoti type=file size=20000000000 mode=644\n"))
    done, _ = take(tmp_path, [path])
    assert done.returncode and "not a tarball that gzip can read" in " ".join(done.stderr.split())
    zeros = tarfile.TarInfo("aotriton/zeros")
    zeros.size = 5_000_000
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(zeros, io.BytesIO(bytes(zeros.size)))
    done, _ = take(tmp_path, [path])
    assert done.returncode and "more than a hundred times its size" in " ".join(done.stderr.split())
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(20001):
            folder = tarfile.TarInfo(f"aotriton/{number}")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
    done, output = take(tmp_path, [path])
    assert (
        done.returncode and "more than 20000 files" in " ".join(done.stderr.split()) and not output.exists()
    )


def test_a_folder_of_several_forms_is_refused(tmp_path: Path) -> None:
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    one = pack(made, "amd-gfx90a", "gfx90a")
    done, output = take(tmp_path, [made])
    assert (
        done.returncode
        and "has more than one of packs" in " ".join(done.stderr.split())
        and not output.exists()
    )
    (made / IMAGES).mkdir(parents=True)
    one.rename(made / IMAGES / one.name)
    done, output = take(tmp_path, [made])
    assert (
        done.returncode
        and "has more than one of packs" in " ".join(done.stderr.split())
        and not output.exists()
    )


def test_a_release_of_links(tmp_path: Path) -> None:
    """As git-annex, Nix and Bazel make it; and a link to a tarball with the sums beside the file itself."""
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    for name in ("release", "packs/amd-gfx908"):
        (tmp_path / "links" / name).mkdir(parents=True)
        for number, path in enumerate((tmp_path / name).iterdir()):
            kept = path.rename(tmp_path / f"{name.replace('/', '-')}-{number}")
            path.symlink_to(kept)
            (tmp_path / "links" / name / path.name).symlink_to(path)
    (tarball,) = (tmp_path / "links" / "release").glob("*.tar.gz")
    for ready in (tmp_path / "links" / "release", tarball, tmp_path / "links" / "packs"):
        done, output = take(tmp_path, [ready])
        assert done.returncode == 0, done.stderr
        assert not any(path.is_symlink() for path in output.rglob("*"))
        assert set(files(output)) == {
            f"amd-gfx908/{path.name}" for path in (tmp_path / "packs" / "amd-gfx908").iterdir()
        }
    sums = made / "SHA256SUMS"
    text = sums.read_text()
    sums.unlink()
    sums.write_text("0" * 64 + text[64:])
    path = next(made.glob("*.tar.gz"))
    path.readlink().replace(path)
    link = tmp_path / "elsewhere" / path.name
    link.parent.mkdir()
    link.symlink_to(path)
    assert "is damaged" in take(tmp_path, [link])[0].stderr, "the sums beside the file itself"


@pytest.mark.parametrize("style", ["  ", " *"])
def test_the_sums_of_a_pack_are_those_of_its_copy(style: str, tmp_path: Path) -> None:
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}{style}{path.name}\n"
        for path in sorted(made.iterdir())
    )
    (made / "SHA256SUMS").write_text(sums[:-1])
    done, output = take(tmp_path, [made])
    assert done.returncode == 0, done.stderr
    assert "SHA256SUMS" not in files(output / "amd-gfx908")
    (made / "SHA256SUMS").write_text(sums.replace(".aotd", ".xaotd"))
    assert "SHA256SUMS does not name dispatch.aotd" in " ".join(take(tmp_path, [made])[0].stderr.split())
    (made / "SHA256SUMS").write_text(sums)
    image = next(made.glob("*.aoti"))
    image.write_bytes(image.read_bytes() + b"x")
    assert f"{image.name} is damaged" in " ".join(take(tmp_path, [made])[0].stderr.split())


def test_packs_of_another_format(tmp_path: Path) -> None:
    made = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    for name in (next(made.glob("*.aoti")).name, "dispatch.aotd"):
        right = (made / name).read_bytes()
        (made / name).write_bytes(b"AOTSIMG\n" + right[8:])
        done, output = take(tmp_path, [tmp_path / "packs"])
        assert done.returncode and not output.exists()
        assert f"{name} is not of the format of image packs" in " ".join(done.stderr.split())
        (made / name).write_bytes(right)


@pytest.mark.parametrize("through", ["", "/packs", "/packs/amd-gfx908"])
def test_the_name_that_a_link_leads_to_is_no_command(through: str, tmp_path: Path) -> None:
    """Lists and commands of CMake."""
    odd = tmp_path / "a;-exec;touch;executed;{};+"
    made = pack(odd / "packs", "amd-gfx908", "gfx908")
    if not through:
        odd = release(odd / "release", {"amd-gfx908": "gfx908"})
    (tmp_path / "current").symlink_to(f"{odd}{through}")
    done, output = take(tmp_path, [tmp_path / "current"])
    assert done.returncode == 0, done.stderr
    assert files(output / "amd-gfx908") == files(made)
    assert not Path("executed").exists() and not list(tmp_path.rglob("executed"))


def test_a_tarball_behind_a_link_is_taken_again_when_it_changed(tmp_path: Path) -> None:
    old, new = (
        release(tmp_path / name, {f"amd-{arch}": arch})
        for name, arch in (("old", "gfx908"), ("new", "gfx90a"))
    )
    (old_tar,), (new_tar,) = (sorted(made.glob("*.tar.gz")) for made in (old, new))
    os.utime(new_tar, (0, 0))
    (old / "SHA256SUMS").unlink()
    named = tmp_path / "current.tar.gz"
    named.symlink_to(old_tar)
    assert take(tmp_path, [named])[0].returncode == 0
    new_tar.replace(old_tar)
    done, output = take(tmp_path, [named])
    assert done.returncode == 0 and [path.name for path in output.iterdir()] == ["amd-gfx90a"]


def test_images_are_taken_again_when_they_changed(tmp_path: Path) -> None:
    made = release(tmp_path / "release", {"amd-gfx908": "gfx908"})
    packs = tmp_path / "prefix" / "lib" / "aotriton.images"
    one = pack(packs, "amd-gfx90a", "gfx90a")
    older = tmp_path / "older"
    shutil.copytree(packs, older)
    next(older.rglob("*.aoti")).write_bytes(b"AOTFIMG\nother")
    ready, output = [made, tmp_path / "prefix"], tmp_path / "taken é"

    def taken() -> bool:
        if output.exists():
            (output / "marker").touch()
        done, _ = take(tmp_path, ready)
        assert done.returncode == 0, done.stderr
        return not (output / "marker").exists()

    assert taken() and not taken()
    image = next(one.glob("*.aoti"))
    image.write_bytes(image.read_bytes() + b"more")
    assert taken() and not taken()
    assert next((output / "amd-gfx90a").glob("*.aoti")).read_bytes().endswith(b"more")
    shutil.rmtree(packs)
    older.rename(packs)  # as it is, with times before the last build
    assert taken() and not taken()
    for file in made.iterdir():  # sums that no longer agree
        file.write_bytes(file.read_bytes() + b"x")
    assert take(tmp_path, ready)[0].returncode != 0
    assert take(tmp_path, ready)[0].returncode != 0, "a failure is not remembered as success"


@pytest.mark.parametrize("form", ["mtree", "tar", "zip", "xz"])
def test_only_gzip_is_an_image_tarball(form: str, tmp_path: Path) -> None:
    """`cmake -E tar` takes any format by its content; of a text in mtree's it makes files of zeros."""
    one = pack(tmp_path / "packs", "amd-gfx908", "gfx908")
    path = tmp_path / "aotriton-0.11.2b-images-amd-gfx908.tar.gz"
    below = "aotriton/lib/aotriton.images"
    if form == "mtree":
        lines = [
            f"./{below} type=dir",
            *(f"./{below}/amd-gfx908/{f.name} type=file size=64" for f in one.iterdir()),
        ]
        path.write_text(
            "\n".join(["#mtree", "./aotriton type=dir", "./aotriton/lib type=dir", *lines]) + "\n"
        )
    elif form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in one.iterdir():
                archive.write(file, f"{below}/amd-gfx908/{file.name}")
    else:
        with tarfile.open(path, {"tar": "w", "xz": "w:xz"}[form]) as tar:  # type: ignore[call-overload]
            tar.add(one, f"{below}/amd-gfx908")
    done, output = take(tmp_path, [path])
    assert done.returncode != 0 and not files(output)
    assert "not a tarball that gzip can read" in " ".join(done.stderr.split())
