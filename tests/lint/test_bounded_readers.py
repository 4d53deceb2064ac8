"""Files that others may have made are read by the bounded readers; every other use of a parser is listed with the reason.

`aotforge/formats` has one bounded reader of each format: `parse_json`, `read_archive`, `open_zip`, `open_elf`, `read_module`. A parser
of a library takes many times a file's bytes: 29 for JSON, any number for archives with long names and tables that point to one text.
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
    "elftools.elf.elffile.ELFFile", "aotforge.formats.elf.read_elf", "model_validate_json", "memfd_create",
})  # fmt: skip
"""Functions by module, and methods of any object by name. A file in memory is here because a child can write to
it without end."""

_MODULES = re.compile(rf"\b({'|'.join({name.split('.')[-2:][0] for name in PARSERS})})\b")

READERS: tuple[tuple[str, str, str], ...] = (
    ("aotforge/formats/untrusted_file.py", "json.loads", "parse_json"),
    ("aotforge/formats/untrusted_tar.py", "zlib.decompressobj", "read_archive"),
    ("aotforge/formats/zip_archive.py", "zipfile.ZipFile", "open_zip, and the check of a zip that was just written"),
    ("aotforge/formats/shared_library.py", "elftools.elf.elffile.ELFFile", "open_elf"),
    ("aotforge/base/yaml_reader.py", "yaml.compose", "read_yaml, of manifests"),
    ("aotforge/pack/frames.py", "zstandard.ZstdDecompressor", "frames of a pack: sizes and window are bounded"),
    ("aotforge/pack/signature.py", "model_validate_json", "a megabyte at most"),
    ("aotforge/conformance/candidate.py", "model_validate_json", "after check_json"),
    ("aotforge/deliver/dropin/apply.py", "model_validate_json", "after check_json"),
    ("aotforge/devtools/tune/sources.py", "model_validate_json", "after parse_json"),
)  # fmt: skip
"""The bounded readers themselves."""

_OWN = "a file of this build, or of this user's cache"
_PINNED = "its SHA-256 is locked and compared before"
_CODE = "source code of the checkout or of installed packages, which are executed anyway"
_SIDE = "workers of a build are one side with it, see docs/threat-model.md"
_IMAGE = "images of a pack, whose symbols its reader has counted, or of this build"
EXCEPTIONS: tuple[tuple[str, str, str], ...] = (
    ("aotforge/release/attention_package/__init__.py", "memfd_create", "a library that this package makes"),
    ("aotforge/sandbox/executors/local.py", "memfd_create", "sealed: it cannot grow"),
    ("aotforge/compile/pool.py", "memfd_create", "of a worker of this user, or in a container, whose memory is limited"),
    ("aotforge/compile/*.py", "json.loads", f"{_OWN}; or of a shared cache, whose signed index has its digest"),
    ("aotforge/compile/cache_entry.py", "zstandard.ZstdDecompressor", f"{_OWN}; or of a shared cache, as above"),
    ("aotforge/conformance/checks/names.py", "json.JSONDecoder", "clang's output, whose size is bounded: a low finding of the ninth review"),
    ("aotforge/conformance/compilers.py", "json.loads", _OWN),
    ("aotforge/deliver/hardware/torch_attention.py", "json.load", "the request of the process that started it"),
    ("aotforge/devtools/docs_site.py", "tarfile.open", _PINNED),
    ("aotforge/devtools/tune/cluster_estimates.py", "json.loads", _SIDE),
    ("aotforge/devtools/tune/search.py", "json.loads", f"{_OWN}; or of a shared cache, whose signed index has its digest"),
    ("aotforge/formats/archive.py", "tarfile.open gzip.open", "an archive that was just written, after a comparison of its digest"),
    ("aotforge/formats/deb.py", "tarfile.open zstandard.ZstdDecompressor", _PINNED),
    ("aotforge/formats/wheel.py", "zipfile.ZipFile", _PINNED),
    ("aotforge/library/library_build.py", "json.loads", _OWN),
    ("aotforge/library/sources.py", "tarfile.open", _PINNED),
    ("aotforge/pipeline/ci_jobs/changes.py", "tarfile.open", "git archive of this repository"),
    ("aotforge/pipeline/ci_jobs/*.py", "json.loads", "outputs of earlier jobs of the same workflow"),
    ("aotforge/pipeline/cluster/messages.py", "json.loads", _SIDE),
    ("aotforge/pipeline/make_release.py", "json.loads", _OWN),
    ("aotforge/pipeline/reproduce.py", "json.loads", "output of this checkout's own program"),
    ("aotforge/plan/closure.py", "ast.parse", _CODE),
    ("aotforge/plan/context.py", "ast.literal_eval", _CODE),
    ("aotforge/plan/model.py", "json.loads", _OWN),
    ("aotforge/publish/trust.py", "json.loads", "metadata whose signatures were verified"),
    ("aotforge/release/console_wheel.py", "tomllib.loads", "pyproject.toml of the checkout"),
    ("aotforge/release/hf_kernel.py", "aotforge.formats.elf.read_elf", "the library of this build"),
    ("aotforge/release/layout.py", "json.loads", "a text of the same function"),
    ("aotforge/sandbox/executors/agent.py", "json.loads tarfile.open", "the step that the build sends; it runs without this package"),
    ("aotforge/sandbox/executors/podman.py", "json.loads", "output of podman"),
    ("aotforge/sandbox/rootfs/definitions.py", "model_validate_json", "a lock of the checkout"),
    ("aotforge/sandbox/rootfs/rootfs_cache.py", "json.loads tarfile.open", f"{_OWN}; {_PINNED}"),
    ("aotforge/targets/cpu/cache.py", "json.loads", "Triton's cache, whose owner and modes were checked"),
    ("aotforge/targets/amd/loaded.py", "aotforge.formats.elf.read_elf", f"{_IMAGE}; its segments are bounded before"),
    ("aotforge/targets/cpu/image.py", "aotforge.formats.elf.read_elf", _IMAGE),
    ("aotforge/targets/nvidia/cubin.py", "aotforge.formats.elf.read_elf", _IMAGE),
    ("aotforge/toolchain/*.py", "ast.parse csv.reader", _CODE),
    ("aotforge/verify/verdict_store.py", "json.loads", _OWN),
    ("aotforge/verify/verifier_digest.py", "ast.parse", _CODE),
    ("aotforge/virtual_gpu/emulator/*.py", "aotforge.formats.elf.read_elf", _IMAGE),
    ("aotforge/virtual_gpu/emulator/lines.py", "elftools.elf.elffile.ELFFile", "an image that this process has just compiled"),
    ("aotforge/virtual_gpu/hip/prepare.py", "json.loads", _OWN),
)  # fmt: skip
"""Files, the parsers that they use, and why no file of others reaches them."""


@cache
def calls_by_file() -> dict[str, list[tuple[int, str]]]:
    """Line numbers and parsers of all sources."""
    names = sorted(name for name in project_files(ROOT) if name.startswith(("aotforge/", "kernels/")))
    sources = [name for name in (*names, "tasks.py") if name.endswith(".py") and (ROOT / name).is_file()]
    assert len(sources) > 350
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
