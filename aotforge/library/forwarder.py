"""Forwarder: a Windows module under another name that forwards every export to the library.

Windows loaders do not follow symlinks to one module: a copy under a second name would be loaded a second
time, with globals of its own. With a forwarder, both names share the library's one state.
"""

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import read_bytes, write_atomic
from aotforge.errors import RuntimeBuildError, UnsupportedError
from aotforge.formats.pe import Export, exports, imports
from aotforge.library.build_tools import find_compiler, find_dlltool, run_tool

_MODULE = re.compile(r"[A-Za-z0-9_+-]+\.dll")
_NAME = re.compile(r"[\x21-\x7e]+")
_LINK_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Forwarder:
    """The .dll, its import libraries for MSVC and GNU linkers, and the `names` that it forwards."""

    module: Path
    msvc: Path
    gnu: Path
    names: tuple[str, ...]


def forwarder_definition(name: str, target: str, symbols: Sequence[Export]) -> str:
    """The module-definition file of `name` (a .dll), which forwards `symbols` to the module `target`.

    Raises UnsupportedError for a module name with further dots, which would end the module's name in
    "module.symbol", for the target's own name, and for symbols without a name.
    """
    for module in (name, target):
        if not _MODULE.fullmatch(module):
            raise UnsupportedError(
                f"{module} cannot take part in forwarding", hint="use letters, digits, _, + and -, then .dll"
            )
    if name.lower() == target.lower():
        raise UnsupportedError(f"{name} would forward to itself", hint="choose another name")
    lines = [f'LIBRARY "{name}"', "EXPORTS"]
    for symbol in symbols:
        if symbol.name is None:
            raise UnsupportedError(f"{target} exports ordinal {symbol.ordinal} without a name")
        if not _NAME.fullmatch(symbol.name) or '"' in symbol.name:
            raise UnsupportedError(f"{target} exports {symbol.name!r}, which a definition file cannot name")
        kind = " DATA" if symbol.data else ""
        lines.append(f'  "{symbol.name}" = {target.removesuffix(".dll")}."{symbol.name}"{kind}')
    return "\n".join(lines) + "\n"


def build_forwarder(
    library: Path, *, name: str, output: Path, environment: Mapping[str, str] | None = None
) -> Forwarder:
    """Writes `name` (a .dll) with its two import libraries into `output`; it forwards everything that
    `library` exports.

    The bytes depend on names only. Raises ToolchainError, RuntimeBuildError, UnsupportedError, OutputError.
    """
    given = os.environ if environment is None else environment
    gcc, dlltool = find_compiler(given), str(find_dlltool(given))
    symbols = exports(read_bytes(library, RuntimeBuildError, hint="build the library first"))
    if not symbols:
        raise RuntimeBuildError(f"{library} exports nothing")
    stem = name.removesuffix(".dll")
    module, msvc, gnu = name, f"{stem}.lib", f"lib{stem}.dll.a"
    with tempfile.TemporaryDirectory(prefix="aotforge-forwarder-") as work:
        folder = Path(work)
        (folder / "names.def").write_text(forwarder_definition(name, library.name, symbols))
        plain = ["EXPORTS", *(f"{symbol.name}{' DATA' if symbol.data else ''}" for symbol in symbols)]
        (folder / "plain.def").write_text("\n".join([f"LIBRARY {name}", *plain]) + "\n")
        link = [gcc, "-shared", "-nostdlib", "-s", "-Wl,--no-insert-timestamp,--entry=0"]
        link += [f"-Wl,--out-implib,{gnu}", "names.def", "-o", module]
        for command in (link, [dlltool, "-m", "i386:x86-64", "-d", "plain.def", "-l", msvc]):
            done = run_tool(command, given, seconds=_LINK_SECONDS, folder=folder)
            if done.returncode != 0:
                printed = (done.stderr or done.stdout).strip()[-500:]
                raise RuntimeBuildError(f"{Path(command[0]).name} failed: {printed}")
        _check((folder / name).read_bytes(), symbols, library)
        for file in (module, msvc, gnu):
            write_atomic(output / file, (folder / file).read_bytes())
    return Forwarder(
        module=output / module,
        msvc=output / msvc,
        gnu=output / gnu,
        names=tuple(str(symbol.name) for symbol in symbols),
    )


def _check(data: bytes, symbols: Sequence[Export], library: Path) -> None:
    target = library.name.removesuffix(".dll")
    forwarded = {symbol.name: symbol.forward for symbol in exports(data)}
    if forwarded != {symbol.name: f"{target}.{symbol.name}" for symbol in symbols} or imports(data):
        raise RuntimeBuildError(f"the forwarder to {library.name} does not forward that library's exports")
