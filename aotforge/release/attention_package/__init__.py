"""Loads this release's attention library before PyTorch does; changes no file of PyTorch.

The loader takes a library that is already loaded for a later dependency on its SONAME. So PyTorch's
`libtorch_hip.so` gets this
package's library instead of the one in `torch/lib`, and the library finds the images beside its own file. A
`.pth` file (from
Python 3.15 on a `.start` file) imports this package when Python starts; `import aotforge_attention` before
torch does the same.
Without a PyTorch that needs this library nothing is loaded: `python -m aotforge_attention` shows the reason.
"""

from __future__ import annotations

import os
import sys

from . import release_facts as facts

LIBRARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
IMAGES = "aotriton.images"
SWITCH = "AOTFORGE_ATTENTION"
"""Environment variable: 0 loads nothing, 1 loads the library whatever GPUs the machine has."""

_WINDOWS = os.name == "nt"
_PREFIX = "aotriton_v2.dll" if _WINDOWS else "libaotriton_v2.so"
_HIP = "torch_hip.dll" if _WINDOWS else "libtorch_hip.so"
_DEVICE_WHEEL = "amd_torch_device_"
_NODES = "/sys/class/kfd/kfd/topology/nodes"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_TABLE_LIMIT = 1 << 24
"""Bytes of names, or of dynamic tags, that are read of a library; libtorch_hip.so has a hundredth of it."""


class Status:
    """What was found, and `library`, the file that is loaded; None with the `reason` why not and a `hint`."""

    def __init__(self) -> None:
        self.library: str | None = None
        self.reason = ""
        self.hint = ""
        self.torch_lib: str | None = None
        self.needed: tuple[str, ...] = ()
        self.level = ""
        self.gpus: tuple[str, ...] = ()
        self.packs: tuple[str, ...] = ()


status = Status()


def preload() -> Status:
    """Loads the library if the installed PyTorch needs it and the machine's GPUs have images. Raises
    nothing."""
    if status.library is None:
        _examine(status)
        if not status.reason:
            _load(status)
    return status


def start() -> None:
    """`preload` for `.start` and `.pth` files."""
    preload()


def _load(state: Status) -> None:
    import ctypes  # noqa: PLC0415 - a millisecond of every start of Python

    own = path = os.path.join(LIBRARIES, facts.NAMES[0])
    try:
        for name in state.needed:
            is_listed = name in facts.NAMES
            path = os.path.join(LIBRARIES, name) if is_listed else own
            ctypes.CDLL(path)
            if not is_listed:
                ctypes.CDLL(_alias(name))
    except OSError as error:
        state.reason = f"{path} cannot be loaded: {error}"
        state.hint = "install the wheel again, for this platform"
        return
    state.library = own


def _alias(name: str) -> str:
    """The path of a library in memory which gives ours the name of a point release that is not in the
    wheel."""
    import importlib  # noqa: PLC0415 - as ctypes above

    content = importlib.import_module(f"{__name__}.library_alias").library_alias(name, facts.NAMES[0])
    handle = os.memfd_create(name)
    os.write(handle, content)
    return f"/proc/self/fd/{handle}"


def _examine(state: Status) -> None:
    state.torch_lib = torch_lib()
    hip = os.path.join(state.torch_lib or "", _HIP)
    if state.torch_lib and _WINDOWS:
        state.level = header_level(state.torch_lib)
        state.needed = (_PREFIX,) if state.level else ()
    elif state.torch_lib:
        state.needed = needed_names(hip)
        state.level = ", ".join(sorted({_level(name) for name in state.needed}))
    state.packs = installed_packs(LIBRARIES)
    state.gpus = wheel_archs(state.torch_lib or "") if _WINDOWS else machine_archs()
    state.reason, state.hint = (
        _process_obstacle() or _torch_obstacle(state) or _image_obstacle(state) or ("", "")
    )


