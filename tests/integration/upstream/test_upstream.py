"""A synthetic checkout of AOTriton: generator, compiler, packer, and calls through its own library."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aotforge.conformance.check_release import check_release
from aotforge.deliver.dropin.install_dropin import install_dropin
from aotforge.errors import (
    CompileError,
    ReleaseError,
    RuntimeBuildError,
    ToolchainError,
    UnknownNameError,
    UnsupportedError,
    VerifyError,
)
from aotforge.formats.archive import unpack
from aotforge.formats.sums import SUMS
from aotforge.pipeline.display import BuildDisplay
from aotforge.publish.upload import read_release_folder
from aotforge.release.finalize import check_finalized_release
from aotforge.release.model import load_release_manifest
from aotforge.upstream.images import UpstreamRequest, build_images, compile_part, read_recorded
from aotforge.upstream.library import LibraryRequest, build_library
from aotforge.upstream.release import PackagingRequest, make_release
from aotforge.upstream.verify import VerifyReport, VerifyRequest, prepare_image, verify_images
from tests.support.runtime import CACHE, ROOT

pytestmark = pytest.mark.compiler
FIXTURE = ROOT / "tests" / "fixtures" / "aotriton"
LIBRARY = "library/library.cpp"
PACKAGES = Path(triton.__file__).parents[1]
NAMED = os.environ.get("AOTFORGE_AOTRITON", "")
REVISION = {"AOTRITON_CI_SUPPLIED_SHA1": "0" * 40, "AOTRITON_GIT_TREESHA1": "1" * 40}
QUIET = BuildDisplay(quiet=True)


@pytest.fixture(scope="module")
def request_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], UpstreamRequest]:
    """Requests for the fixture's checkout, with a compile cache of this module's."""
    base = tmp_path_factory.mktemp("source")
    shutil.copytree(FIXTURE, base / "aotriton")

    def made(output: Path) -> UpstreamRequest:
        return UpstreamRequest(
            root=ROOT,
            source=base / "aotriton",
            archs=("gfx90a",),
            packages=PACKAGES,
            output=output,
            cache=base / "cache",
            environment=REVISION,
            jobs=1,
        )

    return made


@pytest.fixture(scope="module")
def packs(request_of: Callable[[Path], UpstreamRequest], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "packs"
    report = build_images(request_of(output), observer=QUIET)
    assert len(report.images) == report.compiled == 9
    assert not report.failed and not report.left_out
    return output


def library(folder: Path, old: str = "", new: str = "", **options: Any) -> Path:
    """The fixture's library with a change in its source, installed in `folder`/prefix."""
    source = changed(folder, LIBRARY, old, new)
    shutil.copytree(ROOT / "runtime" / "include", source / "include")
    request = LibraryRequest(
        source=source,
        archs=("gfx90a",),
        packages=PACKAGES,
        output=folder / "prefix",
        cache=CACHE,
        environment={**os.environ, **REVISION},
        **options,
    )
    build_library(request, observer=QUIET)
    return request.output


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("library"))


def verify(prefix: Path, packs: Path, cache: Path = CACHE) -> VerifyReport:
    request = VerifyRequest(root=ROOT, prefix=prefix, images=packs, cache=cache, maxima=(16, 128))
    return verify_images(request, observer=QUIET)


