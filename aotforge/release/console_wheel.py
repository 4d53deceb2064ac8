"""Builder of the wheel, deterministic: for `pip install .` (PEP 517) and `./dev wheel`.

The package, and below `aotforge/data` the files of the checkout that the tasks of the console script read. Needs Python only, so that
pip builds it without a package index.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aotforge.errors import UnsupportedError
from aotforge.formats.wheel import WheelName, write_wheel

_ROOT = Path(__file__).resolve().parents[2]
_DATA = ("manifests", "compat", "requirements/build.txt", "releases/root.json")
"""Files and folders of a checkout that tasks read; the last two exist once something was published."""

_PACKAGES = ("aotforge", "vgpu", "ttcpu")
_NOT_SHIPPED = {"__pycache__", "data"}


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Nothing."""
    return []


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Writes the wheel of the checkout that has this module; returns its file name. Raises ReleaseError."""
    return write_console_wheel(_ROOT, Path(wheel_directory)).name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Raises UnsupportedError: releases are made from the repository."""
    raise UnsupportedError("there is no source distribution", hint="use the repository, or the wheel")


def write_console_wheel(root: Path, folder: Path) -> Path:
    """The wheel of the checkout `root` in `folder`, which exists: equal sources give equal bytes. Raises ReleaseError."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = {
        "METADATA": _metadata(project, (root / "README.md").read_text(encoding="utf-8")).encode(),
        "entry_points.txt": _entry_points(project).encode(),
        "licenses/LICENSE": (root / "LICENSE").read_bytes(),
    }
    return write_wheel(
        folder,
        WheelName(name=project["name"], version=project["version"]),
        {**dict(_package(root)), **dict(_data(root))},
        info,
        epoch=int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
    )


def _package(root: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(path for name in _PACKAGES for path in (root / name).rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not _NOT_SHIPPED & set(parts) and not _is_hidden(parts):
            yield "/".join(parts), path.read_bytes()


def _data(root: Path) -> Iterator[tuple[str, bytes]]:
    for place in _DATA:
        found = root / place
        for path in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if path.is_file() and not _is_hidden(path.relative_to(root).parts):
                yield f"aotforge/data/{path.relative_to(root).as_posix()}", path.read_bytes()


def _is_hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") for part in parts)


def _metadata(project: Mapping[str, Any], readme: str) -> str:
    """Core metadata 2.4."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {one}" for one in project["dependencies"]),
    ]
    for extra, needs in sorted(project.get("optional-dependencies", {}).items()):
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {one} ; extra == "{extra}"' for one in needs]
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def _entry_points(project: Mapping[str, Any]) -> str:
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, points in sorted(groups.items()):
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in sorted(points.items())), ""]
    return "\n".join(lines)
