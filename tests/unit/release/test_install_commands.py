"""Commands that are shown to users and install this project's packages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
_COMMAND = re.compile(r"pip install (?:[^\n]*[^.\n])?aotforge[^\n]*")


def shown_commands() -> list[str]:
    pages = [*(ROOT / "aotforge").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    return [text for page in pages for text in _COMMAND.findall(page.read_text(encoding="utf-8"))]


def test_commands_that_install_our_packages_name_the_index() -> None:
    """Without it pip takes the names from PyPI, where any user can register them."""
    found = shown_commands()
    assert found
    assert [text for text in found if not re.search(r"--index-url |--no-index |\.whl", text)] == []


def test_commands_that_install_from_a_folder_take_wheels_only() -> None:
    """Of a source archive there pip executes the build backend."""
    found = [text for text in shown_commands() if "--find-links" in text]
    assert found
    assert [text for text in found if "--only-binary :all:" not in text] == []
