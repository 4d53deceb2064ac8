"""Packages for Hugging Face's `kernels`: the operator library and images per build of a framework.

`build/<variant>/` has the Python module, the library, the vendor's image packs, and `metadata.json`. TVM-FFI
calls its functions. Facts: kernel-requirements.md and variants.py of huggingface/kernels 0.17.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from aotforge.base.files import link_or_copy, output_errors, output_lock, staged_folder
from aotforge.base.html import render
from aotforge.errors import ReleaseError
from aotforge.library.build_linux import OPERATOR_LIBRARY
from aotforge.release.model import ReleaseManifest
from aotforge.release.release import Release
from aotforge.release.wheels import LICENCES
from aotforge.rules import Function, Option, OptionalInput
from aotforge.targets.backend import Backend
from aotforge.targets.backends import backend_of_arch
from vgpu.code_object import CodeObjectError, read_elf

NAME = "aotforge-ops"
METADATA = "metadata.json"

_VERSION = 0
"""Of the functions, not of the release; 0 is Hugging Face's for those that may still change."""
_TVM_FFI = "01"
_EXPORTED = "__tvm_ffi_"
_PLATFORM = re.compile(r"(?:manylinux_\d+_\d+|linux)_(\w+)")


def write_hf_kernel(
    build: Path,
    manifest: ReleaseManifest,
    packs: Mapping[str, Sequence[str]],
    functions: Sequence[Function],
    folder: Path,
) -> tuple[str, ...]:
    """Replaces `folder` by the package of the release in `build`; returns the names of its variants.

    `packs`: archs of each image pack. Equal releases give equal bytes. Raises ReleaseError, OutputError.
    """
    release = Release.open(build)
    images = {released.pack.name: released.pack.files for released in release.packs(packs)}
    runtime = release.members(release.runtime)
    variants = dict(hf_variants(manifest, packs, functions, runtime, images, release.runtime.platform))
    with output_lock(folder), staged_folder(folder) as staged:
        written: dict[bytes, Path] = {}
        for variant, files in variants.items():
            for name, data in files.items():
                path = staged / "build" / variant / name
                with output_errors(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if data in written:  # variants of a vendor differ in their names only
                        link_or_copy(written[data], path)
                    else:
                        path.write_bytes(data)
                        written[data] = path
    return tuple(variants)


def hf_variants(
    manifest: ReleaseManifest,
    packs: Mapping[str, Sequence[str]],
    functions: Sequence[Function],
    runtime: Mapping[str, bytes],
    images: Mapping[str, Mapping[str, bytes]],
    platform: str,
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Names and files of the variants: of the files of the library archive, and of the packs' files."""
    processor = _PLATFORM.fullmatch(platform)
    assert processor, platform
    shared = {
        "__init__.py": _module(manifest, functions).encode("ascii"),
        OPERATOR_LIBRARY: _library(runtime, functions),
        **{
            f"licenses/{path.removeprefix(LICENCES)}": data
            for path, data in runtime.items()
            if path.startswith(LICENCES)
        },
    }
    by_vendor: dict[str, list[str]] = {}
    for pack, archs in sorted(packs.items()):
        by_vendor.setdefault(backend_of_arch(archs[0]).vendor, []).append(pack)
    for names in by_vendor.values():
        backend = backend_of_arch(packs[names[0]][0])
        archs = sorted(arch for pack in names for arch in packs[pack])
        files = dict(shared)
        for pack in names:
            files |= {f"aotriton.images/{pack}/{file}": data for file, data in images[pack].items()}
        files[METADATA] = _metadata(backend, archs, files)
        for label in backend.framework_builds(manifest.rocm):
            name = f"tvm-ffi{_TVM_FFI}-{label}-{processor[1]}-linux"
            yield name, files


def _library(runtime: Mapping[str, bytes], functions: Iterable[Function]) -> bytes:
    data = runtime.get(f"lib/{OPERATOR_LIBRARY}", b"")
    try:
        exported = {symbol.name for symbol in read_elf(data).symbols} if data else set()
    except CodeObjectError as error:
        raise _unusable(f"lib/{OPERATOR_LIBRARY}: {error}") from error
    lacks = [function.name for function in functions if f"{_EXPORTED}{function.name}" not in exported]
    if lacks or not functions:
        raise _unusable(f"the release's lib/{OPERATOR_LIBRARY} has no function {', '.join(lacks)}".rstrip())
    return data


def _unusable(what: str) -> ReleaseError:
    return ReleaseError(
        what,
        cause="the release was made from other kernels, or no family declares a function",
        hint="build it again: ./dev build --arch gfx908",
    )


def _metadata(backend: Backend, archs: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    digests = {
        name: base64.b64encode(hashlib.sha256(data).digest()).decode() for name, data in sorted(files.items())
    }
    number = hashlib.sha256(json.dumps(digests, sort_keys=True).encode("ascii")).hexdigest()[:12]
    supported = [backend.framework_arch(arch) for arch in archs]
    fields = {
        "id": f"_{NAME.replace('-', '_')}_{backend.framework}_{number}",
        "name": NAME,
        "version": _VERSION,
        "license": "mit",
        "python-depends": ["tvm-ffi"],
        "backend": {"type": backend.framework, **({"archs": supported} if all(supported) else {})},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    return (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode("ascii")


def _module(manifest: ReleaseManifest, functions: Sequence[Function]) -> str:
    """Python 3.9 and later, with imports of the standard library and of TVM-FFI alone."""
    own = sorted(functions, key=lambda function: function.name)
    notes = {
        function.name: [text for parameter in function.parameters if (text := _note(parameter))]
        for function in own
    }
    text = render(
        "hf_module.py.jinja", release=manifest.name, functions=own, notes=notes, library=OPERATOR_LIBRARY
    )
    return f"{text.rstrip()}\n"


def _note(parameter: object) -> str:
    if isinstance(parameter, OptionalInput):
        return f"`{parameter.name}` may be None."
    if isinstance(parameter, Option):
        return f"`{parameter.name}`: {', '.join(parameter.options)}."
    return ""
