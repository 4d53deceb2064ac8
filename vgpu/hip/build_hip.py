"""Build of the virtual HIP library, once per sources, compiler and Python."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpu.emulator.targets import amd_archs, find_arch, simplified
from vgpu.errors import ToolchainError, UnsupportedError
from vgpu.native_code import NativeCode

_CODE = NativeCode("the virtual HIP", "virtual-hip-1", "C++17 and libstdc++", "C++")
_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_EMULATOR = _HERE.parent / "emulator" / "native"
_MAJORS = (5, 6, 7)
_FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-static-libstdc++",
    "-Wl,--exclude-libs,ALL",
)  # fmt: skip
_PREPARE = """#!/bin/sh
# Run by libamdhip64.so in this folder: text, proof and binding of an image.
python={python}
root={root}
if [ ! -x "$python" ] || [ ! -d "$root/vgpu" ]; then
    printf '%s\\n' "the Python or the package of this virtual HIP does not exist any more: $python, $root" >&2
    echo 'Next step: build the library again: vgpu env' >&2
    exit 3
fi
# -I: no variable of Python's; PYTHONPATH cannot have a path with a colon
exec "$python" -I -c 'import sys, runpy
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("vgpu.hip.prepare", run_name="__main__", alter_sys=True)' "$root" "$@"
"""


@dataclass(frozen=True, kw_only=True)
class VirtualHip:
    """`folder` holds libamdhip64.so.<major> with its links, and `prepare`."""

    folder: Path
    major: int

    @property
    def library(self) -> Path:
        """The library by its SONAME."""
        return self.folder / f"libamdhip64.so.{self.major}"


def build_virtual_hip(
    cache: Path, *, major: int = 7, environment: Mapping[str, str] | None = None
) -> VirtualHip:
    """The library of HIP release `major`, compiled once into `cache`. Raises ToolchainError, CacheError."""
    if major not in _MAJORS:
        raise ToolchainError(f"there is no virtual HIP {major}", hint="known releases: 5, 6, 7")
    compiler = find_compiler(os.environ if environment is None else environment)
    soname = f"libamdhip64.so.{major}"
    command = [*compiler, *_FLAGS, f"-DVIRTUAL_HIP_MAJOR={major}", f"-Wl,-soname,{soname}"]
    prepare = script(sys.executable, _HERE.parents[1].absolute())
    targets = target_table()
    sources = [
        text
        for path in (*sorted(_NATIVE.iterdir()), _EMULATOR / "serve_abi.h")
        if path.is_file()
        for text in (path.name, path.read_text(encoding="utf-8"))
    ]

    def compile_library(made: Path) -> None:
        made.mkdir()
        (made / "targets.def").write_text(targets)
        # as one source: headers are read once, which takes half of the compiler's time
        together = made / "library.cpp"
        names = sorted(path.name for path in _NATIVE.glob("*.cpp"))
        together.write_text("".join(f'#include "{name}"\n' for name in names))
        folders = [f"-I{path}" for path in (made, _NATIVE, _EMULATOR)]
        _CODE.run([*command, *folders, "-o", str(made / soname), str(together), "-ldl"])

    compiled = _CODE.store(cache, [*_CODE.identity(command), targets, *sources], compile_library)
    # every checkout has its own way to Python, and shares the compiled library
    folder = _CODE.store(
        cache, [compiled.name, prepare], lambda made: _link(made, compiled / soname, prepare)
    )
    return VirtualHip(folder=folder, major=major)


def target_table() -> str:
    """`targets.def`, the rows of `Target` (native/world.h), from the rows of the archs."""
    rows = []
    for arch, row in amd_archs().items():
        device = row["device"]
        numbers = (device["compute_units"], device["memory_gib"], row["wavefront"], row["lds_bytes"])
        names = (device["product"], *row.get("products", ()))
        products = "".join(f" {simplified(one)}" for one in names) + " "
        text = ", ".join(
            f'"{one}"' for one in (arch, device.get("features", ""), device["product"], products)
        )
        # gfx90a: version 9.0, step a
        rows.append(f"TARGET({text}, {', '.join(map(str, numbers))}, {arch[3:-2]}, {arch[-2]})\n")
    return "".join(rows)


def script(python: str, root: Path) -> str:
    """The shell script that runs this package of the checkout `root`; names may contain any characters."""
    return _PREPARE.format(python=shlex.quote(python), root=shlex.quote(str(root)))


def environment(
    virtual: VirtualHip, *, devices: Sequence[str], texts: Sequence[Path], cache: Path
) -> dict[str, str]:
    """Variables by which a program finds library, devices and texts. A device is an arch or product,
    `:xnack+` features other than the product's, `@40` compute units. Raises UnknownNameError,
    UnsupportedError."""
    found = []
    for device in devices:
        name, rest = re.fullmatch(r"([^@:]*)(.*)", device, re.DOTALL).groups()  # type: ignore[union-attr]
        if device != "none":
            name = find_arch(name + rest.split("@")[0])
        found.append(name + rest)
    if missing := [place for place in texts if not place.exists()]:
        raise UnsupportedError(
            f"no assembly texts in {missing[0]}: it does not exist",
            hint="name the asm archive of a release, or a folder of texts",
        )
    return {
        "LD_LIBRARY_PATH": str(virtual.folder),
        "AOTFORGE_VIRTUAL": f"devices={';'.join(found) or 'none'}",
        "AOTFORGE_ASM": ":".join(str(place.absolute()) for place in texts),
        "AOTFORGE_CACHE": str(cache.absolute()),
    }


def exports(variables: Mapping[str, str]) -> str:
    """The variables as lines for a shell. The library path goes before an existing one."""
    lines = []
    for name, value in variables.items():
        rest = '"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' if name == "LD_LIBRARY_PATH" else ""
        lines.append(f"export {name}={shlex.quote(value)}{rest}")
    return "\n".join(lines)


def find_compiler(env: Mapping[str, str]) -> list[str]:
    """The C++ compiler as a command: CXX, else g++ or clang++. Raises ToolchainError."""
    named = shlex.split(env.get("CXX", ""))
    for candidate in [named] if named else [["g++"], ["clang++"], ["c++"]]:
        if found := shutil.which(candidate[0], path=env.get("PATH")):
            return [found, *candidate[1:]]
    raise ToolchainError(
        f"no C++ compiler: {named[0] if named else 'g++'} was not found",
        cause="the virtual HIP is compiled once",
        hint="install g++ or clang, or set CXX",
    )


def _link(folder: Path, library: Path, prepare: str) -> None:
    folder.mkdir()
    (folder / library.name).symlink_to(Path("..") / library.parent.name / library.name)
    (folder / "libamdhip64.so").symlink_to(library.name)
    (folder / "prepare").write_text(prepare)
    (folder / "prepare").chmod(0o755)
