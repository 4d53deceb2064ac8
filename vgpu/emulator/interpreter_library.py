"""The interpreter as a library: generated C text, compiled and loaded.

Only the instructions that programs use are compiled, and only once per compiler, processor and wavefront
width; those that access memory, and the rest of the interpreter, once per variant too. A cache folder may be
shared between machines.
"""

import ctypes
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from vgpu.cache import default_cache, processor
from vgpu.emulator import native
from vgpu.emulator.generate import Variant, handler, headers, machine, touches_memory
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.errors import ToolchainError
from vgpu.native_code import NativeCode, c_compiler, is_intact

_NATIVE = NativeCode("the interpreter", "emulator-1", "GNU C11")
_FLAGS = (
    "-std=gnu11 -O2 -ftree-vectorize -march=native -fno-strict-aliasing -ffp-contract=off -fno-math-errno "
    "-fno-trapping-math -fno-tree-vrp -fno-tree-pre -fno-gcse -fno-ipa-cp -fno-schedule-insns2 -fPIC -w"
)
"""Passes that are off take a seventh of the compiler's time and make no handler faster."""
_LINK = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,defs")
"""-Bsymbolic: the virtual HIP loads it into programs that may have a `run` or `step` of their own."""
_SMALLEST = 40
"""Handlers of one compiler process rather than two: its start takes as long as 20 handlers."""
_LIBRARY, _OBJECT, _NAMES = "interpreter.so", "handlers.o", "names"
_loaded: dict[tuple[int, Path, Variant], list[tuple[frozenset[str], ctypes.CDLL]]] = {}


def load_library(
    lanes: int, folder: Path | None = None, variant: Variant = "plain", names: Iterable[str] | None = None
) -> ctypes.CDLL:
    """The interpreter with handlers of these instructions (None: all). Raises ToolchainError, CacheError."""
    wanted = frozenset(INSTRUCTIONS if names is None else names)
    known = _loaded.setdefault((lanes, folder or default_cache(), variant), [])
    for has, library in known:
        if wanted <= has:
            return library
    path = build_library(lanes, folder or default_cache(), variant, wanted)
    known.append((wanted, _opened(path, lanes)))
    return known[-1][1]


def use_library(path: Path, lanes: int, folder: Path | None = None, variant: Variant = "plain") -> None:
    """Loads a library of `build_library` for `load_library` to return, without a compiler. Raises OSError."""
    names = (line.split()[0] for line in (path.parent / _NAMES).read_text().splitlines())
    known = _loaded.setdefault((lanes, folder or default_cache(), variant), [])
    known.append((frozenset(names), _opened(path, lanes)))


def _opened(path: Path, lanes: int) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.size_of.restype = ctypes.c_uint64
    library.handler.restype = ctypes.c_void_p
    library.handler.argtypes = [ctypes.c_uint32]
    library.run.argtypes = [ctypes.POINTER(native.Launch)]
    library.step.argtypes = [ctypes.c_void_p, ctypes.POINTER(native.Instruction)]
    library.step.restype = None
    expected = native.sizes(lanes)
    found = tuple(int(library.size_of(what)) for what in range(4))
    if found != expected:
        raise ToolchainError(
            f"the compiled interpreter lays out its structures differently: {found} instead of {expected}",
            cause="a compiler with another ABI than Python's",
            hint="set CC to the system's compiler",
        )
    return library


