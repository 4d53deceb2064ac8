"""Wheels of a release: equal bytes, files of the archives alone, an index that agrees with them;
alterations are found."""

from __future__ import annotations

import hashlib
import html.parser
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.model.bom import Bom
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from aotforge.base.architectures import load_architectures
from aotforge.conformance.candidate import Candidate
from aotforge.conformance.check_release import make_context
from aotforge.conformance.checks.context import CheckContext
from aotforge.conformance.checks.wheels import check_wheels
from aotforge.conformance.matrix import pack_serves
from aotforge.deliver.wheel_index import read_wheels, write_index
from aotforge.errors import ReleaseError
from aotforge.formats.wheel import WheelName, parse_wheel_name, read_wheel, record_bytes, write_wheel
from aotforge.formats.zip_archive import write_zip
from aotforge.release.release import Release, is_release_file
from aotforge.release.wheels import build_package
from tests.integration.deliver.wheels.conftest import MANIFEST, Site, write_wheels
from tests.support.runtime import ROOT

VERSION = "0.11.2.1"
IMAGES = "aotforge_attention/lib/aotriton.images"


def test_equal_releases_give_equal_wheels(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "aotforge_flash", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)  # a machine that makes releases may have none
    again = write_wheels(site.build, tmp_path / "again")
    assert {path.name: path.read_bytes() for path in again} == {
        path.name: path.read_bytes() for path in site.wheels.iterdir()
    }


def test_packaging_reads_names_and_metadata(site: Site) -> None:
    for path in site.wheels.iterdir():
        name, version, _, tags = parse_wheel_filename(path.name)
        own = parse_wheel_name(path.name)
        assert own and (own.name, own.version) == (name, str(version)) == (name, VERSION)
        members = read_wheel(path)
        metadata = Metadata.from_email(members[f"{own.info}/METADATA"], validate=True)
        assert (metadata.name, str(metadata.version)) == (name, VERSION)
        assert {f"{own.info}/licenses/{one}" for one in metadata.license_files or ()} <= set(members)
        assert f"Tag: {'.'.join(map(str, tags))}".encode() in members[f"{own.info}/WHEEL"]
        if own.name == "aotforge-attention":
            assert metadata.provides_extra == ["gfx908", "all"]
            needs = [Requirement(str(one)) for one in metadata.requires_dist or ()]
            assert {one.name for one in needs} == {"aotforge-images-gfx908"}
            assert all(str(one.specifier) == f"=={VERSION}" for one in needs)
        if own.name == "aotforge-flash":
            assert (metadata.requires_dist or [])[0].name == "aotforge-attention"
            assert "aotforge_flash/functions.py" in members


def test_its_bill_of_materials_is_of_its_files(site: Site) -> None:
    for path in site.wheels.iterdir():
        own, members = parse_wheel_name(path.name), read_wheel(path)
        assert own
        document = json.loads(members[f"{own.info}/sboms/{own.name}.cdx.json"])
        bill = Bom.from_json(document)  # type: ignore[attr-defined]
        listed = {one.name: one.hashes[0].content for one in bill.components if one.type == "file"}
        files = {name: data for name, data in members.items() if not name.startswith(own.info)}
        assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        linked = {one.name for one in bill.components if one.type == "library"}
        assert any("zstd" in name for name in linked) == (own.name == "aotforge-attention")


def amd_bundle(path: str) -> str | None:
    """The device wheel that AMD's splitter (rocm_kpack, database_handlers.py of ROCm/TheRock) moves a file
    of a host wheel into."""
    found = re.search(r"(?:^|/)aotriton\.images/amd-(gfx[^/]*)/.", path)
    return {"gfx11xx": "gfx11", "gfx120x": "gfx12_0"}.get(found[1], found[1]) if found else None


AMD_KEYS = [
    f"gfx{key}" for key in ("9_0", "9_4", "9_5", "10_1", "10_3", "11", "110x", "115x", "12_0", "12_5")
]
"""Families and sub-families of rocm-bootstrap, which device wheels are made for, beside each arch."""


