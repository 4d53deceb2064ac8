"""The source digest compared with the compiler: an edit that changes image bytes changes the digest."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aotforge.plan.closure import SourceTree
from tests.integration.compile.builds import build
from tests.support.families import PROJECT, plan_of, plan_project, write_family

pytestmark = pytest.mark.compiler

_BASE = {
    "k.py": """
import triton
import triton.language as tl
from . import shared
from .common import helper as h, SCALE
from .common import used_by_other

STEP: tl.constexpr = tl.constexpr(3)
PAIR = (tl.constexpr(1), tl.constexpr(2))
LEFT, RIGHT = PAIR

@triton.jit
def local(v, by=STEP):
    return v * by

@triton.jit(noinline=True)
def outlined(v):
    return v - 7

@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    '''Docstring.'''
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)  # a comment
    v = h(local(v)) + SCALE * LEFT + shared.OFFSET + outlined(n)
    tl.store(x + i, v, mask=i < n)

@triton.jit
def other(x):
    tl.store(x, used_by_other(1.0))
""",
    "common.py": """
import triton
import triton.language as tl
from .deep import DEEP

SCALE = tl.constexpr(5)
UNUSED = tl.constexpr(6)

@triton.jit
def helper(v):
    return v + DEEP

@triton.jit
def used_by_other(v):
    return v + UNUSED
""",
    "deep.py": "import triton.language as tl\nDEEP = tl.constexpr(11)\n",
    "shared.py": "import triton.language as tl\nOFFSET = tl.constexpr(13)\n",
}

_EFFECTIVE = [
    ("k.py", "tl.constexpr(3)", "tl.constexpr(4)"),
    ("k.py", "by=STEP", "by=9"),
    ("k.py", "LEFT, RIGHT = PAIR", "RIGHT, LEFT = PAIR"),
    ("k.py", "(tl.constexpr(1), ", "(tl.constexpr(8), "),
    ("k.py", "v - 7", "v - 8"),
    ("k.py", "noinline=True", "noinline=False"),
    ("k.py", "import helper as h", "import used_by_other as h"),
    ("k.py", "i < n)  #", "i <= n)  #"),
    ("common.py", "tl.constexpr(5)", "tl.constexpr(55)"),
    ("common.py", "v + DEEP", "v - DEEP"),
    ("deep.py", "11", "12"),
    ("shared.py", "13", "14"),
]
_IDLE = [
    ("k.py", "# a comment", "# another one"),
    ("k.py", "'''Docstring.'''", "'''Other words,\n    on two lines.'''"),
    ("k.py", "LEFT + shared", "LEFT   +   shared"),
    ("deep.py", "\nDEEP", "\n\n\n# moved down\nDEEP"),
]
_ELSEWHERE = [
    ("k.py", "tl.store(x, used_by_other(1.0))", "tl.store(x, used_by_other(2.0) + 1)"),
    ("k.py", "import used_by_other\n", "import used_by_other, UNUSED\n"),
    ("common.py", "tl.constexpr(6)", "tl.constexpr(60)"),
    ("common.py", "v + UNUSED", "v * UNUSED"),
]


_EDITS = [*_EFFECTIVE, *_IDLE, *_ELSEWHERE]


def _family(root: Path, edit: tuple[str, str, str] | None, name: str = "k") -> Path:
    write_family(root, name)
    for file, text in _BASE.items():
        (root / name / file.replace("k.py", f"{name}.py")).write_text(_edited(file, text, edit))
    return root


def _edited(file: str, text: str, edit: tuple[str, str, str] | None) -> str:
    if edit is None or edit[0] != file:
        return text
    assert text.count(edit[1]) == 1, edit
    return text.replace(edit[1], edit[2])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Digests of the image before and after each edit. All are compiled at once, as families of two roots."""
    found = []
    for name, edits in (("before", [None] * len(_EDITS)), ("after", _EDITS)):
        folder = tmp_path_factory.mktemp(name)
        for number, edit in enumerate(edits):
            _family(folder / "k", edit, f"k{number:02}")
        made, _ = build(folder / "k", folder / "cache")
        keys = {job.family: job.key for job in plan_of(folder / "k").jobs}
        found.append([made.digest(keys[family]) for family in sorted(keys)])
    return list(zip(*found, strict=True))


def _source(folder: Path, edit: tuple[str, str, str] | None) -> str:
    return plan_of(_family(folder, edit)).jobs[0].source_digest


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source digest without an edit."""
    return _source(tmp_path_factory.mktemp("base") / "k", None)


@pytest.mark.parametrize("edit", _EFFECTIVE, ids=lambda edit: f"{edit[0]}:{edit[2]}")
def test_an_edit_that_changes_bytes_changes_the_digest(
    tmp_path: Path, images: list[tuple[str, str]], source: str, edit: tuple[str, str, str]
) -> None:
    before, after = images[_EDITS.index(edit)]
    assert before != after, "the edit was meant to change the image"
    assert _source(tmp_path / "k", edit) != source


@pytest.mark.parametrize("edit", _IDLE, ids=lambda edit: f"{edit[0]}:{edit[2]!r}")
def test_an_edit_that_cannot_change_bytes_keeps_digest_and_image(
    tmp_path: Path, images: list[tuple[str, str]], source: str, edit: tuple[str, str, str]
) -> None:
    before, after = images[_EDITS.index(edit)]
    assert before == after
    assert _source(tmp_path / "k", edit) == source


@pytest.mark.parametrize("edit", _ELSEWHERE, ids=lambda edit: f"{edit[0]}:{edit[2]!r}")
def test_an_edit_elsewhere_in_a_file_compiles_again_to_the_same_image(
    tmp_path: Path, images: list[tuple[str, str]], source: str, edit: tuple[str, str, str]
) -> None:
    assert _source(tmp_path / "k", edit) != source
    before, after = images[_EDITS.index(edit)]
    assert before == after


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The project's kernels as modules of a package, so that Triton's dependency finder takes them."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    package = types.ModuleType("closure_check")
    package.__path__ = [str(PROJECT / "kernels")]
    monkeypatch.setitem(sys.modules, "closure_check", package)
    yield "closure_check"
    for name in [name for name in sys.modules if name.startswith("closure_check.")]:
        del sys.modules[name]


def test_the_closure_holds_everything_that_triton_follows(loaded: str) -> None:
    tree = SourceTree(root=PROJECT / "kernels")
    checked = 0
    for job in {
        (j.source, j.function): j for j in plan_project(PROJECT, archs=["gfx908"], profile="full").jobs
    }.values():
        module = importlib.import_module(f"{loaded}.{job.source.removesuffix('.py').replace('/', '.')}")
        function: Any = getattr(module, job.function)
        reached = {job.source, *_reached(function, loaded)}
        assert reached <= set(tree.closure(job.source))
        checked += len(reached)
    assert checked > 5


def _reached(function: Any, package: str) -> set[str]:
    """Files of the helpers and globals that Triton's dependency finder takes into a function's cache key."""
    _ = function.cache_key
    found = {_file(scope, package) for _, scope in function.used_global_vals.values()} - {""}
    for name, value in function.__globals__.items():
        if hasattr(value, "cache_key") and name in function.src and value is not function:
            found |= {_file(value.__globals__, package), *_reached(value, package)}
    return found


def _file(scope: dict[str, Any], package: str) -> str:
    name = str(scope.get("__name__", ""))
    return name.removeprefix(f"{package}.").replace(".", "/") + ".py" if name.startswith(package) else ""
