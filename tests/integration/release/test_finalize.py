"""A build's folder finished: its documents agree with it, every alteration is noticed, and peers can check
the signatures."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cyclonedx.model.bom import Bom

from aotforge.conformance.candidate import check_folder, open_candidate
from aotforge.errors import CompatError, ReleaseError, SignatureError, UnknownNameError
from aotforge.formats.archive import sha256_file
from aotforge.formats.sums import SUMS, TAR_SUMS, sums_bytes
from aotforge.pack.reader import open_files
from aotforge.release.compare import compare_archives, compare_descriptions, compare_releases
from aotforge.release.contents import ReleaseDescription
from aotforge.release.finalize import check_finalized_release, finalize_release
from aotforge.release.model import (
    COVERAGE,
    MANIFEST,
    PROVENANCE,
    RELEASE_JSON,
    SBOM,
    SIGNATURE,
    SIGSTORE,
    UNSIGNED,
    BuildTools,
    Origin,
)
from aotforge.release.record import check_record, differing_archives, load_record, make_record, save_record
from aotforge.release.release import Release
from aotforge.release.signing import load_private_key, load_public_key, open_statement
from tests.integration.release import standin

TOOLS = BuildTools(
    toolchain=standin.PLAN.toolchain,
    python="3.11",
    compiler="g++ 10.2.1",
    zstd=("zstandard-0.25.0.tar.gz", "0" * 64),
    zlib="1.3",
    executor="docker",
    roots=(("rocm-kernels", "1" * 64), ("rocm-runtime", "2" * 64)),
)
ORIGIN = Origin(
    release=standin.MANIFEST.name,
    commit="a" * 40,
    archs=standin.PLAN.archs,
    profile=standin.PLAN.profile,
    platforms=("linux",),
    epoch=1767225600,
    tools=TOOLS,
)
BUILDER = "https://builder.example/1"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    runtime = standin.prefix(folder / "prefix")
    return standin.assemble(runtime, folder / "dist", standin.packed()).folder


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def finish(build: Path, output: Path, key: Ed25519PrivateKey, **more: Any) -> Release:
    given: dict[str, Any] = {"origin": ORIGIN, "builder": BUILDER, **more}
    return finalize_release(build, plans=[standin.PLAN], output=output, key=key, **given)


@pytest.fixture
def done(build: Path, key: Ed25519PrivateKey, tmp_path: Path) -> Path:
    return finish(build, tmp_path / "out", key).folder


def test_what_is_in_it(done: Path, build: Path, key: Ed25519PrivateKey) -> None:
    names = check_finalized_release(done, key.public_key()).sums
    assert {COVERAGE, RELEASE_JSON, SBOM, MANIFEST, TAR_SUMS} < set(names)
    document = json.loads(Release.open(done).description().encoded())
    assert (done / RELEASE_JSON).read_bytes() == Release.open(done).description().encoded()
    images = {image["digest"] for pack in document["packs"] for image in pack["images"]}
    assert images == {image.digest for image in standin.IMAGES}
    jobs = [job for pack in document["packs"] for image in pack["images"] for job in image["jobs"]]
    assert {job["key"] for job in jobs} == {job.key for job in standin.PLAN.jobs}
    assert {job["inputs"]["source_digest"] for job in jobs} == {
        job.source_digest for job in standin.PLAN.jobs
    }
    # the documented form of release.json: a renamed field of CompileJob must not change it
    inputs = (
        "aliases constants cures family function hints kernel options signature source source_digest target"
    )
    assert {" ".join(sorted(job["inputs"])) for job in jobs} == {inputs}
    assert document["files"]
    for file in document["files"]:
        assert (done / file["name"]).stat().st_size == file["size"]
    described = {file["name"]: file for file in document["files"]}
    lines = (build / TAR_SUMS).read_text().splitlines()
    tars = {name: digest for digest, name in (line.split("  ") for line in lines)}
    for name, digest in tars.items():
        if name.endswith(".tar"):
            assert described[f"{name}.gz"]["tar_sha256"] == digest


def test_the_coverage_is_that_of_the_packs(done: Path) -> None:
    """Sizes and images of every pack, a row per kernel, and no time."""
    text = (done / COVERAGE).read_text()
    packs = [open_files(one.pack) for one in Release.open(done).packs()]
    assert packs and f"# Coverage of release {ORIGIN.release}\n" in text
    for pack in packs:
        size = sum(len(source.data) for source in pack.sources.values())
        assert (
            f"| {pack.name} | {' '.join(pack.dispatch.archs)} | {pack.signature.images} | {size:,} |" in text
        )
        for kernel in pack.dispatch.kernels:
            images = pack.indexes[kernel.container].images
            rows = [line.split(" | ") for line in text.splitlines() if line.startswith(f"| {kernel.name} | ")]
            assert len(rows) == 2 * len(pack.dispatch.archs)  # calls served, and first calls
            assert {row[-1] for row in rows[len(rows) // 2 :]} == {f"{max(i.size for i in images):,} |"}


def test_peers_agree(done: Path, key: Ed25519PrivateKey, tmp_path: Path) -> None:
    """sha256sum checks the sums, openssl the signature, CycloneDX's own reader the bill; the statement names
    every file."""
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=done, check=True)
    public = tmp_path / "key.pub"
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    raw = tmp_path / "signature"
    raw.write_bytes(base64.b64decode((done / SIGNATURE).read_bytes()))
    verify = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey"]
    subprocess.run([*verify, public, "-in", done / SUMS, "-sigfile", raw], check=True, capture_output=True)
    bom = Bom.from_json(json.loads((done / SBOM).read_bytes()))  # type: ignore[attr-defined]
    assert {"zstd (decoder, linked statically)"} < {component.name for component in bom.components}
    statement = json.loads(open_statement((done / PROVENANCE).read_bytes(), key.public_key()))
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert set(subjects) == {path.name for path in done.iterdir()} - UNSIGNED
    assert statement["predicate"]["runDetails"]["builder"]["id"] == BUILDER
    check_bundle(
        json.loads((done / SIGSTORE).read_bytes()), json.loads((done / PROVENANCE).read_bytes()), public
    )


def check_bundle(bundle: dict[str, Any], envelope: dict[str, Any], public: Path) -> None:
    """As Sigstore's clients read a bundle (protobuf-specs, bundle v0.3) and check a DSSE envelope with a key
    that they have."""
    assert bundle.keys() == {"mediaType", "verificationMaterial", "dsseEnvelope"}
    assert bundle["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", public, "-outform", "DER"], check=True, capture_output=True
    ).stdout
    hint = base64.b64encode(hashlib.sha256(der).digest()).decode()
    assert bundle["verificationMaterial"] == {"publicKey": {"hint": hint}, "tlogEntries": []}
    assert bundle["dsseEnvelope"] == envelope
    (signature,) = envelope["signatures"]
    kind, payload = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    key = load_public_key(public)
    key.verify(base64.b64decode(signature["sig"]), encoded)


def test_the_same_bytes_with_any_key(build: Path, key: Ed25519PrivateKey, done: Path, tmp_path: Path) -> None:
    assert not finish(build, tmp_path / "out", key).fresh
    other = finish(build, tmp_path / "other", Ed25519PrivateKey.generate(), builder="urn:x")
    assert (other.folder / SUMS).read_bytes() == (done / SUMS).read_bytes()
    with pytest.raises(SignatureError, match="another key"):
        check_finalized_release(other.folder, key.public_key())


@pytest.mark.parametrize("how", ["flip", "truncate", "append", "lose"])
def test_every_altered_file_is_noticed(how: str, done: Path, key: Ed25519PrivateKey, tmp_path: Path) -> None:
    names = sorted(path.name for path in done.iterdir())
    assert {SUMS, *UNSIGNED} < set(names)
    for name in names:
        copy = tmp_path / "copy"
        shutil.copytree(done, copy)
        data = bytearray((copy / name).read_bytes())
        if how == "flip":
            data[len(data) // 2] ^= 1
        elif how == "truncate":
            del data[-1:]
        elif how == "append":
            data += b"\0"
        (copy / name).unlink()
        if how != "lose":
            (copy / name).write_bytes(data)
        # the envelope is JSON with a meaningless line end
        harmless = name in {PROVENANCE, SIGNATURE} and how == "truncate"
        if harmless:
            check_finalized_release(copy, key.public_key())
        else:
            with pytest.raises((ReleaseError, SignatureError)):
                check_finalized_release(copy, key.public_key())
        shutil.rmtree(copy)


def test_an_added_file_and_mixed_releases(
    done: Path, build: Path, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    other = finish(build, tmp_path / "b", key, origin=replace(ORIGIN, commit="b" * 40)).folder
    original = shutil.copytree(done, tmp_path / "original")
    shutil.copyfile(other / PROVENANCE, done / PROVENANCE)
    with pytest.raises(SignatureError, match="different files"):
        check_finalized_release(done, key.public_key())
    shutil.copyfile(other / SIGSTORE, done / SIGSTORE)
    shutil.copyfile(original / PROVENANCE, done / PROVENANCE)
    with pytest.raises(SignatureError, match="is not the bundle of"):
        check_finalized_release(done, key.public_key())
    (done / "more").touch()
    with pytest.raises(ReleaseError, match="more is in the folder"):
        check_finalized_release(done, None)


def test_record(done: Path, tmp_path: Path) -> None:
    lines = (done / TAR_SUMS).read_text().splitlines()
    tars = {name: digest for digest, name in (line.split("  ") for line in lines)}
    record = make_record(ORIGIN, contents=Release.open(done).contents, tars=tars)
    path = save_record(tmp_path, record)
    assert save_record(tmp_path, record) == path
    assert load_record(tmp_path, record.release) == record
    assert differing_archives(record, tars) == []
    name = next(iter(record.tars))
    assert differing_archives(record, {**tars, name: "0" * 64}) == [name]
    assert differing_archives(record, {n: d for n, d in tars.items() if n != name}) == [name]
    with pytest.raises(ReleaseError, match="recorded with other bytes"):
        save_record(tmp_path, record.model_copy(update={"tars": {**record.tars, name: "0" * 64}}))
    # the same bytes from a later commit, which holds the record, are the recorded release
    later = record.model_copy(update={"commit": "b" * 40})
    assert check_record(tmp_path, later) == record
    assert save_record(tmp_path, later) == path and load_record(tmp_path, record.release) == record
    assert check_record(tmp_path / "elsewhere", later) == later
    with pytest.raises(UnknownNameError, match="no record"):
        load_record(tmp_path, "9.9b-r1")


def test_what_is_not_approved_takes_no_place(
    done: Path, build: Path, key: Ed25519PrivateKey, tmp_path: Path
) -> None:
    """A release that breaks a check must not lie where others look for finished ones, nor replace one that
    held."""
    before = {path.name: path.read_bytes() for path in done.iterdir()}
    seen = []

    def refuse(folder: Path) -> None:
        seen.append(check_finalized_release(folder, key.public_key()))
        raise CompatError("a check found a violation")

    other = replace(ORIGIN, epoch=ORIGIN.epoch + 1)
    for output in (done.parent, tmp_path / "empty"):
        with pytest.raises(CompatError):
            finish(build, output, key, origin=other, approve=refuse)
    assert len(seen) == 2 and {path.name: path.read_bytes() for path in done.iterdir()} == before
    assert not [path for path in (tmp_path / "empty").iterdir() if path.is_dir()]


def copied(done: Path, target: Path, change: Callable[[bytes], bytes]) -> Path:
    """A copy with other bytes of the archive of images, and its digest in the sums; release.json is the
    same."""
    shutil.copytree(done, target)
    archive = next(path for path in target.iterdir() if "-images-" in path.name)
    data = change(archive.read_bytes())
    archive.unlink()
    archive.write_bytes(data)
    sums = {path.name: sha256_file(path) for path in target.iterdir() if path.name not in {SUMS, *UNSIGNED}}
    (target / SUMS).unlink()
    (target / SUMS).write_bytes(sums_bytes(sums))
    return target


def test_releases_are_compared_by_their_files(done: Path, tmp_path: Path) -> None:
    """Who copies a release.json gives other files its differences: none."""
    other = copied(done, tmp_path / "a", lambda data: data[:-1])
    for pair in ((done, other), (other, done)):
        with pytest.raises(ReleaseError, match=r"a/release.json describes other files than SHA256SUMS lists"):
            compare_releases(*pair)
    with pytest.raises(ReleaseError, match="describes other files"):
        check_finalized_release(other, None)
    finding = next(check_folder(open_candidate(other, tmp_path / "work"), ("7.2",)))
    assert finding.status == "failed" and "describes other files" in finding.evidence
    (other / RELEASE_JSON).unlink()
    with pytest.raises(ReleaseError, match="not in both"):
        compare_releases(done, other)


def test_differences_are_named(done: Path, build: Path, tmp_path: Path) -> None:
    one = Release.open(done).description()
    assert compare_descriptions(one, one) == ()
    two = json.loads(one.encoded())
    image = two["packs"][0]["images"][0]
    image["digest"] = "f" * 64
    image["resources"]["registers"] += 1
    image["verdict"]["outcome"] = "failed"
    lost = two["packs"][0]["images"].pop()
    two["toolchain"]["triton_version"] = "9"
    changed = compare_descriptions(one, ReleaseDescription.model_validate_json(json.dumps(two)))
    kinds = {difference.kind for difference in changed}
    assert kinds == {"toolchain", "pack", "image", "resource", "verdict"}
    named = [difference.name for difference in changed if not difference.after]
    assert set(named) == {job["label"] for job in lost["jobs"]}
    archive = next(path for path in done.iterdir() if "images" in path.name)
    assert compare_releases(done, done) == ()
    assert compare_archives(archive, archive) == ()
    other = next(path for path in done.iterdir() if "asm" in path.name)
    assert compare_archives(archive, other)


@pytest.mark.parametrize("text", ["", "-----BEGIN PRIVATE KEY-----\nnot a key\n-----END PRIVATE KEY-----\n"])
def test_keys_that_cannot_be_used(text: str, tmp_path: Path) -> None:
    with pytest.raises(SignatureError) as caught:
        load_private_key(None, {"AOTFORGE_SIGNING_KEY": text})
    assert "not a key" not in str(caught.value)
    with pytest.raises(SignatureError, match="cannot be read"):
        load_private_key(tmp_path / "none.pem", {})
