"""The generated page of attention."""

from __future__ import annotations

from pathlib import Path

from aotforge.devtools.attention_page import PAGE, attention_page

ROOT = Path(__file__).parents[3]


def test_the_page_is_that_of_the_rules() -> None:
    """After a change of rules or settings: python -m aotforge.devtools.attention_page"""
    assert (ROOT / PAGE).read_text(encoding="utf-8") == attention_page(ROOT)
