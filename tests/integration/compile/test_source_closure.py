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
from aotforge.plan.planner import plan_project
from tests.integration.compile.builds import build
from tests.support.families import PROJECT, plan_of, write_family

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


def _family(root: Path, edit: tuple[str, str, str] | None) -> Path:
    write_family(root, "k")
    for name, text in _BASE.items():
        (root / "k" / name).write_text(text)
    if edit:
        text = _BASE[edit[0]]
        assert text.count(edit[1]) == 1, edit
        (root / "k" / edit[0]).write_text(text.replace(edit[1], edit[2]))
    return root


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("base")
    return _compile(_family(folder / "k", None), folder / "cache")


def _compile(root: Path, cache: Path) -> tuple[str, str]:
    """Source digest and image digest."""
    plan = plan_of(root)
    images, _ = build(root, cache, jobs=1)
    return plan.jobs[0].source_digest, images.digest(plan.jobs[0].key)


@pytest.mark.parametrize("edit", _EFFECTIVE, ids=lambda edit: f"{edit[0]}:{edit[2]}")
def test_an_edit_that_changes_bytes_changes_the_digest(
    tmp_path: Path, base: tuple[str, str], edit: tuple[str, str, str]
) -> None:
    source, image = _compile(_family(tmp_path / "k", edit), tmp_path / "cache")
    assert image != base[1], "the edit was meant to change the image"
    assert source != base[0]


@pytest.mark.parametrize("edit", _IDLE, ids=lambda edit: f"{edit[0]}:{edit[2]!r}")
def test_an_edit_that_cannot_change_bytes_keeps_digest_and_image(
    tmp_path: Path, base: tuple[str, str], edit: tuple[str, str, str]
) -> None:
    assert _compile(_family(tmp_path / "k", edit), tmp_path / "cache") == base


@pytest.mark.parametrize("edit", _ELSEWHERE, ids=lambda edit: f"{edit[0]}:{edit[2]!r}")
def test_an_edit_elsewhere_in_a_file_compiles_again_to_the_same_image(
    tmp_path: Path, base: tuple[str, str], edit: tuple[str, str, str]
) -> None:
    source, image = _compile(_family(tmp_path / "k", edit), tmp_path / "cache")
    assert source != base[0]
    assert image == base[1]


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
