"""Lines of a wheel's METADATA that `check` reads."""

from __future__ import annotations

from aotforge.conformance.checks.wheels import _EXTRA


def test_a_long_line_is_read_in_linear_time() -> None:
    """A megabyte of one line took hours."""
    good = 'Requires-Dist: aotforge-images-gfx908==0.11.2.1 ; extra == "gfx908"'
    for text in ("=" * 2**20, "a==" * 2**18, "a=" + "=b" * 2**19):
        found = _EXTRA.findall(f"Requires-Dist: {text}\n{good}\n")
        assert found == [("aotforge-images-gfx908", "0.11.2.1", "gfx908")]
