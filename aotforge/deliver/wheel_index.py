"""Static package index of the wheels in a folder of releases: `pip install --index-url URL/simple/`.

Pages of projects and files as HTML (PEP 503, version 1.1) with relative addresses, so that any web server
over the folder will do. A wheel that several releases have under one name is listed as the newest one has it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import output_lock, staged_folder
from aotforge.base.html import render
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.wheel import WheelName, is_own_project, parse_wheel_name, read_metadata

FOLDER = "simple"
_INDEX = "index.html"
_REQUIRES = re.compile(rb"^Requires-Python: (.*)$", re.MULTILINE)
_VERSIONS = re.compile(rb"[0-9A-Za-z.*+!<>=~, -]{0,100}")


@dataclass(frozen=True, kw_only=True)
class IndexedWheel:
    """A wheel in the release folder `release`. `yanked`: reason of the release's withdrawal, else empty."""

    release: str
    name: WheelName
    sha256: str
    requires_python: str
    yanked: str


def read_wheels(folder: Path, *, yanked: str = "") -> list[IndexedWheel]:
    """The wheels of a release folder, whose sums were checked, by name. Raises ReleaseError."""
    return [_read_wheel(path, yanked) for path in sorted(folder.glob("*.whl"))]


def _read_wheel(path: Path, yanked: str) -> IndexedWheel:
    name = parse_wheel_name(path.name)
    metadata = name and read_metadata(path, name)
    if not name or not metadata:
        raise ReleaseError(
            f"{path} is not a wheel that can be listed",
            cause="its name is not of the form NAME-VERSION-py3-none-PLATFORM.whl, or it has no METADATA",
            hint="./dev release --wheels makes the release again",
        )
    if not is_own_project(name.name):
        raise ReleaseError(
            f"{path} is of another project",
            cause="it is not of this release; pip would install it in place of that project's own wheels",
            hint="remove it, or fetch the release again",
        )
    found = _REQUIRES.search(metadata)
    requires = found[1] if found else b""
    if not _VERSIONS.fullmatch(requires):
        what = f"{path}: its Requires-Python is not a list of version specifiers"
        raise ReleaseError(what, hint="fetch the release again")
    return IndexedWheel(
        release=path.parent.name,
        name=name,
        sha256=sha256_file(path),
        requires_python=requires.decode(),
        yanked=yanked,
    )


def write_index(folder: Path, wheels: Iterable[IndexedWheel]) -> Path:
    """Replaces `folder`/simple, in one step. `wheels` of the newest release come first.

    Raises OutputError, OutputBusyError.
    """
    projects: dict[str, dict[str, IndexedWheel]] = {}
    for wheel in wheels:
        projects.setdefault(wheel.name.name, {}).setdefault(str(wheel.name), wheel)
    with output_lock(folder / FOLDER), staged_folder(folder / FOLDER, known=_INDEX) as staged:
        (staged / _INDEX).write_text(render("simple_index.html", title="Projects", projects=sorted(projects)))
        for project, files in projects.items():
            (staged / project).mkdir()
            text = render("simple_index.html", title=project, wheels=[files[name] for name in sorted(files)])
            (staged / project / _INDEX).write_text(text)
    return folder / FOLDER
