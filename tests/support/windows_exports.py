"""Generator of the DLL's export table: each symbol by mingw's and by MSVC's name.

`python -m tests.support.windows_exports` writes the table of every API level again after a change of
compat/api_levels.yaml; a test does the same and compares. Needs clang.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotforge.base.child_processes import run_child, tool_environment
from aotforge.base.manifest_reader import read_yaml
from aotforge.errors import ToolchainError
from aotforge.library.build_windows import exports_file

_INCLUDES = ("runtime/tests/msvc/include", "runtime/src/standin", "runtime/include")
_CLANGS = ("clang-19", "clang-22", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang")
_MSVC, _MINGW = "x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu"
_SYMBOL = r'@(?:"([^"]+)"|([\w.$]+))'
# LLVM's language reference: a pointer's initialiser, a definition's body, a call
_POINTER = re.compile(rf"^@(ref_\d+) = [^@]*{_SYMBOL}", re.MULTILINE)
_MAKER = re.compile(r"^define [^\n]*@make_(\d+)\(.*?^}", re.MULTILINE | re.DOTALL)
_CALL = re.compile(rf"\bcall [^\n@]*{_SYMBOL}\(")
_MEMBER = re.compile(r"^define [^\n]*@(_ZNK?8aotriton10TensorView\w+)\(", re.MULTILINE)
_HEAD = """\
; Exports of aotriton_v2.dll, written by `python -m tests.support.windows_exports` from \
compat/api_levels.yaml: symbols as mingw mangles
; them, then entry points by the names that MSVC gives them. Members of TensorView have no such: the \
compilers call those differently.
LIBRARY aotriton_v2.dll
EXPORTS
"""


def exports_def(root: Path, level: str) -> str:
    """The text of `exports_file` for a checkout and a feature level such as 0.13: `name` or `"MSVC's name" =
    symbol`.

    Raises ToolchainError without a clang that compiles the headers.
    """
    facts = read_yaml(root / "compat" / "api_levels.yaml").values
    functions, classes = _functions(facts, level), _classes(facts, level)
    unit = _unit(functions, classes)
    minor = int(level.partition(".")[2])
    msvc = _compiled(root, unit, _MSVC, minor)
    mingw = _compiled(root, unit + _instances(facts), _MINGW, minor)
    symbols = dict(_entries(mingw))
    # mingw has two symbols of a constructor, for a complete object and for a base; MSVC's callers expect the
    # object as result
    makers = {f"make_{i}": name for i, name in enumerate(classes)}
    plain = {*symbols.values(), *_MEMBER.findall(mingw), "aotforge_cpu_threads", "aotforge_launch"}
    plain |= {symbols[maker].replace("C1E", "C2E") for maker in makers}
    aliases = {
        alias: f"aotforge_msvc_{makers[key].rpartition('::')[2]}" if key in makers else symbols[key]
        for key, alias in _entries(msvc)
    }
    lines = [f"  {name}" for name in sorted(plain)]
    lines += [f'  "{alias}" = {symbol}' for alias, symbol in sorted(aliases.items())]
    return _HEAD + "\n".join(lines) + "\n"


def _functions(facts: Mapping[str, Any], level: str) -> list[str]:
    """Qualified names of the free functions."""
    qualified = []
    for space, declarations in facts["levels"][level]["functions"].items():
        names = [match.group(1) for match in (re.search(r"(\w+)\(", text) for text in declarations) if match]
        qualified += ["::".join(part for part in ("aotriton", space, name) if part) for name in names]
    return qualified


def _classes(facts: Mapping[str, Any], level: str) -> list[str]:
    """Qualified names of the structs whose constructor the library has: those with a version."""
    return [
        f"aotriton::{name}" for name, entry in facts["levels"][level]["structs"].items() if "version" in entry
    ]


def _unit(functions: Sequence[str], classes: Sequence[str]) -> str:
    lines = [
        "#include <aotriton/flash.h>",
        "inline void* operator new(size_t, void* at) { return at; }",
        'extern "C" {',
    ]
    lines += [
        f"extern decltype(&{name}) const ref_{i}; decltype(&{name}) const ref_{i} = &{name};"
        for i, name in enumerate(functions)
    ]
    lines += [f"void make_{i}(void* at) {{ new (at) {name}; }}" for i, name in enumerate(classes)]
    return "\n".join([*lines, "}", ""])


def _instances(facts: Mapping[str, Any]) -> str:
    return "".join(
        f"template class aotriton::TensorView<{rank}>;\n" for rank in facts["tensor_view"]["instantiated"]
    )


def _entries(ir: str) -> list[tuple[str, str]]:
    """(ref_N or make_N, symbol) of everything that `_unit` names."""
    entries = [(key, quoted or bare) for key, quoted, bare in _POINTER.findall(ir)]
    for maker in _MAKER.finditer(ir):
        quoted, bare = _CALL.findall(maker.group(0))[-1]
        entries.append((f"make_{maker.group(1)}", quoted or bare))
    return entries


def _compiled(root: Path, unit: str, target: str, minor: int) -> str:
    """LLVM's text of a translation unit."""
    clang = next((program for name in _CLANGS if (program := shutil.which(name))), None)
    if clang is None:
        raise ToolchainError("no clang found", hint="apt-get install clang-19")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = (root / "runtime" / "include" / "aotriton" / "config.h.in").read_text(encoding="utf-8")
        (folder / "aotriton").mkdir()
        config = re.sub(r"@\w+@", "0", template.replace("@AOTRITON_VERSION_MINOR@", str(minor)))
        (folder / "aotriton" / "config.h").write_text(config, encoding="utf-8")
        # as the library itself sees the headers: an imported function's address is not a constant
        command = [clang, f"--target={target}", "-std=c++17", "-O0", "-nostdinc++", "-fno-exceptions"]
        command += ["-Daotriton_v2_EXPORTS"]
        command += [f"-I{path}" for path in (folder, *(root / part for part in _INCLUDES))]
        command += ["-S", "-emit-llvm", "-x", "c++", "-", "-o", "-"]
        done = run_child(command, environment=tool_environment(), input=unit, capture_output=True)
    if done.returncode != 0:
        raise ToolchainError(f"{clang} does not compile the headers for {target}", cause=done.stderr[:500])
    return done.stdout


if __name__ == "__main__":
    _root = Path(__file__).resolve().parents[2]
    for _level in read_yaml(_root / "compat" / "api_levels.yaml").values["levels"]:
        _file = exports_file(_level)
        (_root / _file).write_text(exports_def(_root, _level), encoding="utf-8")
        sys.stdout.write(f"{_file}\n")
