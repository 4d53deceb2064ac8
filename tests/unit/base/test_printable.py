"""Text of others on a terminal: no control character reaches it, by whichever way it is printed."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable

import pytest

from aotforge.base.progress import Progress, progress
from aotforge.cli.output import print_result, print_status
from aotforge.errors import printable

ATTACK = "\x1b]0;PWNED\x07\x1b[2J\x9b31m\x7f\rlabel \u202egnp.exe\u200b\udcff\x1b[8mhidden"
SHOWN = r"\x1b]0;PWNED\x07\x1b[2J\x9b31m\x7f\rlabel \u202egnp.exe\u200b\udcff\x1b[8mhidden"


def test_every_character_that_a_terminal_acts_on() -> None:
    """Of the control, format, separator and surrogate characters only tab and newline pass, and spaces."""
    passed = {chr(number) for number in range(0x110000) if printable(chr(number)) == chr(number)}
    unsafe = {c for c in map(chr, range(0x3000)) if unicodedata.category(c) in {"Cc", "Zl", "Zp", "Cs"}}
    assert passed & unsafe == {"\n", "\t"}
    assert not passed & set("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff")
    assert set("aä€漢😀 ") <= passed


def test_escapes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(ATTACK) == SHOWN
    print_result("\x1b[31mred\x1b[0m\x1b[41m")
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m\\x1b[41m\n"
    assert printable("\x1b[31mred") == "\\x1b[31mred"


@pytest.mark.parametrize("write", [print_result, print_status])
def test_results_and_messages(write: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    write(ATTACK)
    found = capsys.readouterr()
    assert found.out + found.err == SHOWN + "\n"


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "started"), [(io.StringIO(), False), (Terminal(), False), (Terminal(), True)]
)
def test_notes_of_progress(stream: io.StringIO, started: bool) -> None:
    with progress("title", stream=stream, environment={"TERM": "xterm"}) as shown:
        made: Progress = shown
        if started:
            made.update(0, 10)
        made.note(ATTACK)
    assert SHOWN in stream.getvalue() and "PWNED\x07" not in stream.getvalue()
