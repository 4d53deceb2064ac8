"""Another name for a Windows library: a module without code whose every export leads to the library itself.

Windows has no symlinks that a loader follows to one module: a copy under a second name would be loaded a second time, with
globals of its own. A forwarder is loaded beside the library, and both names share the library's one state.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotforge.base.files import write_atomic
from aotforge.errors import RuntimeBuildError, ToolchainError, UnsupportedError
from aotforge.formats.pe import Export, exports, imports
from aotforge.library.build_tools import tool_environment
from aotforge.library.dl import TARGET

_MODULE = re.compile(r"[A-Za-z0-9_+-]+\.dll")
_NAME = re.compile(r"[\x21-\x7e]+")
_LINK_SECONDS = 120
_DLLTOOLS = (
    "llvm-dlltool",
    "llvm-dlltool-22",
    "llvm-dlltool-19",
    "llvm-dlltool-18",
    "llvm-dlltool-16",
    "llvm-dlltool-14",
)


@dataclass(frozen=True, kw_only=True)
class Forwarder:
    """`module` is `<name>.dll`, `msvc` its import library `<name>.lib`, `gnu` `lib<name>.dll.a`; `names` are what it forwards."""

    module: Path
    msvc: Path
    gnu: Path
    names: tuple[str, ...]


def forwarder_definition(name: str, target: str, symbols: Sequence[Export]) -> str:
    """The module-definition file of `name` (a .dll), which forwards `symbols` to the module `target`.

    Raises UnsupportedError for a module name with further dots, which Windows would take for the end of the module's name in
    "module.symbol", for the target's own name, and for symbols that have no name.
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
            raise UnsupportedError(f"{target} exports number {symbol.ordinal} without a name")
        if not _NAME.fullmatch(symbol.name) or '"' in symbol.name:
            raise UnsupportedError(f"{target} exports {symbol.name!r}, which no definition file can name")
        kind = " DATA" if symbol.data else ""
        lines.append(f'  "{symbol.name}" = {target.removesuffix(".dll")}."{symbol.name}"{kind}')
    return "\n".join(lines) + "\n"


def build_forwarder(
    library: Path, *, name: str, output: Path, environment: Mapping[str, str] | None = None
) -> Forwarder:
    """Writes `name` (a .dll) with its two import libraries into `output`; it forwards everything that `library` exports.

    The bytes depend on names only. Raises ToolchainError, RuntimeBuildError, UnsupportedError, OutputError.
    """
    env = tool_environment(os.environ if environment is None else environment)
    gcc = _tool(
        ((environment or os.environ).get("AOTFORGE_MINGW_CC") or f"{TARGET}-gcc-posix",),
        "g++-mingw-w64-x86-64-posix",
        env,
    )
    dlltool = _tool(_DLLTOOLS, "llvm-19", env)
    try:
        symbols = exports(library.read_bytes())
    except OSError as error:
        raise RuntimeBuildError(
            f"{library} cannot be read: {error.strerror}", hint="build the library first"
        ) from error
    if not symbols:
        raise RuntimeBuildError(f"{library} exports nothing")
    stem = name.removesuffix(".dll")
    files = (name, f"{stem}.lib", f"lib{stem}.dll.a")
    with tempfile.TemporaryDirectory(prefix="aotforge-forwarder-") as work:
        folder = Path(work)
        (folder / "names.def").write_text(forwarder_definition(name, library.name, symbols))
        link = [
            gcc,
            "-shared",
            "-nostdlib",
            "-s",
            "-Wl,--no-insert-timestamp,--entry=0",
            f"-Wl,--out-implib,{files[2]}",
        ]
        _run([*link, "names.def", "-o", name], folder, env)
        plain = ["EXPORTS", *(f"{symbol.name}{' DATA' if symbol.data else ''}" for symbol in symbols)]
        (folder / "plain.def").write_text("\n".join([f"LIBRARY {name}", *plain]) + "\n")
        _run([dlltool, "-m", "i386:x86-64", "-d", "plain.def", "-l", files[1]], folder, env)
        _check((folder / name).read_bytes(), symbols, library)
        for file in files:
            write_atomic(output / file, (folder / file).read_bytes())
    module, msvc, gnu = (output / file for file in files)
    return Forwarder(module=module, msvc=msvc, gnu=gnu, names=tuple(str(symbol.name) for symbol in symbols))


def _check(data: bytes, symbols: Sequence[Export], library: Path) -> None:
    target = library.name.removesuffix(".dll")
    made = {symbol.name: symbol.forward for symbol in exports(data)}
    if made != {symbol.name: f"{target}.{symbol.name}" for symbol in symbols} or imports(data):
        raise RuntimeBuildError(f"the forwarder to {library.name} does not forward what that library exports")


def _tool(names: tuple[str, ...], package: str, env: Mapping[str, str]) -> str:
    for name in names:
        if found := shutil.which(name, path=env.get("PATH", "")):
            return found
    raise ToolchainError(f"no {names[0]} found", hint=f"apt-get install {package}")


def _run(command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=_LINK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{command[0]} does not run: {error}") from error
    if done.returncode != 0:
        raise RuntimeBuildError(
            f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-500:]}"
        )