def changed(folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the fixture's checkout with a change in a file."""
    shutil.copytree(FIXTURE, folder / "aotriton")
    text = (folder / "aotriton" / file).read_text()
    assert old in text
    (folder / "aotriton" / file).write_text(text.replace(old, new) if old else text)
    return folder / "aotriton"


def edited(request: UpstreamRequest, folder: Path, file: str, old: str, new: str) -> UpstreamRequest:
    """The request for a checkout with a change in a kernel."""
    return replace(request, source=changed(folder, f"modules/flash/kernel/{file}", old, new))


def test_every_image_is_executed(prefix: Path, packs: Path) -> None:
    report = verify(prefix, packs)
    assert [image.outcome for image in report.images] == ["passed"] * 9
    assert all(image.dense for image in report.images)
    assert report.calls == 18 and not report.refused
    assert all(image.calls <= report.calls for image in report.images)
    report.require_passed()


def test_images_that_the_cache_has_are_decoded_before_the_calls(
    request_of: Callable[[Path], UpstreamRequest], prefix: Path, packs: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(request_of(tmp_path).cache, cache)
    for name in ("emulator-1", "virtual-hip-1"):  # compiled by other tests
        (CACHE / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(CACHE / name)
    with tarfile.open(packs / "asm.tar.gz") as texts:
        unpack(texts, tmp_path / "asm")
    for image in read_recorded(packs / "record.json")["images"]:
        prepare_image((cache, image["job"], "gfx90a", tmp_path / "asm"))
    programs = {path.name for path in (cache / "virtual-hip-programs-1").iterdir()}
    assert len(programs) == 2 * 9
    verify(prefix, packs, cache).require_passed()
    assert {path.name for path in (cache / "virtual-hip-programs-1").iterdir()} == programs


def test_second_build_compiles_nothing_and_gives_the_recorded_bytes(
    request_of: Callable[[Path], UpstreamRequest], packs: Path, tmp_path: Path
) -> None:
    record = read_recorded(packs / "record.json")
    request = replace(request_of(tmp_path / "again"), record=record)
    assert build_images(request, observer=QUIET).compiled == 0
    assert (tmp_path / "again" / SUMS).read_bytes() == (packs / SUMS).read_bytes()
    with pytest.raises(ReleaseError, match="differs from the record: only"):
        build_images(replace(request, only="attn_fwd", output=tmp_path / "part"), observer=QUIET)
    record["images"][3]["sha256"] = "0" * 64
    with pytest.raises(ReleaseError, match=r"differs from the record: #F;.*BLOCK=") as raised:
        build_images(replace(request, output=tmp_path / "other"), observer=QUIET)
    assert "not deterministic" in raised.value.cause and not (tmp_path / "other").exists()
    (tmp_path / "old.json").write_text('{"record": 0}')
    with pytest.raises(ReleaseError, match="as a record of images: it is of another version"):
        read_recorded(tmp_path / "old.json")


def test_parts_fill_the_cache_of_a_build(
    request_of: Callable[[Path], UpstreamRequest], packs: Path, tmp_path: Path
) -> None:
    request = replace(request_of(tmp_path / "packs"), cache=tmp_path / "cache")
    parts = [compile_part(request, f"{number}/2", observer=QUIET) for number in (1, 2)]
    assert [part.compiled for part in parts] == [part.images for part in parts]
    assert sum(part.images for part in parts) == 9 and all(part.images for part in parts)
    assert not request.output.exists()
    assert build_images(request, observer=QUIET).compiled == 0
    assert (request.output / SUMS).read_bytes() == (packs / SUMS).read_bytes()


def test_release_is_signed_published_and_dropped_in(prefix: Path, packs: Path, tmp_path: Path) -> None:
    verdicts = tmp_path / "verdicts.json"
    report = verify(prefix, packs)
    verdicts.write_text(json.dumps(report.fields()))
    key = Ed25519PrivateKey.generate()
    request = PackagingRequest(
        prefix=prefix,
        images=packs,
        verdicts=verdicts,
        output=tmp_path / "dist",
        name="0.13b-r1",
        manifest=load_release_manifest(ROOT / "manifests" / "release.yaml", "0.13b"),
        epoch=0,
        key=key,
        builder="urn:test",
    )
    made = make_release(request)
    assert (made.executed, made.images) == (9, 9)
    again = make_release(replace(request, output=tmp_path / "again")).release
    assert again.digest == made.release.digest
    release = check_finalized_release(made.release.folder, key.public_key())
    assert {archive.rocm for archive in release.of("runtime")} == {"7.0", "7.1", "7.2", "7.14", "7.15"}
    checks = ["folder", "layout", "elf", "paths", "images"]
    checked = check_release(release.folder, checkout=ROOT, cache=CACHE, development=True, only=checks)
    assert not checked.of("failed"), checked.of("failed")
    (pack,) = release.contents.packs
    assert [image.verdict.outcome for image in pack.images if image.verdict] == ["passed"] * 9
    assert read_release_folder(release.folder, allow_development=True).name == "0.13b-r1"
    torch = tmp_path / "torch" / "lib"
    (torch / "aotriton.images" / "amd-gfx11xx").mkdir(parents=True)
    needs = ["-Wl,--no-as-needed", str(prefix / "lib" / "libaotriton_v2.so"), "-Wl,--allow-shlib-undefined"]
    subprocess.run(["g++", "-shared", "-o", torch / "libtorch_hip.so", *needs], check=True)
    dropped = install_dropin(ROOT, release.folder, torch)
    assert (torch / "aotriton.images" / "amd-gfx90a" / "flash" / "attn_fwd.zip").is_file()
    assert dropped.pytorch_use == "yes" and "gfx1100" in dropped.warnings[0]
    assert "gfx90a" not in dropped.warnings[0]
    report.images[4].failure = "wrong"
    verdicts.write_text(json.dumps(report.fields()))
    with pytest.raises(VerifyError, match="images or calls failed: #F;"):
        make_release(request)
    verdicts.write_text(json.dumps(report.fields() | {"library": "0" * 64}))
    with pytest.raises(ReleaseError, match="is about another library"):
        make_release(request)


def test_failing_image_stops_the_build_or_is_recorded(
    request_of: Callable[[Path], UpstreamRequest], prefix: Path, tmp_path: Path
) -> None:
    request = edited(
        request_of(tmp_path / "packs"),
        tmp_path,
        "forward.py",
        "    columns, keys",
        "    tl.static_assert(BLOCK > 64)\n    columns, keys",
    )
    with pytest.raises(CompileError) as raised:
        build_images(request, observer=QUIET)
    assert "3 of 9 compile jobs failed twice" in str(raised.value)
    assert f"./dev upstream.images {request.source} --arch gfx90a" in str(raised.value)
    assert "CAUSAL_TYPE=3" in str(raised.value) and not request.output.exists()
    report = build_images(replace(request, skip_failed=True), observer=QUIET)
    assert len(report.failed) == 3
    verdicts = verify(prefix, request.output)
    # the empty images are those of short keys, without which no backward is right
    assert len(verdicts.refused) == 9 and "HIP's errors" in verdicts.refused[0]
    with pytest.raises(VerifyError, match="9 calls fail"):
        verdicts.require_passed()


def test_wrong_image_and_wrong_table_are_found(
    request_of: Callable[[Path], UpstreamRequest], prefix: Path, packs: Path, tmp_path: Path
) -> None:
    request = edited(
        request_of(tmp_path / "packs"), tmp_path, "backward.py", "(others >= key", "(others > key"
    )
    build_images(request, observer=QUIET)
    wrong = verify(prefix, request.output).of("failed")
    assert [
        "bwd_kernel_fuse" in image.functional and "CAUSAL_TYPE=3" in image.functional for image in wrong
    ] == [True]
    assert "DK is wrong" in wrong[0].failure or "DV is wrong" in wrong[0].failure
    request = edited(
        replace(request, output=tmp_path / "dropped"),
        tmp_path / "dropout",
        "backward.py",
        "ds.to(DB",
        "(ds * gain).to(DB",
    )
    build_images(request, observer=QUIET)
    (verdict,) = verify(prefix, request.output).of("failed")
    assert "ENABLE_DROPOUT=True" in verdict.functional and "DB is wrong" in verdict.failure
    table = library(tmp_path / "table", "<= 64 ? 64 : 128", "<= 64 ? 128 : 64")
    assert {image.functional.split(";")[0] for image in verify(table, packs).of("failed")} == {
        "amd-gfx90a/flash/attn_fwd"
    }


def test_library_is_the_same_in_another_folder_and_names_neither(prefix: Path, tmp_path: Path) -> None:
    other = library(tmp_path)
    assert (other / SUMS).read_bytes() == (prefix / SUMS).read_bytes()
    targets = (other / "lib" / "cmake" / "aotriton" / "aotriton-targets.cmake").read_text()
    assert 'get_filename_component(_IMPORT_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)' in targets
    record = json.loads((other / "library.json").read_text())
    assert record["archs"] == ["gfx90a"] and record["aotriton"]["commit"] == "0" * 40


def test_library_that_does_not_build_leaves_no_prefix(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="has no headers of HIP"):
        library(tmp_path / "headers", hip=tmp_path)
    with pytest.raises(RuntimeBuildError, match=r"failed, compiling:\n(.*\n)*.*'undeclared'"):
        library(tmp_path / "source", "Image found;", "Image found = undeclared;")
    assert not (tmp_path / "source" / "prefix").exists()


def test_altered_packs_are_refused(prefix: Path, packs: Path, tmp_path: Path) -> None:
    shutil.copytree(packs, tmp_path / "packs")
    with next((tmp_path / "packs").rglob("*.zip")).open("ab") as file:
        file.write(b"x")
    with pytest.raises(ReleaseError, match="differs from SHA256SUMS"):
        verify(prefix, tmp_path / "packs")


def test_refused_requests(request_of: Callable[[Path], UpstreamRequest], tmp_path: Path) -> None:
    request = request_of(tmp_path / "packs")
    with pytest.raises(UnknownNameError, match="selects none of 6 functionals"):
        build_images(replace(request, only="bf16"), observer=QUIET)
    with pytest.raises(UnsupportedError, match="no images for gfx908"):
        build_images(replace(request, archs=("gfx908",)), observer=QUIET)
    with pytest.raises(UnsupportedError, match="is not a git repository"):
        build_images(replace(request, environment={}), observer=QUIET)
    with pytest.raises(UnsupportedError, match="names one value"):
        build_images(replace(request, head_dims=(64,)), observer=QUIET)
    with pytest.raises(ToolchainError, match="no Triton"):
        build_images(replace(request, packages=tmp_path), observer=QUIET)
    shutil.copytree(FIXTURE, tmp_path / "newer")
    text = (FIXTURE / "CMakeLists.txt").read_text().replace("MINOR_INT 13", "MINOR_INT 14")
    (tmp_path / "newer" / "CMakeLists.txt").write_text(text)
    with pytest.raises(UnsupportedError, match=r"0\.14\.0, whose layout is not known"):
        build_images(replace(request, source=tmp_path / "newer"), observer=QUIET)


@pytest.mark.slow
@pytest.mark.skipif(not NAMED, reason="needs AOTFORGE_AOTRITON")
def test_a_real_checkout_is_the_same_in_two_builds_and_its_images_are_executed(tmp_path: Path) -> None:
    """With `pip install --target .aotforge/triton-3.7.0 triton==3.7.0 numpy pandas PyYAML`."""
    request = UpstreamRequest(
        root=ROOT,
        source=Path(NAMED).absolute(),
        archs=("gfx90a",),
        packages=CACHE.parent / "triton-3.7.0",
        output=tmp_path / "packs",
        cache=tmp_path / "cache",
        environment=os.environ,
        head_dims=(64, 128),
        only="bwd_preprocess;|attn_fwd;.*fp16.*=64;PADDED_HEAD=False;ENABLE_DROPOUT=False;CAUSAL_TYPE=3",
    )
    report = build_images(request, observer=QUIET)
    assert len(report.images) == 33 and not report.failed
    again = replace(request, output=tmp_path / "again", cache=tmp_path / "other")
    assert build_images(again, observer=QUIET).compiled == report.compiled
    assert (again.output / SUMS).read_bytes() == (request.output / SUMS).read_bytes()
    built = []
    for name in ("prefix", "again-prefix"):
        same = {n: getattr(request, n) for n in ("source", "archs", "packages", "environment", "head_dims")}
        build_library(LibraryRequest(output=tmp_path / name, cache=CACHE, **same), observer=QUIET)
        built.append((tmp_path / name / SUMS).read_bytes())
    assert built[0] == built[1]
    needed = VerifyRequest(root=ROOT, prefix=tmp_path / "prefix", images=request.output, cache=CACHE)
    verdicts = verify_images(needed, observer=QUIET)
    verdicts.require_passed()
    assert {image.functional.partition(";")[0] for image in verdicts.of("passed")} >= {
        "amd-gfx90a/flash/attn_fwd"
    }
    assert len(verdicts.of("passed")) >= 21
