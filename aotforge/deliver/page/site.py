"""The page of a folder of finished releases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from aotforge.conformance.matrix import load_matrix
from aotforge.conformance.matrix_show import matrix_html
from aotforge.deliver.page.read import read_page
from aotforge.deliver.page.render import make_page, write_page
from aotforge.errors import ReleaseError
from aotforge.release.attestations import RELEASE_JSON


def make_site(checkout: Path, folder: Path, *, base_url: str, yanked: Mapping[str, str]) -> Path:
    """Writes `folder`/index.html for every finished release in `folder`, the newest version first. Raises ReleaseError, OutputError."""
    # what begins with a dot is being made, or was left by somebody who was killed
    found = sorted((path.parent for path in folder.glob(f"[!.]*/{RELEASE_JSON}")), key=_version, reverse=True)
    if not found:
        raise ReleaseError(
            f"{folder} holds no finished release",
            cause=f"none of its folders has a {RELEASE_JSON}",
            hint="./dev release makes one",
        )
    releases = [read_page(path, base_url=base_url, yanked=yanked.get(path.name, "")) for path in found]
    return write_page(folder, make_page(releases, matrix=matrix_html(load_matrix(checkout))))


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]
