"""Source closures and digests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotforge.errors import RulesError
from aotforge.plan.closure import SourceTree, canonical

_HEAD = "import triton\nimport triton.language as tl\n"
_KERNEL = "\n@triton.jit\ndef kernel(x):\n    tl.store(x, C)\n"


def _digest(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / "f" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return SourceTree(root=root).digest("f/k.py")


@pytest.mark.parametrize(
    "module",
    [
        "T = [0]\nT[0] = {}\nC = 1\n",
        "C = 1\nfor C in range({}):\n    pass\n",
        "C = 1\nif {}:\n    C = 2\n",
        "def put():\n    global C\n    C = {}\nC = 1\n",
        "class Config:\n    value = {}\nC = Config.value\n",
        "T = []\nC = T\nD = T.append({})\n",
        "C = 1\nglobals()['C'] = {}\n",
        "C = 1\ntry:\n    C = {}\nfinally:\n    pass\n",
        "C = 1\nassert [C := {}]\n",
        "def wrap(f):\n    return {}\n@wrap\ndef C():\n    pass\n",
        "def min(a):\n    T.append(a)\nT = []\nD = min({})\nC = T\n",
        "C = 1\nC += {}\n",
        "C = 1\ndel C\nC: int = {}\n",
    ],
)
def test_statements_at_import_count(tmp_path: Path, module: str) -> None:
    digests = set()
    for number in (5, 6):
        digests.add(_digest(tmp_path, k=_HEAD + module.format(number) + _KERNEL))
        digests.add(_digest(tmp_path, k=_HEAD + "from .m import C\n" + _KERNEL, m=module.format(number)))
    assert len(digests) == 4


@pytest.mark.parametrize("line", ["from .m import *", "from . import m", "from .m import C as D"])
def test_every_form_of_import_leads_to_what_it_takes(tmp_path: Path, line: str) -> None:
    kernel = _HEAD + line + _KERNEL.replace("C", {"from . import m": "m.C"}.get(line, "D if 0 else C"))
    first = _digest(tmp_path, k=kernel, m="C = 1\nD = C\n")
    assert _digest(tmp_path, k=kernel, m="C = 2\nD = C\n") != first


def test_an_imported_modules_side_effects_count_even_when_nothing_of_it_is_used(tmp_path: Path) -> None:
    kernel = _HEAD + "from .a import C\nfrom .b import nothing\n" + _KERNEL
    first = _digest(tmp_path, k=kernel, a="C = [1]\n", b="from . import a\na.C[0] = 2\nnothing = 0\n")
    assert _digest(tmp_path, b="from . import a\na.C[0] = 3\nnothing = 0\n") != first


def test_any_edit_in_a_file_of_the_closure_counts(tmp_path: Path) -> None:
    kernel = _HEAD + "from .m import C\n" + _KERNEL
    first = _digest(tmp_path, k=kernel, m="from .n import D\nC = 1\n", n="D = 1\n", other="E = 1\n")
    assert _digest(tmp_path, other="E = 2\n") == first
    digests = {
        first,
        _digest(tmp_path, m="from .n import D\nC = 1\nUNUSED = 1\n"),
        _digest(tmp_path, n="D = 2\n"),
    }
    assert len(digests) == 3
    assert SourceTree(root=tmp_path).closure("f/k.py") == ("f/k.py", "f/m.py", "f/n.py")


def test_the_init_of_a_package_counts(tmp_path: Path) -> None:
    first = _digest(tmp_path, k=_HEAD + "C = 1\n" + _KERNEL)
    assert _digest(tmp_path, __init__="VALUE = 1\n") != first


@pytest.mark.parametrize(
    "line", ["import os", "import numpy as np", "from kernels.f import m", "from random import random"]
)
def test_imports_that_the_key_does_not_cover_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(RulesError, match=r"f/k\.py:3: kernel code imports"):
        _digest(tmp_path, k=_HEAD + line + "\nC = 1\n" + _KERNEL)


@pytest.mark.parametrize(
    "line",
    [
        "import math",
        "from math import log2",
        "from triton.language import math",
        "from typing import Any as C",
    ],
)
def test_imports_that_the_key_covers(tmp_path: Path, line: str) -> None:
    assert _digest(tmp_path, k=_HEAD + line + "\nC = 1\n" + _KERNEL)


def test_a_future_import_is_allowed_and_counts(tmp_path: Path) -> None:
    """It can change how annotations are read."""
    first = _digest(tmp_path, k=_HEAD + "C = 1\n" + _KERNEL)
    assert _digest(tmp_path, k="from __future__ import annotations\n" + _HEAD + "C = 1\n" + _KERNEL) != first


def test_a_module_of_the_kernels_root_counts(tmp_path: Path) -> None:
    """The folder above the family's is as far as a relative import leads."""
    kernel = _HEAD + "from ..common import C\n" + _KERNEL
    (tmp_path / "common.py").write_text("C = 1\n")
    first = _digest(tmp_path, k=kernel)
    (tmp_path / "common.py").write_text("C = 2\n")
    assert _digest(tmp_path, k=kernel) != first


