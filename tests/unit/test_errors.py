"""Every error has one of few exit codes and a kind of its own, and the document lists exactly those."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

from aotforge import errors
from aotforge.errors import AotforgeError, suggest

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, AotforgeError) and kind is not AotforgeError
]


def test_codes_are_few_and_kinds_unique() -> None:
    assert {kind.exit_code for kind in KINDS} == {*range(1, 8)}
    assert len({kind.kind for kind in KINDS}) == len(KINDS)


def test_the_document_lists_them_all() -> None:
    text = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    rows = re.findall(r"^- (\d+): (.*)$", text, re.MULTILINE)
    listed = {(int(code), kind) for code, kinds in rows for kind in re.findall(r"`([a-z-]+)`", kinds)}
    assert listed == {(kind.exit_code, kind.kind) for kind in KINDS}


def test_errors_survive_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.PackError("what", cause="why", hint="how")))
    assert isinstance(error, errors.PackError)
    assert str(error) == "what\nLikely cause: why\nNext step: how"


def test_suggestions_are_near_or_everything() -> None:
    assert suggest("quik", ["quick", "core"]) == "perhaps you meant quick"
    assert suggest("zzz", ["quick", "core"]) == "known names: core, quick"
    many = [f"image{n:03}" for n in range(100)]
    assert suggest("zzz", many) == f"known names: {', '.join(many[:20])} and 80 more"
    labels = [f"flash.attn_fwd:gfx908:dtype=fp16,dropout=false,mask=full,width=32:{n:02}" for n in range(99)]
    assert suggest("zzz", labels) == f"known names: {', '.join(labels[:3])} and 96 more"
    assert suggest("zzz", ["a" * 300, "b"]) == f"known names: {'a' * 300} and 1 more"
