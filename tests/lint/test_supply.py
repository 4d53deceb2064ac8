"""What `./dev` installs is locked by hash."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.stem)
def test_every_pin_has_a_hash(path: Path) -> None:
    text = re.sub(r"#.*", "", path.read_text()).replace("\\\n", " ")
    pins = [line for line in text.splitlines() if line.strip() and not line.startswith("-")]
    assert pins
    assert [pin for pin in pins if "--hash=sha256:" not in pin] == []


def test_pip_is_called_with_hashes_only() -> None:
    calls = [line for line in (ROOT / "dev").read_text().splitlines() if "pip install" in line]
    assert calls
    assert [line for line in calls if "--require-hashes" not in line] == []


def test_pip_has_limits() -> None:
    """An index may send without end; `run_pip_download` limits files, memory and time."""
    calls = [
        path.name for path in (ROOT / "aotforge").rglob("*.py") if '"pip", "download"' in path.read_text()
    ]
    assert calls == ["pip_download.py"]
