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
from aotforge.formats.archive import sha256_file
from aotforge.formats.wheel import WheelName, parse_wheel_name, read_metadata

FOLDER = "simple"
_INDEX = "index.html"
_REQUIRES = re.compile(rb"^Requires-Python: ([0-9A-Za-z.*+!<>=~, -]{0,100})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class IndexedWheel:
    """A wheel in the release folder `release`. `yanked`: reason of the release's withdrawal, else empty."""

    release: str
    name: WheelName
    sha256: str
    requires_python: str
    yanked: str


def read_wheels(folder: Path, *, yanked: str = "") -> list[IndexedWheel]:
    """The wheels of a release folder, by name. Raises ReleaseError for a damaged one.

    The release was checked: `is_release_file` refuses wheels of other projects.
    """
    wheels = []
    for path in sorted(folder.glob("*.whl")):
        name = parse_wheel_name(path.name)
        assert name is not None, path
        requires = _REQUIRES.search(read_metadata(path, name))
        wheels.append(
            IndexedWheel(
                release=folder.name,
                name=name,
                sha256=sha256_file(path),
                requires_python=requires[1].decode() if requires else "",
                yanked=yanked,
            )
        )
    return wheels


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