def build_library(
    lanes: int,
    folder: Path,
    variant: Variant = "plain",
    names: Iterable[str] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Path:
    """Compiles and links unless a library with these handlers is there; processes may race."""
    wanted = _digests(INSTRUCTIONS if names is None else names)
    command = [*c_compiler(), *_FLAGS.split(), f"-DLANES={lanes}"]
    common = [*_NATIVE.identity(command), processor()]
    text = machine(variant)
    libraries = _store(folder, "lib", [*common, text, headers("plain")])
    for path, has in libraries.entries():
        if wanted.items() <= has.items():
            return path / _LIBRARY
    if on_stage:
        on_stage(f"compiling the virtual GPU's interpreter: {len(wanted)} instructions, {lanes} lanes")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        machines = threads.submit(_machine_object, folder, command, common, text)
        objects: list[Path] = []
        handlers: dict[str, str] = {}
        for kind, accesses in ((variant, True), ("plain", False)):
            store = _store(folder, "set", [*common, headers(kind), f"accesses: {accesses}"])
            part = {name: wanted[name] for name in wanted if touches_memory(name) is accesses}
            made, has = _objects(store, command, headers(kind), part, threads)
            objects, handlers = objects + made, handlers | has
        objects.append(machines.result())

    def build(made: Path) -> None:
        _NATIVE.run([*c_compiler(), *_LINK, "-o", str(made / _LIBRARY), *map(str, objects), "-lm"])

    return libraries.add(handlers, build) / _LIBRARY


def _machine_object(folder: Path, command: Sequence[str], common: Sequence[str], text: str) -> Path:
    return _NATIVE.store(folder, [*common, text], lambda made: _compile(command, text, made), suffix=".o")


def _compile(command: Sequence[str], text: str, made: Path) -> None:
    source = made.with_suffix(".c")
    source.write_text(text)
    _NATIVE.run([*command, "-c", "-o", str(made), str(source)])


def _digests(names: Iterable[str]) -> dict[str, str]:
    """Digests of the texts of handlers, by name."""
    return {name: hashlib.sha256(handler(name).encode()).hexdigest()[:16] for name in sorted(set(names))}


@dataclass(frozen=True, kw_only=True)
class _Store:
    """Folders in the cache, each made from handlers and listing them. `end`: digest of all else in them."""

    folder: Path
    end: str

    def entries(self) -> list[tuple[Path, dict[str, str]]]:
        """Folders and digests of their handlers."""
        found = sorted((self.folder.absolute() / _NATIVE.folder).glob(f"*{self.end}"))
        return [
            (path, dict(line.split() for line in (path / _NAMES).read_text().splitlines() if line))
            for path in found
            if is_intact(path)
        ]

    def add(self, handlers: Mapping[str, str], build: Callable[[Path], None]) -> Path:
        """Make one unless it is there; `build` gets a new folder."""
        lines = [f"{name} {digest}" for name, digest in sorted(handlers.items())]

        def complete(made: Path) -> None:
            made.mkdir()
            (made / _NAMES).write_text("\n".join(lines) + "\n")
            build(made)

        return _NATIVE.store(self.folder, [self.end, *lines], complete, suffix=self.end)


def _store(folder: Path, kind: str, parts: Sequence[str]) -> _Store:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return _Store(folder=folder, end=f".{digest[:16]}.{kind}")


def _objects(
    store: _Store, command: Sequence[str], text: str, wanted: Mapping[str, str], threads: ThreadPoolExecutor
) -> tuple[list[Path], dict[str, str]]:
    """All objects of the present sources, `text` before them, and their handlers: a library with those of
    earlier programs serves later ones. What is wanted and none has is compiled now."""

    def compiled(handlers: Mapping[str, str]) -> Path:
        source = "\n".join([text, *map(handler, handlers)])
        return store.add(handlers, lambda made: _compile(command, source, made / _OBJECT)) / _OBJECT

    stored = store.entries()
    present = _digests({name for _, has in stored for name in has} & INSTRUCTIONS.keys())
    used = [(path / _OBJECT, has) for path, has in stored if has.items() <= present.items()]
    known = {name: digest for _, has in used for name, digest in has.items()}
    made = threads.map(compiled, _parts(sorted(wanted.items() - known.items())))
    return [*(path for path, _ in used), *made], {**known, **wanted}


def _parts(handlers: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Handlers for one compiler process each."""
    count = min(len(os.sched_getaffinity(0)), math.ceil(len(handlers) / _SMALLEST))
    return [dict(handlers[number::count]) for number in range(count)]
