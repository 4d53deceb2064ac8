"""Progress: a line on terminals, plain elsewhere, silent on request."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

from aotforge.base.progress import progress
from tests.support.families import PROJECT

_CODE = """
from aotforge.base.progress import progress
with progress("Compiling") as line:
    line.update({start}, 10)
    line.note("one [bold]thing[/bold]")
    for done in range({start}, 11):
        line.update(done, 10)
"""


def _on_terminal(start: int = 0, **environment: str) -> str:
    """What a program writes to a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(PROJECT), "TERM": "xterm", "COLUMNS": "120", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE.format(start=start)], stderr=theirs, stdout=theirs, stdin=theirs, env=env
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:
            break
        written += piece
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_a_terminal_gets_a_line_with_time_left_and_notes_as_they_are() -> None:
    text = _on_terminal()
    assert "Compiling" in text
    assert "left:" in text
    assert "10/10" in text
    assert "one [bold]thing[/bold]" in text


def test_the_line_is_taken_away_and_never_wraps() -> None:
    text = _on_terminal(COLUMNS="12")
    assert text.endswith("\r\x1b[K") and "\r\x1b[KCompiling 1\r" in text


def test_dumb_terminals_get_notes_only() -> None:
    assert _on_terminal(TERM="dumb") == "one [bold]thing[/bold]\r\n"


def test_files_get_notes_only_and_quiet_gets_nothing() -> None:
    stream = io.StringIO()
    with progress("Compiling", stream=stream) as line:
        line.update(1, 2)
        line.note("a note")
    assert stream.getvalue() == "a note\n"
    with progress("Compiling", stream=stream, quiet=True) as line:
        line.update(1, 2)
        line.note("another")
    assert stream.getvalue() == "a note\n"


def test_a_terminal_with_nothing_to_wait_for_shows_nothing() -> None:
    assert _on_terminal(10) == "one [bold]thing[/bold]\r\n"