@pytest.mark.parametrize(
    ("line", "reason"),
    [("from ...up import C", "leaves the kernels root"), ("from .gone import C", "no module")],
)
def test_relative_imports_that_lead_nowhere_are_refused(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(RulesError, match=reason):
        _digest(tmp_path, k=_HEAD + line + _KERNEL)


def test_a_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"k\.py:3: not valid Python"):
        _digest(tmp_path, k=_HEAD + "def kernel(:\n")


def test_recursion_and_cycles_end(tmp_path: Path) -> None:
    text = _HEAD + "from .m import back\nC = 1\n" + _KERNEL.replace("C)", "back(C))\n    kernel(x)")
    assert _digest(
        tmp_path, k=text, m=_HEAD + "from .k import kernel\n@triton.jit\ndef back(x):\n    return kernel(x)\n"
    )


_LINES = st.lists(
    st.sampled_from(
        ["x = 1", "y = x + 2", "def f(a, b=None):\n    return a", "z = None", "w = ''", "v = (1, 'a', -2.5)"]
    ),
    min_size=1,
    max_size=6,
)


@given(_LINES, st.data())
def test_comments_blank_lines_and_parentheses_do_not_count(lines: list[str], data: st.DataObject) -> None:
    noise = st.sampled_from(["", "\n", "# note\n", "\n\n# note\n"])
    noisy = "".join(data.draw(noise) + line.replace(" = 1", " = (1)") + "  # end\n" for line in lines)
    assert canonical(ast.parse(noisy)) == canonical(ast.parse("\n".join(lines)))


@given(_LINES, _LINES)
def test_different_syntax_is_different_text(left: list[str], right: list[str]) -> None:
    one, two = ast.parse("\n".join(left)), ast.parse("\n".join(right))
    assert (canonical(one) == canonical(two)) == (ast.dump(one) == ast.dump(two))


def test_a_docstring_is_not_a_return_value() -> None:
    assert canonical(ast.parse("def f():\n    'a'\n    return 1")) == canonical(
        ast.parse("def f():\n    return 1")
    )
    assert canonical(ast.parse("def f():\n    return 'a'")) != canonical(
        ast.parse("def f():\n    return 'b'")
    )
    assert canonical(ast.parse("x = 'a'")) != canonical(ast.parse("x = 'b'"))
    assert canonical(ast.parse("x = None")) != canonical(ast.parse("x = 0"))


def test_canonical_text_is_the_same_in_every_python() -> None:
    text = (
        "import a\n@b\ndef f(x: int, y=None, *, z=-1):\n    'doc'\n    return x if y is None else (z, 'q')\n"
    )
    assert canonical(ast.parse(text)) == (
        "Module(body=[Import(names=[alias(name=str:'a',),],),FunctionDef(name=str:'f',args=arguments(args=[arg("
        "arg=str:'x',annotation=Name(id=str:'int',),),arg(arg=str:'y',),],kwonlyargs=[arg(arg=str:'z',),],"
        "kw_defaults=[UnaryOp(op=USub(),operand=Constant(value=int:1,),),],defaults=[Constant(value=NoneType:None,),],),"
        "body=[Return(value=IfExp(test=Compare(left=Name(id=str:'y',),ops=[Is(),],comparators=[Constant("
        "value=NoneType:None,),],),body=Name(id=str:'x',),orelse=Tuple(elts=[Name(id=str:'z',),Constant(value=str:'q',),],),"
        "),),],decorator_list=[Name(id=str:'b',),],),],)"
    )
