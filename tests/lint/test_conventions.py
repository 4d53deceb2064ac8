"""Conventions that formatters do not know: words, columns of docs, docstrings, sizes, reasons of skipped
lints."""

from __future__ import annotations

import ast
import re
import statistics
from pathlib import Path

import pytest

from tests.lint.language import BANNED, ROOT, files, vague_variables, violations

PROSE_COLUMNS = 110
CELL_COLUMNS = 80
DOCSTRING_COLUMNS = 100
_PRODUCTS = ["aotforge", "aotforge_flash", "vgpu", "ttcpu", "tasks.py"]
SOURCES = [path for path in files(_PRODUCTS) if path.suffix == ".py"]
NAMED = [
    path
    for path in files(["aotforge", "ttcpu", "tests/support", "benchmarks"])
    if path.suffix == ".py" and path.relative_to(ROOT).parts[:2] not in {
        ("aotforge", "verify"), ("aotforge", "plan"), ("aotforge", "compile"), ("aotforge", "targets"),
    }
]  # fmt: skip
"""Where variables have no vague names; the other packages follow."""
DOCS = [
    path
    for path in files(["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs"])
    if path.suffix == ".md"
]


def test_there_is_something_to_check() -> None:
    assert len(SOURCES) > 200 and len(DOCS) > 20


def test_no_banned_word() -> None:
    lines = [line for path in files([]) for line in violations(path)]
    assert not lines, "\n".join(lines[:50])


@pytest.mark.parametrize(
    "line",
    [
        "a room",
        "X is no arch",
        "_told_apart",
        "judged",
        "the whole file",
        "CHIP",
        "which lies beside",
        "says so",
    ],
)
def test_a_banned_word_is_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lint.language.ROOT", tmp_path)
    (tmp_path / "a.md").write_text(f"Good.\n{line}\n")
    assert [text.split(":")[1] for text in violations(tmp_path / "a.md")] == ["2"]


def test_no_vague_variable() -> None:
    assert len(NAMED) > 200
    assert not {path: vague for path in NAMED if (vague := list(vague_variables(path.read_text())))}


@pytest.mark.parametrize(
    "source",
    [
        "found = 1", "a, found = b", "if found := f():\n    pass", "for one in many:\n    pass",
        "a = [one for one in many]", "a = f(lambda one: one)", "def f(*, found): ...",
        "def f():\n    def one(): ...", "class A:\n    def f(self):\n        one: int = 1",
    ],
)  # fmt: skip
def test_a_vague_variable_is_found(source: str) -> None:
    assert len(list(vague_variables(source))) == 1


def test_attributes_may_have_the_name() -> None:
    assert not list(vague_variables("class A:\n    found: int = 0\na.found = f(one=found)"))


def test_every_pattern_is_valid_alone() -> None:
    assert all(re.compile(pattern) and better for pattern, better in BANNED.items())


def _prose(path: Path) -> list[tuple[int, str]]:
    """Lines outside of code blocks."""
    lines, fenced = [], False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            lines.append((number, line))
    return lines


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_columns_of_docs(path: Path) -> None:
    wide = []
    for number, line in _prose(path):
        text = re.sub(r"\]\([^)]*\)", "]", line)  # addresses of links do not count
        if line.startswith("|"):
            cells = max(len(cell.strip()) for cell in text.split("|"))
            if cells > CELL_COLUMNS:
                wide.append(f"{path.name}:{number}: a cell of {cells} columns")
        elif len(text) > PROSE_COLUMNS:
            wide.append(f"{path.name}:{number}: {len(text)} columns")
    assert not wide, "\n".join(wide)


def test_every_module_has_a_short_docstring_that_names_it() -> None:
    wrong = []
    for path in SOURCES:
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        first = doc.split("\n")[0]
        if not first or len(first) > DOCSTRING_COLUMNS or re.match(r"(What|Whether|Which|How)\b", first):
            wrong.append(f"{path.relative_to(ROOT)}: {first!r}")
    assert not wrong, "\n".join(wrong)


def test_packages_name_their_input_and_output() -> None:
    packages = [path for path in SOURCES if path.relative_to(ROOT).match("aotforge/*/__init__.py")]
    assert len(packages) == 18
    for path in packages:
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert "Input:" in doc and "Output:" in doc, path


def test_local_imports_have_a_reason() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "noqa: PLC0415" in line and not re.search(r"noqa: PLC0415 - \S", line)
    ]
    assert not lines, "\n".join(lines)


def test_sizes_of_files_and_functions() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert statistics.median(lengths.values()) <= 150
    assert not [path for path, length in lengths.items() if length > 500]
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.name}")
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    functions.sort()
    assert functions[int(len(functions) * 0.9)][0] <= 30
    assert functions[-1][0] <= 80, functions[-5:]


def test_every_page_is_in_the_navigation() -> None:
    """Of the documentation site, which `./dev docs` builds."""
    listed = re.findall(r"^ *- [^:]+: (\S+\.md)$", (ROOT / "docs" / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert set(pages) <= set(listed), f"docs/mkdocs.yml lacks {sorted(set(pages) - set(listed))}"
    assert len(listed) == len(set(listed))


def test_locked_packages_are_installed_from_wheels_alone() -> None:
    """pip would execute the newest build backends of the index for a source distribution, which no hash
    locks."""
    lines = [
        line
        for path in (ROOT / "dev", *SOURCES, *(ROOT / "docs").glob("*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "--require-hashes" in line and "-r" in line
    ]
    assert len(lines) >= 4
    assert not [line for line in lines if "--only-binary" not in line and "*options" not in line]
    calls = [
        line
        for line in (ROOT / "cmake" / "zstd.cmake").read_text(encoding="utf-8").splitlines()
        if "${pip}" in line
    ]
    assert ["--only-binary" in line or "--no-build-isolation" in line for line in calls] == [True, True]
    names = [
        path.name for path in (ROOT / "cmake").glob("*.cmake") if "-m pip" in path.read_text(encoding="utf-8")
    ]
    assert names == ["zstd.cmake"]
