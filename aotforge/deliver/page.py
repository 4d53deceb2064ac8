"""The static HTML page of a folder of finalized releases."""

import hashlib
import re
import shlex
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from aotforge.base.files import write_atomic
from aotforge.base.html import render
from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_show import matrix_html
from aotforge.deliver.wheel_index import FOLDER, IndexedWheel, read_wheels, write_index
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.artifact_names import parse_artifact_name
from aotforge.formats.wheel import ATTENTION, is_attention_wheel
from aotforge.release.contents import ReleaseDescription
from aotforge.release.finalize import check_finalized_release
from aotforge.release.model import RELEASE_JSON, ReleaseFile
from aotforge.release.release import DOCUMENTS, describe_files
from aotforge.release.wheels import wheel_version

INDEX = "index.html"
DOCS = "docs"
"""Folder beside the page that may have the documentation's site."""


@dataclass(frozen=True, kw_only=True)
class ReleasePage:
    """A release. `yanked`: reason of its withdrawal, else empty; `development`: why it is a development
    build; `base_url` ends in a slash; `tables`: files with their use, by pack, "Linux", "Windows", "Wheel"
    and "Document"."""

    document: ReleaseDescription
    tables: Mapping[str, Sequence[tuple[ReleaseFile, str]]]
    signed: bool
    development: tuple[str, ...]
    yanked: str
    base_url: str

    @property
    def source(self) -> str:
        """`base_url` as a word of a shell command."""
        return shlex.quote(self.base_url)

    @property
    def pip_command(self) -> str:
        """Installs the library and the first arch's images, from the index beside the page."""
        arch, version = self.document.packs[0].archs[0], wheel_version(self.document.release)
        wanted = f"{ATTENTION}[{arch}]=={version}"
        return f"pip install --index-url {shlex.quote(f'{self.base_url}{FOLDER}/')} {shlex.quote(wanted)}"


def make_site(checkout: Path, folder: Path, *, base_url: str, yanked: Mapping[str, str]) -> Path:
    """Writes `folder`/index.html for its finalized releases, the newest first, and an index of their wheels.

    Raises ReleaseError, OutputError.
    """
    # a name with a dot is a release in progress, or one that was left by a killed process
    folders = [path.parent for path in folder.glob(f"[!.]*/{RELEASE_JSON}")]
    folders.sort(key=lambda path: list(map(int, re.findall(r"\d+", path.name))), reverse=True)
    if not folders:
        raise ReleaseError(
            f"{folder} holds no finished release",
            cause=f"none of its folders has a {RELEASE_JSON}",
            hint="./dev release makes one",
        )
    compat = load_matrix(checkout)
    releases: list[ReleasePage] = []
    wheels: list[IndexedWheel] = []
    for path in folders:
        releases.append(read_page(path, base_url=base_url, yanked=yanked.get(path.name, "")))
        wheels += read_wheels(path, yanked=yanked.get(path.name, ""))
    page = make_page(
        releases,
        matrix=matrix_html(compat),
        on_hardware=bool(compat.hardware),
        docs=f"{DOCS}/{INDEX}" if (folder / DOCS / INDEX).is_file() else "",
    )
    write_atomic(folder / INDEX, page)
    if wheels:
        write_index(folder, wheels)
    return folder / INDEX


def read_page(folder: Path, *, base_url: str, yanked: str = "") -> ReleasePage:
    """The page's facts of the release in `folder`, after a check of its sums. Raises ReleaseError."""
    release = check_finalized_release(folder, None)
    document = release.description()
    if (name := document.release) != folder.name:
        raise ReleaseError(
            f"{folder / RELEASE_JSON} is of {name}, not of {folder.name}",
            cause="the folder was renamed",
            hint="fetch the release again, or move it out of the folder",
        )
    sums = {path.name: sha256_file(path) for path in folder.iterdir()}
    tables: dict[str, list[tuple[ReleaseFile, str]]] = {}
    for file in describe_files(folder, sums, {}):
        title, note = _place(file.name)
        tables.setdefault(title, []).append((file, note))
    return ReleasePage(
        document=document,
        tables=tables,
        signed=release.signed,
        development=release.contents.development,
        yanked=yanked,
        base_url=base_url.rstrip("/") + "/",
    )


def _place(file: str) -> tuple[str, str]:
    """The table of a file, and its use."""
    if archive := parse_artifact_name(file):
        return {
            "runtime": ("Linux", f"ROCm {archive.rocm}"),
            "windows": ("Windows", "Windows x86-64"),
            "images": (archive.pack, "images"),
            "asm": (archive.pack, "assembly texts"),
        }[archive.kind]
    if is_attention_wheel(file):
        return "Wheel", "pip: the library for an installed PyTorch"
    if file.startswith("aotforge_flash-"):
        return "Wheel", "pip: the functions of flash-attn"
    if file.endswith(".whl"):
        return "Wheel", "pip: images" if file.startswith("aotforge_images_") else "pip: the console script"
    return "Document", DOCUMENTS[file]


def make_page(
    releases: Sequence[ReleasePage], *, matrix: str, on_hardware: bool = False, docs: str = ""
) -> bytes:
    """The page, a function of its inputs only; `matrix` is the compatibility matrix as an HTML fragment.

    `on_hardware`: it lists imported checks on hardware. `docs`: address of the documentation beside the page.
    """
    script = Markup(render("releases.js"))  # our own file
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = render(
        "releases.html",
        releases=releases,
        matrix=Markup(matrix),
        on_hardware=on_hardware,
        docs=docs,
        human_size=human_size,
        script=script,
        script_digest=digest,
    )
    return text.encode("utf-8", "backslashreplace")  # surrogates, which JSON can contain


def human_size(size: int) -> str:
    """Bytes in the largest unit that leaves three digits: 342 kB, 1.1 MB (powers of 1000)."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
