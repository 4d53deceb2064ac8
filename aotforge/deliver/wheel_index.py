"""Static package index of the wheels in a folder of releases: `pip install --index-url URL/simple/`.

Projects and files as HTML (PEP 503) and, in `index.json` beside each page, as JSON (PEP 691, version 1.1). Addresses are relative, so
that any web server over the folder will do. A wheel that several releases have under one name is listed as the newest one has it.
"""

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotforge.base.files import output_lock, staged_folder
from aotforge.errors import ReleaseError
from aotforge.formats.archive import sha256_file
from aotforge.formats.wheel import WheelName, is_own_project, parse_wheel_name, read_metadata

FOLDER = "simple"
_INDEX = "index.json"
_REQUIRES = "Requires-Python: "
_VERSIONS = re.compile(r"[0-9A-Za-z.*+!<>=~, -]{0,100}")


@dataclass(frozen=True, kw_only=True)
class IndexedWheel:
    """A wheel in the release folder `release`. `yanked`: reason of the release's withdrawal, else empty."""

    release: str
    name: WheelName
    size: int
    sha256: str
    requires_python: str
    yanked: str

    @property
    def href(self) -> str:
        """Its address, relative to its project's page."""
        return f"../../{self.release}/{self.name}"


def read_wheels(folder: Path, *, yanked: str = "") -> list[IndexedWheel]:
    """The wheels of a release folder, whose sums were checked, by name. Raises ReleaseError."""
    found = []
    for path in sorted(folder.glob("*.whl")):
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
        lines = metadata.decode("utf-8", "replace").splitlines()
        requires = next((line.removeprefix(_REQUIRES) for line in lines if line.startswith(_REQUIRES)), "")
        if not _VERSIONS.fullmatch(requires):
            raise ReleaseError(
                f"{path}: its Requires-Python is not a list of version specifiers",
                hint="fetch the release again",
            )
        found.append(
            IndexedWheel(
                release=folder.name,
                name=name,
                size=path.stat().st_size,
                sha256=sha256_file(path),
                requires_python=requires,
                yanked=yanked,
            )
        )
    return found


def write_index(folder: Path, wheels: Iterable[IndexedWheel]) -> Path:
    """Replaces `folder`/simple, in one step. `wheels` of the newest release come first. Raises OutputError, OutputBusyError."""
    projects: dict[str, dict[str, IndexedWheel]] = {}
    for wheel in wheels:
        projects.setdefault(wheel.name.name, {}).setdefault(str(wheel.name), wheel)
    with output_lock(folder / FOLDER), staged_folder(folder / FOLDER, known=_INDEX) as staged:
        anchors = [_anchor(name, f"{name}/") for name in sorted(projects)]
        _write(staged, "Projects", anchors, _root_json(projects))
        for project, files in projects.items():
            (staged / project).mkdir()
            listed = [files[name] for name in sorted(files)]
            _write(staged / project, project, map(_file_anchor, listed), _project_json(project, listed))
    return folder / FOLDER


def _write(folder: Path, title: str, anchors: Iterable[str], document: Mapping[str, Any]) -> None:
    page = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.1">',
        f"<title>{html.escape(title)}</title></head><body>",
        *anchors,
        "</body></html>",
    ]
    for name, text in (
        ("index.html", "\n".join(page)),
        (_INDEX, json.dumps(document, indent=1, sort_keys=True)),
    ):
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def _file_anchor(wheel: IndexedWheel) -> str:
    more = {"data-requires-python": wheel.requires_python, "data-yanked": wheel.yanked}
    given = {name: value for name, value in more.items() if value}
    return _anchor(str(wheel.name), f"{wheel.href}#sha256={wheel.sha256}", given)


def _anchor(text: str, href: str, attributes: Mapping[str, str] | None = None) -> str:
    given = {"href": href, **(attributes or {})}
    written = " ".join(f'{name}="{html.escape(value)}"' for name, value in given.items())
    return f"<a {written}>{html.escape(text)}</a><br>"


def _root_json(projects: Iterable[str]) -> dict[str, Any]:
    return {"meta": {"api-version": "1.1"}, "projects": [{"name": name} for name in sorted(projects)]}


def _project_json(project: str, wheels: Sequence[IndexedWheel]) -> dict[str, Any]:
    files = [
        {
            "filename": str(wheel.name),
            "url": wheel.href,
            "hashes": {"sha256": wheel.sha256},
            "size": wheel.size,
            "yanked": wheel.yanked or False,
            **({"requires-python": wheel.requires_python} if wheel.requires_python else {}),
        }
        for wheel in wheels
    ]
    versions = sorted({wheel.name.version for wheel in wheels})
    return {"meta": {"api-version": "1.1"}, "name": project, "versions": versions, "files": files}
