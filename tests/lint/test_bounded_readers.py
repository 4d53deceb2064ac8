"""What `publish`, `deliver` and `formats` read, which may come from elsewhere, is read by the bounded readers.

`aotforge/formats` has one bounded reader of each format: `parse_json`, `read_archive`, `open_zip`, `open_elf`, `read_module`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache

import pytest

from tests.lint.language import ROOT
from tests.support.project_files import project_files

PARSERS = frozenset({
    "json.load", "json.loads", "json.JSONDecoder", "tomllib.load", "tomllib.loads", "csv.reader", "csv.DictReader",
    "tarfile.open", "tarfile.TarFile", "zipfile.ZipFile", "gzip.open", "gzip.GzipFile", "gzip.decompress", "zlib.decompress",
    "zlib.decompressobj", "bz2.open", "bz2.decompress", "lzma.open", "lzma.decompress", "zstandard.ZstdDecompressor", "zstandard.decompress",
    "pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "msgpack.unpackb", "plistlib.loads", "ast.parse", "ast.literal_eval",
    "yaml.load", "yaml.safe_load", "yaml.compose", "xml.etree.ElementTree.parse", "xml.etree.ElementTree.fromstring",
    "elftools.elf.elffile.ELFFile", "vgpu.elf.read_elf", "model_validate_json"
})  # fmt: skip
"""Functions by module, and methods of any object by name."""

_MODULES = re.compile(rf"\b({'|'.join({name.split('.')[-2:][0] for name in PARSERS})})\b")

PACKAGES = ("aotforge/publish/", "aotforge/deliver/", "aotforge/formats/")

READERS: tuple[tuple[str, str, str], ...] = (
    ("aotforge/formats/untrusted_file.py", "json.loads", "parse_json"),
    ("aotforge/formats/untrusted_tar.py", "zlib.decompressobj", "read_archive"),
    ("aotforge/formats/zip_archive.py", "zipfile.ZipFile", "open_zip, and the check of a zip that was just written"),
    ("aotforge/formats/shared_library.py", "elftools.elf.elffile.ELFFile", "open_elf"),
)  # fmt: skip
"""The bounded readers themselves."""

_PINNED = "its SHA-256 is locked and compared before"
EXCEPTIONS: tuple[tuple[str, str, str], ...] = (
    ("aotforge/deliver/dropin/apply.py", "model_validate_json", "the record of this program"),
    ("aotforge/deliver/hardware/torch_attention.py", "json.load", "the request of the process that started it"),
    ("aotforge/formats/archive.py", "tarfile.open gzip.open", "an archive that was just written, after a comparison of its digest"),
    ("aotforge/formats/wheel.py", "zipfile.ZipFile", _PINNED),
    ("aotforge/publish/trust.py", "json.loads", "metadata whose signatures were verified"),
)  # fmt: skip
"""Files, the parsers that they use, and why no file of others reaches them."""


@cache
def calls_by_file() -> dict[str, list[tuple[int, str]]]:
    """Line numbers and parsers of the sources."""
    names = sorted(name for name in project_files(ROOT) if name.startswith(PACKAGES))
    sources = [name for name in names if name.endswith(".py") and (ROOT / name).is_file()]
    assert len(sources) > 50
    return {name: list(calls((ROOT / name).read_text(encoding="utf-8"))) for name in sources}


def calls(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and names of the parsers that a source calls or hands on."""
    if not _MODULES.search(text):
        return
    nodes = list(ast.walk(ast.parse(text)))
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            tops = ((one, one.name.split(".")[0]) for one in node.names)
            modules |= {one.asname or top: one.name if one.asname else top for one, top in tops}
        elif isinstance(node, ast.ImportFrom):
            modules |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    skipped = {id(node.func) for node in nodes if isinstance(node, ast.Call) and _writes(node)}
    skipped |= {id(part) for node in nodes for part in _annotations(node)}
    for node in nodes:
        if id(node) in skipped or not isinstance(node, ast.Name | ast.Attribute):
            continue
        name = _resolved(node, modules)
        for parser in {name, node.attr if isinstance(node, ast.Attribute) else name} & PARSERS:
            yield node.lineno, parser


def _resolved(node: ast.expr, modules: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_resolved(node.value, modules)}.{node.attr}"
    return modules.get(node.id, "") if isinstance(node, ast.Name) else ""


def _writes(call: ast.Call) -> bool:
    """A second argument, or `mode`, that begins with w."""
    modes = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "mode")]
    return any(isinstance(one, ast.Constant) and str(one.value).startswith("w") for one in modes)


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for field in ("annotation", "returns"):
        if isinstance(part := getattr(node, field, None), ast.AST):
            yield from ast.walk(part)


def hits(path: str, found: list[tuple[int, str]]) -> list[str]:
    """Lines with parsers that the file must not use."""
    allowed = {
        word for place, words, _ in (*READERS, *EXCEPTIONS) if fnmatch(path, place) for word in words.split()
    }
    return [f"{path}:{number}: {word}" for number, word in found if word not in allowed]


def test_files_of_others_are_read_by_the_bounded_readers() -> None:
    new = [hit for path, found in calls_by_file().items() for hit in hits(path, found)]
    advice = "use the bounded reader of aotforge/formats, or list why no file of others gets there:"
    assert not new, "\n".join([advice, *new])


def test_every_exception_is_needed() -> None:
    unused = []
    for place, words, reason in (*READERS, *EXCEPTIONS):
        assert reason
        had = {word for path, all in calls_by_file().items() if fnmatch(path, place) for _, word in all}
        unused += [f"{place}: {word}" for word in words.split() if word not in had]
    assert not unused, "\n".join(unused)


@pytest.mark.parametrize(
    "text",
    [
        "import json\njson.loads(data)",
        "import json as j\nj.load(file)",
        "from json import loads\nloads(data)",
        "from elftools.elf.elffile import ELFFile\nELFFile(file)",
        "import tarfile\nwith tarfile.open(path, 'r|*') as tar: pass",
        "import xml.etree.ElementTree\nxml.etree.ElementTree.parse(file)",
        "def f():\n    import zipfile\n    zipfile.ZipFile(path)",
        "import json\nlist(map(json.loads, lines))",
        "\nModel.model_validate_json(data)",
    ],
)
def test_a_new_parser_is_found(text: str) -> None:
    assert hits("aotforge/deliver/new.py", list(calls(text)))


@pytest.mark.parametrize(
    "text",
    [
        "import json\njson.dumps(data)",
        "import tarfile\ntarfile.open(path, 'w:gz')",
        "import tarfile\ntarfile.open(fileobj=file, mode='w')",
        "import gzip\ndef f(file: gzip.GzipFile) -> gzip.GzipFile: pass",
        "loads(data)",
    ],
)
def test_other_calls_are_not_found(text: str) -> None:
    assert not hits("aotforge/deliver/new.py", list(calls(text)))