def amd_archs(bundle: str | None, archs: list[str]) -> list[str]:
    """Archs whose device wheels get a bundle; none for one that rocm-bootstrap does not know."""
    if bundle not in AMD_KEYS:
        return [arch for arch in archs if arch == bundle]
    return [arch for arch in archs if arch.startswith(bundle.replace("_", "").rstrip("x"))]


def test_amds_device_wheels_get_the_images_of_their_archs() -> None:
    """Of every arch, by AMD's map and by its list of keys; PyTorch's build selects the same packs by its
    own rule."""
    known = load_architectures(ROOT / "manifests").amd
    archs = list(known)
    for pack in {one.pack for one in known.values()}:
        own = [arch for arch in archs if known[arch].pack == pack]
        assert amd_archs(amd_bundle(f"torch/lib/aotriton.images/{pack}/dispatch.aotd"), archs) == own
        assert [arch for arch in archs if pack_serves(pack, arch)] == own
    assert amd_archs("gfx10_3", archs) == [arch for arch in archs if known[arch].product_line == "RDNA2"]
    assert amd_archs("gfx103x", archs) == []  # what AMD's list does not have


def test_amds_splitter_takes_the_images_and_nothing_else(site: Site) -> None:
    """In the release's archive, in the wheel of images, and in torch/lib after a drop-in, paths end
    equally."""
    for path in site.wheels.iterdir():
        own = parse_wheel_name(path.name)
        assert own
        wanted = "gfx908" if own.name == "aotforge-images-gfx908" else None
        bundles = {amd_bundle(name) for name in read_wheel(path) if not name.startswith(own.info)}
        assert bundles == {wanted}
    packs = Release.open(site.build).packs()
    bundles = {
        amd_bundle(f"lib/aotriton.images/{one.pack.name}/{file}") for one in packs for file in one.pack.files
    }
    assert bundles == {"gfx908"}


