"""Compiling and verifying are two lines of progress; what went wrong stays, what went well does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aotforge.compile.model import CompileEvent
from aotforge.pipeline.display import BuildDisplay
from aotforge.verify.verdict import Verdict, VerifyEvent
from tests.unit.verify.test_verdicts import FAILED, PASSED, UNVERIFIED


def event(verdict: Verdict, done: int = 1) -> VerifyEvent:
    return VerifyEvent(verdict=verdict, done=done, total=3)


def test_images_that_do_not_pass_are_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    with BuildDisplay(quiet=False) as display:
        display.stage("images")
        display.event(CompileEvent(kind="retry", key="k", label="one", detail="killed", done=0, total=1))
        for number, verdict in enumerate((PASSED, FAILED, UNVERIFIED), 1):
            display.verdict(event(verdict, number))
        display.event(CompileEvent(kind="compiled", key="k", label="two", detail="", done=1, total=1))
        display.verdict(event(replace(PASSED, cached=True), 3))
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["retry: one: killed", "failed: bad", "unverified: lonely"]
    assert shown.out == ""


def test_a_program_gets_events_also_where_people_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with BuildDisplay(quiet=True, events=True) as display:
        display.stage("images")
        display.event(CompileEvent(kind="scanned", key="", label="", detail="", done=0, total=1))
        display.event(CompileEvent(kind="failed", key="k", label="one", detail="killed", done=0, total=1))
        display.event(CompileEvent(kind="compiled", key="k", label="two", detail="", done=1, total=1))
        display.verdict(event(FAILED, 3))
        display.note("a note")
    shown = capsys.readouterr()
    assert shown.out == ""
    found = [json.loads(line) for line in shown.err.splitlines()]
    assert [(one["event"], one.get("work"), one.get("done"), one.get("outcome")) for one in found] == [
        ("started", None, None, None),
        ("progress", "compiling", 0, None),
        ("job", "compiling", None, "failed"),
        ("progress", "compiling", 1, None),
        ("job", "verifying", None, "failed"),
        ("progress", "verifying", 3, None),
        ("note", None, None, None),
        ("finished", None, None, None),
    ]
