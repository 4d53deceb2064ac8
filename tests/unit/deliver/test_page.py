"""Selection and order of the releases on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotforge.deliver import page as pages
from aotforge.errors import ReleaseError

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["0.11.2b-r9", "0.11.2b-r10", "0.9.2b-r1", "0.11.1b-r20", "0.12b-r1"]


def test_the_newest_version_first_and_only_finished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str, str]] = []

    def read(folder: Path, *, base_url: str, yanked: str) -> str:
        seen.append((folder.name, base_url, yanked))
        return folder.name

    monkeypatch.setattr(pages, "read_page", read)
    monkeypatch.setattr(
        pages,
        "make_page",
        lambda releases, matrix, on_hardware, docs: " ".join([*releases, matrix, docs]).encode(),
    )
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "release.json").write_text("{}")
    (tmp_path / "0.13b-r1").mkdir()  # being made
    page = pages.make_site(ROOT, tmp_path, base_url="https://e.org/", yanked={"0.11.2b-r9": "wrong results"})
    order = ["0.12b-r1", "0.11.2b-r10", "0.11.2b-r9", "0.11.1b-r20", "0.9.2b-r1"]
    text = page.read_text()
    assert page == tmp_path / "index.html" and text.startswith(" ".join(order))
    assert "2.11" in text and "<table" in text and "docs/index.html" not in text
    assert seen == [
        (name, "https://e.org/", "wrong results" if name == "0.11.2b-r9" else "") for name in order
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.html").touch()
    again = pages.make_site(ROOT, tmp_path, base_url="https://e.org/", yanked={})
    assert again.read_text().endswith(" docs/index.html")


def test_an_empty_folder_keeps_its_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("as it was")
    with pytest.raises(ReleaseError, match="no finished release"):
        pages.make_site(ROOT, tmp_path, base_url="https://e.org/", yanked={})
    assert (tmp_path / "index.html").read_text() == "as it was"