def _process_obstacle() -> tuple[str, str] | None:
    """Why nothing is to be loaded, and what to do; the same of the next two."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 is set", f"unset {SWITCH}"
    if "torch" in sys.modules:
        return "PyTorch was imported before", "import aotforge_attention first"
    return None


def _torch_obstacle(state: Status) -> tuple[str, str] | None:
    if state.torch_lib is None:
        return "no PyTorch is installed here", "install a ROCm build of PyTorch into this environment"
    if not os.path.isfile(os.path.join(state.torch_lib, _HIP)):
        return f"this PyTorch is not built for ROCm: {state.torch_lib} has no {_HIP}", "install a ROCm build"
    if not state.needed:
        return f"{_HIP} needs no {_PREFIX}", "this PyTorch was built without AOTriton: install another"
    own = ".".join(facts.VERSION.split(".")[:2])
    if state.level != own:
        return (
            f"this PyTorch needs {', '.join(state.needed)} of {state.level}, and this wheel serves {own}.*",
            _install(f"aotforge-attention=={state.level.partition(',')[0]}.*"),
        )
    return None


def _level(name: str) -> str:
    """0.12 of libaotriton_v2.so.0.12.50: every library of a feature release has the same interface."""
    return ".".join(name.split(".")[-3:-1])


def _install(wanted: str) -> str:
    """With the index: on PyPI any user can register these names."""
    return f"pip install --index-url INDEX '{wanted}' (INDEX: where this package was installed from)"


def _image_obstacle(state: Status) -> tuple[str, str] | None:
    extras = ",".join(arch for arch in state.gpus if arch in facts.PACKS) or "ARCH"
    install = _install(f"aotforge-attention[{extras}]=={facts.VERSION}")
    if not state.packs:
        return "no images are installed", install
    if os.environ.get(SWITCH) == "1" or not state.gpus:
        return None
    without = [arch for arch in state.gpus if facts.PACKS.get(arch) not in state.packs]
    if len(without) == len(state.gpus):
        return (
            f"the images are for {', '.join(state.packs)}, and the GPUs here are {', '.join(without)}",
            install,
        )
    own = installed_packs(state.torch_lib or "")
    lost = [arch for arch in without if any(_serves(pack, arch) for pack in own)]
    if lost:
        reason = f"PyTorch has images for {', '.join(lost)}, which this package has not and would replace"
        return reason, f"{install}, or set {SWITCH}=1"
    return None


def torch_lib() -> str | None:
    """The libraries' folder of the PyTorch that `import torch` would take; None without one. Nothing is
    imported."""
    for entry in sys.path:
        folder = os.path.join(str(entry), "torch")
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            return os.path.join(os.path.abspath(folder), "lib")
    return None


def installed_packs(folder: str) -> tuple[str, ...]:
    """Image packs beside a library, by name."""
    images = os.path.join(folder, IMAGES)
    try:
        return tuple(sorted(name for name in os.listdir(images) if os.path.isdir(os.path.join(images, name))))
    except OSError:
        return ()


def machine_archs(nodes: str = _NODES) -> tuple[str, ...]:
    """The archs of this machine's AMD GPUs, sorted, as the kernel's driver lists them; () where it cannot be
    read."""
    archs = set()
    try:
        for node in os.listdir(nodes):
            with open(os.path.join(nodes, node, "properties"), encoding="ascii", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "gfx_target_version" and value.strip().isdigit() and int(value):
                        version = int(
                            value
                        )  # 90010 is gfx90a: two decimal digits each for minor and stepping
                        archs.add(f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}")
    except OSError:
        return ()
    return tuple(sorted(archs))


def wheel_archs(torch_lib: str) -> tuple[str, ...]:
    """The archs of AMD's device wheels beside a PyTorch, sorted: where no driver lists GPUs, those that it is
    installed for."""
    try:
        names = os.listdir(os.path.join(torch_lib, "..", ".."))
    except OSError:
        return ()
    archs = {name[len(_DEVICE_WHEEL) :].partition("-")[0] for name in names if name.startswith(_DEVICE_WHEEL)}
    return tuple(
        sorted(arch for arch in archs if len(arch) > len("gfx11") and not {"x", "_"} & set(arch[3:]))
    )


def header_level(torch_lib: str) -> str:
    """0.12 of a PyTorch that was compiled with AOTriton 0.12, by the headers beside it; empty without them.

    A DLL has one name at every level.
    """
    defined = {}
    try:
        path = os.path.join(torch_lib, "..", "include", "aotriton", "config.h")
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) == 3 and words[0] == "#define":
                    defined[words[1]] = words[2].rstrip("u")
    except OSError:
        return ""
    numbers = [defined.get(f"AOTRITON_VERSION_{part}", "") for part in ("MAJOR", "MINOR")]
    return ".".join(numbers) if all(number.isdigit() for number in numbers) else ""


def _serves(pack: str, arch: str) -> bool:
    """Whether a pack's name means the arch; an x is any digit: amd-gfx11xx."""
    name = pack[4:]  # after the vendor
    pairs = zip(name, arch)  # noqa: B905 - Python 3.9
    return len(name) == len(arch) and all(char in ("x", other) for char, other in pairs)


def needed_names(path: str) -> tuple[str, ...]:
    """The AOTriton libraries that an ELF file depends on; () for a file that is not a readable library."""
    try:
        with open(path, "rb") as file:
            header = file.read(64)
            if header[:6] != b"\x7fELF\x02\x01":
                return ()
            file.seek(_number(header, 32, 8))
            size, count = _number(header, 54, 2), _number(header, 56, 2)
            table = file.read(size * count)
            rows = [table[i * size : (i + 1) * size] for i in range(count)]
            segments = {
                kind: [row for row in rows if _number(row, 0, 4) == kind] for kind in (_PT_LOAD, _PT_DYNAMIC)
            }
            dynamic = segments[_PT_DYNAMIC][0]
            file.seek(_number(dynamic, 8, 8))
            data = file.read(min(_number(dynamic, 32, 8), _TABLE_LIMIT))
            tags = [(_number(data, at, 8), _number(data, at + 8, 8)) for at in range(0, len(data), 16)]
            values = dict(tags)
            address = values[_DT_STRTAB]
            offset = next(
                address - _number(row, 16, 8) + _number(row, 8, 8)
                for row in segments[_PT_LOAD]
                if 0 <= address - _number(row, 16, 8) < _number(row, 32, 8)
            )
            file.seek(offset)
            names = file.read(min(values[_DT_STRSZ], _TABLE_LIMIT))
            needed = [names[at : names.index(b"\0", at)].decode() for tag, at in tags if tag == _DT_NEEDED]
    except (OSError, ValueError, LookupError, StopIteration, OverflowError, MemoryError):
        return ()
    return tuple(name for name in needed if name.startswith(_PREFIX))


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


preload()
