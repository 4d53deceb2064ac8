"""Commands that are shown to users and install this project's packages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"pip install [^\n]*aotforge[^\n]*")


def test_commands_that_install_our_packages_name_the_index() -> None:
    """Without it pip takes the names from PyPI, where any user can register them."""
    pages = [*(ROOT / "aotforge").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = [text for page in pages for text in _COMMAND.findall(page.read_text(encoding="utf-8"))]
    assert found
    assert [text for text in found if not re.search(r"--index-url |--no-index |\.whl", text)] == []
