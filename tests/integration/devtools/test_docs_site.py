"""The documentation site, really built: nothing is dead, nothing is loaded from elsewhere, equal pages give
equal files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotforge.devtools.docs_site import build_site
from aotforge.errors import ReleaseError, ToolchainError
from tests.e2e.checkouts import HOME, ROOT, copy_checkout


@pytest.mark.slow  # installs the tools once, then builds three times
def test_a_site_twice_and_with_a_dead_link(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    try:
        first = build_site(checkout, tmp_path / "site", home=HOME)
    except ToolchainError as error:
        pytest.skip(f"the site's tools cannot be installed here: {error.cause}")
    assert first[0] > 30
    folder = tmp_path / "site"

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    kept = files()
    shutil.rmtree(folder)
    build_site(checkout, folder, home=HOME)
    again = files()
    assert sorted(name for name in kept.keys() | again.keys() if kept.get(name) != again.get(name)) == []
    page = checkout / "docs" / "installing.md"
    page.write_text(page.read_text() + "\n[x](runtime.md#no-such-heading)\n")
    with pytest.raises(ReleaseError, match="no-such-heading"):
        build_site(checkout, tmp_path / "site", home=HOME)
    assert files() == kept  # the earlier site stays
    assert checkout != ROOT
