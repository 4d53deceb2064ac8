"""A finished release's folder as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotforge.deliver.page.model import Download, PackLine, ReleasePage
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import ArtifactName, parse_artifact_name
from aotforge.formats.sums import SUMS, TAR_SUMS
from aotforge.release.attestations import MANIFEST, PROVENANCE, RELEASE_JSON, SBOM, SIGNATURE
from aotforge.release.finalize import check_finalized_release
from aotforge.release.release_json import load_release_json

_PAPERS = {
    SUMS: "SHA-256 of every file",
    SIGNATURE: "Ed25519 signature of SHA256SUMS",
    TAR_SUMS: "SHA-256 of the uncompressed archives: what another build must give",
    RELEASE_JSON: "everything about every image and file, for programs",
    MANIFEST: "verdicts of the virtual GPU",
    SBOM: "bill of materials, CycloneDX",
    PROVENANCE: "SLSA provenance, signed",
}


def read_page(folder: Path, *, base_url: str, yanked: str = "") -> ReleasePage:
    """What there is to say of the release in `folder`, whose files are held against its sums first. Raises ReleaseError."""
    check_finalized_release(folder, None)
    document = load_release_json(folder)
    name = str(document["release"])
    files = {path.name: path for path in sorted(folder.iterdir())}
    archives = [parsed for file in files if (parsed := parse_artifact_name(file))]

    def download(file: str, note: str) -> Download:
        path = files[file]
        return Download(
            name=file, href=f"{name}/{file}", size=path.stat().st_size, sha256=sha256_file(path), note=note
        )

    origin, tools = document["origin"], document["origin"]["tools"]
    return ReleasePage(
        name=name,
        commit=str(origin["commit"]),
        compiler=str(tools["compiler"]),
        triton=str(document["toolchain"]["triton_version"]),
        executor=str(tools["executor"]),
        packs=tuple(_pack(name, pack, files, download) for pack in document["packs"]),
        runtimes=tuple(download(str(one), f"ROCm {one.rocm}") for one in archives if one.kind == "runtime"),
        windows=tuple(download(str(one), "Windows x86-64") for one in archives if one.kind == "windows"),
        papers=tuple(download(file, note) for file, note in _PAPERS.items() if file in files),
        signed=SIGNATURE in files,
        yanked=yanked,
        base_url=base_url.rstrip("/") + "/",
    )


def _pack(release: str, pack: Mapping[str, Any], files: Mapping[str, Path], download: Any) -> PackLine:
    images = pack["images"]
    verdicts = [image["verdict"] or {} for image in images]
    name = str(pack["name"])
    names = {
        str(ArtifactName(release=release, kind="images", pack=name)): "images",
        str(ArtifactName(release=release, kind="asm", pack=name)): "assembly texts",
    }
    return PackLine(
        name=name,
        archs=tuple(pack["archs"]),
        images=len(images),
        passed=sum(verdict.get("outcome") == "passed" for verdict in verdicts),
        runs=sum(int(verdict.get("runs", 0)) for verdict in verdicts),
        spilling=sum(bool(image["resources"]["vgpr_spills"]) for image in images),
        downloads=tuple(download(file, note) for file, note in names.items() if file in files),
    )