class Anchors(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def anchors(page: Path) -> list[dict[str, str | None]]:
    parser = Anchors()
    parser.feed(page.read_text())
    return parser.found


def test_the_index_lists_every_wheel(site: Site, tmp_path: Path) -> None:
    folder = shutil.copytree(site.folder, tmp_path / "www")
    write_index(folder, read_wheels(folder / MANIFEST.name, yanked='it <hangs> & "fails"'))
    index = folder / "simple"
    projects = [str(one["href"]) for one in anchors(index / "index.html")]
    assert projects == ["aotforge-attention/", "aotforge-flash/", "aotforge-images-gfx908/"]
    seen = set()
    for project in projects:
        for anchor in anchors(index / project / "index.html"):
            address, _, digest = str(anchor["href"]).partition("#sha256=")
            path = (index / project / address).resolve()
            assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
            assert anchor["data-yanked"] == 'it <hangs> & "fails"'
            assert anchor["data-requires-python"] == (">=3.10" if "flash" in project else ">=3.9")
            seen.add(path.name)
    assert seen == {path.name for path in site.wheels.iterdir()}


@pytest.fixture(scope="module")
def context(site: Site, tmp_path_factory: pytest.TempPathFactory) -> CheckContext:
    """The build, unpacked once; tests replace the folder with the wheels."""
    return make_context(site.build, ROOT, tmp_path_factory.mktemp("unpacked"), ())


def in_folder(candidate: Candidate, folder: Path) -> Candidate:
    return replace(candidate, release=replace(candidate.release, folder=folder))


def violations(context: CheckContext, folder: Path) -> str:
    found = list(check_wheels(replace(context, candidate=in_folder(context.candidate, folder))))
    assert {one.status for one in found} <= {"passed", "failed"}
    return "; ".join(f"{one.what}: {one.evidence}" for one in found if one.status == "failed")


Change = Callable[[dict[str, bytes], str], object]


def rewritten(path: Path, change: Change) -> None:
    """The wheel with changed members and, unless they were changed themselves, a RECORD that agrees."""
    members = read_wheel(path)
    own = parse_wheel_name(path.name)
    assert own
    record = f"{own.info}/RECORD"
    before = members[record]
    change(members, own.info)
    if members.get(record) == before:
        members[record] = record_bytes(members, record)
    write_zip(path, members, epoch=0)


def test_a_release_with_its_wheels_passes(context: CheckContext, site: Site) -> None:
    assert violations(context, site.wheels) == ""
    assert [one.status for one in check_wheels(context)] == ["not run"]


def test_the_wheel_for_windows_is_beside_the_other(context: CheckContext, site: Site, tmp_path: Path) -> None:
    folder = tmp_path / MANIFEST.name
    folder.mkdir()
    windows = folder / f"aotriton-{MANIFEST.name}-win_amd64-shared.zip"
    licence = {"aotriton/share/licenses/aotriton/LICENSE": b"MIT"}
    write_zip(windows, {"aotriton/lib/aotriton_v2.dll": b"MZ", **licence}, epoch=0)
    made = write_wheels(site.build, folder, windows)
    (wheel,) = folder.glob("*-win_amd64.whl")
    assert len(made) == 4 and read_wheel(wheel)["aotforge_attention/lib/aotriton_v2.dll"] == b"MZ"
    release = context.candidate.release
    listed = replace(release, sums={**release.sums, windows.name: ""})
    with_zip = replace(context, candidate=replace(context.candidate, release=listed))
    assert violations(with_zip, folder) == ""
    assert f"{wheel.name} is not a wheel of this release" in violations(context, folder)
    rewritten(wheel, lambda m, i: m.update({"aotforge_attention/lib/aotriton_v2.dll": b"other"}))
    assert "aotriton_v2.dll has other content" in violations(with_zip, folder)
    assert [str(one.name) for one in read_wheels(folder) if one.name.name == "aotforge-attention"] == sorted(
        path.name for path in folder.glob("aotforge_attention-*.whl")
    )


def test_the_wheel_of_the_console_script_passes(context: CheckContext, site: Site, tmp_path: Path) -> None:
    folder = shutil.copytree(site.wheels, tmp_path / MANIFEST.name)
    build_package(ROOT, folder)
    assert violations(context, folder) == ""


@pytest.mark.parametrize(
    ("project", "change", "expected"),
    [
        ("attention", lambda m, i: m.update({f"aotforge_attention/lib/{MANIFEST.soname}": b"other"}),
         f"{MANIFEST.soname} has other content"),
        ("attention", lambda m, i: m.pop(f"aotforge_attention/lib/{MANIFEST.other_names[0]}"),
         "lib/libaotriton_v2.so.0.11.0"),
        ("attention", lambda m, i: m.pop(f"{i}/sboms/aotforge-attention.cdx.json"), "it has no SBOM"),
        ("attention", lambda m, i: m.update({f"{i}/sboms/aotforge-attention.cdx.json": b"[" * 10**5}),
         "it has no SBOM"),
        ("attention", lambda m, i: m.update({"evil.pth": b"import evil\n"}), "its SBOM lists other files"),
        ("attention", lambda m, i: m.update({"aotforge_attention.pth": b"pass\n"}),
         "its SBOM lists other files"),
        ("attention", lambda m, i: m.update({f"{i}/RECORD": b""}), "RECORD has other"),
        ("attention", lambda m, i: m.pop(f"{i}/licenses/LICENSE.zstd"), "lacks"),
        ("attention",
         lambda m, i: m.update({f"{i}/METADATA": m[f"{i}/METADATA"].replace(b"==0.11.2.1", b"==9")}),
         "METADATA has other"),
        ("attention",
         lambda m, i: m.update({f"{i}/WHEEL": m[f"{i}/WHEEL"].replace(b"manylinux", b"musllinux")}),
         "WHEEL has other"),
        ("images_gfx908", lambda m, i: m.pop(f"{IMAGES}/amd-gfx908/dispatch.aotd"),
         "amd-gfx908/dispatch.aotd"),
        ("images_gfx908", lambda m, i: m.update({f"{IMAGES}/amd-gfx90a/x": b""}),
         "amd-gfx90a/x, which is not"),
    ],
)  # fmt: skip
def test_an_altered_wheel_is_found(
    project: str, change: Change, expected: str, context: CheckContext, site: Site, tmp_path: Path
) -> None:
    folder = shutil.copytree(site.wheels, tmp_path / MANIFEST.name)
    (path,) = folder.glob(f"aotforge_{project}-*.whl")
    rewritten(path, change)
    assert expected in violations(context, folder)


@pytest.mark.parametrize(
    ("project", "version"),
    [("numpy", "99.0"), ("aotforge-images-evil", "0.11.2.1"), ("aotforge-attention", "0.0.1")],
)
def test_wheels_of_other_projects_and_second_ones_are_found(
    project: str, version: str, context: CheckContext, site: Site, tmp_path: Path
) -> None:
    folder = shutil.copytree(site.wheels, tmp_path / MANIFEST.name)
    info = {
        "METADATA": f"Name: {project}\nVersion: {version}\nLicense-File: L\n".encode(),
        "licenses/L": b"x",
    }
    write_wheel(folder, WheelName(name=project, version=version), {"evil.pth": b"import os\n"}, info, epoch=0)
    assert "is not a wheel of this release" in violations(context, folder)


def test_an_altered_console_script_is_found(context: CheckContext, site: Site, tmp_path: Path) -> None:
    folder = shutil.copytree(site.wheels, tmp_path / MANIFEST.name)
    path = build_package(ROOT, folder)
    rewritten(path, lambda m, i: m.update({"aotforge/__init__.py": b"import os\n"}))
    assert "aotforge/__init__.py has other content" in violations(context, folder)


@pytest.mark.parametrize("text", ["a" * 101, "\U0001f600", ">=3.10; <script>"])
def test_the_index_has_no_requirement_of_any_text(text: str, tmp_path: Path) -> None:
    """It is in each page twice, and 430 kB of wheels made 800 MB."""
    right = WheelName(name="aotforge-attention", version="1")
    write_wheel(tmp_path, right, {}, {"METADATA": b"Requires-Python: >=3.10,!=3.12.*\n"}, epoch=0)
    assert [one.requires_python for one in read_wheels(tmp_path)] == [">=3.10,!=3.12.*"]
    write_wheel(tmp_path, right, {}, {"METADATA": f"Requires-Python: {text}\n".encode()}, epoch=0)
    assert [one.requires_python for one in read_wheels(tmp_path)] == [""]


def test_a_name_that_is_spelled_otherwise_is_not_a_wheel_s() -> None:
    """The index linked to the normalised name, which is another file or none."""
    assert parse_wheel_name("aotforge_attention-1-py3-none-any.whl") is not None
    assert parse_wheel_name("AOTFORGE_attention-1-py3-none-any.whl") is None


def test_a_release_has_wheels_of_no_other_project(site: Site) -> None:
    """The index lists the wheels of checked releases."""
    assert all(is_release_file(path.name) for path in site.wheels.iterdir())
    assert not is_release_file("numpy-99.0-py3-none-any.whl")


def test_a_missing_wheel_and_a_damaged_one_are_found(
    context: CheckContext, site: Site, tmp_path: Path
) -> None:
    folder = shutil.copytree(site.wheels, tmp_path / MANIFEST.name)
    (path,) = folder.glob("aotforge_images_gfx908-*.whl")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ReleaseError, match=f"{path.name} is not a valid wheel"):
        violations(context, folder)
    path.unlink()
    assert f"{path.name} is missing" in violations(context, folder)
