"""PyTorch's own ROCm attention from a checkout, for the installed CPU wheel of the same version and virtual
HIP.

Its files are copied to a temporary folder, rewritten by the checkout's hipify and compiled with the wheel's
headers; nothing is written to the checkout. Files with kernels are reduced to the functions of attention
(`kept`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.runtime import ROOT, Objects
from vgpu.hip.build_hip import VirtualHip, find_compiler

from .wheel import FIXTURES, flags, installed

_TRANSFORMERS = Path("aten/src/ATen/native/transformers")
_HEADERS = (
    ("c10/cuda", "c10/cuda"),
    ("ATen/cuda", "aten/src/ATen/cuda"),
    ("ATen/native/cuda", "aten/src/ATen/native/cuda"),
    ("ATen/native/transformers", str(_TRANSFORMERS)),
)
"""Folders of the wheel, and where a checkout has them."""

_HIPIFY = """
import sys
sys.path.insert(0, sys.argv[1])
from hipify import hipify_python
tree = sys.argv[2]
hipify_python.hipify(
    project_directory=tree, output_directory=tree, includes=[tree + "/*"], out_of_place_only=False,
        hip_clang_launch=True,
    is_pytorch_extension=False, show_detailed=False, show_progress=False,
)
"""
_FORWARD = (
    *("_scaled_dot_product_flash_attention_cuda", "_scaled_dot_product_efficient_attention_cuda"),
    *("_flash_attention_forward", "_efficient_attention_forward"),
    *("_fused_sdp_choice_cuda", "_fill_mem_eff_dropout_mask_"),
)
_BACKWARD = (
    *("_flash_attention_backward", "_efficient_attention_backward"),
    "_scaled_dot_product_flash_attention_backward_cuda",
    "_scaled_dot_product_efficient_attention_backward_cuda",
)
_OF_KERNELS = ("Loops", "MemoryAccess", "PersistentSoftmax", "block_reduce")
_GENERATED = {  # by CMake in a build of PyTorch; and handles of libraries that attention does not use
    "c10/hip/impl/hip_cmake_macros.h": "#pragma once\n#define C10_HIP_BUILD_SHARED_LIBS\n"
    "#define C10_CUDA_BUILD_SHARED_LIBS\n",
    # attention.cu has them for kernels, which are not kept, and they need rocThrust
    **{f"ATen/native/hip/{name}.cuh": "#pragma once\n" for name in _OF_KERNELS},
    "ATen/hip/HIPConfig.h": "#pragma once\n#define AT_ROCM_ENABLED() 1\n"
    + "".join(f"#define AT_{name}_ENABLED() 0\n" for name in ("CUDNN", "CUSPARSELT", "HIPSPARSELT", "MAGMA")),
    **{
        f"{name}/{name}.h": f"#pragma once\ntypedef void* {handle}Handle_t;\ntypedef int {name}Status_t;\n"
        for name, handle in (
            *(("hipblas", "hipblas"), ("hipblaslt", "hipblasLt")),
            *(("hipsparse", "hipsparse"), ("hipsolver", "hipsolverDn")),
        )
    },
}


def prepare(checkout: Path, folder: Path) -> Path:
    """The tree of sources and headers, rewritten for HIP."""
    tree = folder / "tree"
    for part, place in _HEADERS:
        source = installed("torch") / "include" / part
        shutil.copytree(source, tree / place, dirs_exist_ok=True, ignore=_other_kernels)
    for folder_of in (_TRANSFORMERS, _TRANSFORMERS.parent / "cudnn"):
        if (checkout / folder_of).exists():
            shutil.copytree(checkout / folder_of, tree / folder_of, dirs_exist_ok=True, ignore=_other_kernels)
    done = subprocess.run(
        [sys.executable, "-c", _HIPIFY, str(checkout / "torch" / "utils"), str(tree)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, text in _GENERATED.items():
        path = folder / "generated" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree


def _other_kernels(place: str, names: list[str]) -> list[str]:
    """Files of other back ends: thousands, and headers that would take the place of HIP's."""
    if place.endswith("/cuda"):
        return [name for name in names if name in ("flash_attn", "mem_eff_attention")]
    return [name for name in names if "/ck" in place and name.endswith(".hip")]


class Build:
    """Compiles a prepared tree at the level of `objects`. `log` has the seconds of the compiler, by file."""

    def __init__(self, tree: Path, objects: Objects, folder: Path) -> None:
        self._tree, self._folder = tree, folder
        folder.mkdir()
        places = (
            tree.parent / "generated", tree / "aten" / "src", tree,
            objects.level_folder / "include", ROOT / "runtime" / "include",
        )  # fmt: skip
        defines = (
            "USE_FLASH_ATTENTION",
            "USE_MEM_EFF_ATTENTION",
            "TORCH_HIP_VERSION=701",
            "ROCM_VERSION=70100",
        )
        self._command = [
            *find_compiler(os.environ), "-w", *(f"-I{path}" for path in places), *flags(),
                *(f"-D{name}" for name in defines),
        ]  # fmt: skip

    def library(self, objects: Objects, virtual: VirtualHip) -> Path:
        """Everything but the device, as one library."""
        hip = self._tree / _TRANSFORMERS / "hip"
        flash = hip / "flash_attn"
        sources = [
            self._reduced(hip / "attention.hip", _FORWARD),
            self._reduced(hip / "attention_backward.hip", _BACKWARD),
            hip / "sdp_utils.cpp",
            flash / "aot" / "mha_all_aot.hip",
            *(path for path in sorted(flash.iterdir()) if path.suffix in (".cpp", ".hip")),
            FIXTURES / "runtime.cpp",
            FIXTURES / "register.cpp",
        ]
        libraries, out = installed("torch") / "lib", self._folder / "libpytorch.so"
        self._run([
            *self._command[:1], "-shared", "-o", str(out), *(str(self._object(path)) for path in sources),
            str(objects.library), str(virtual.library), f"-L{libraries}", "-ltorch_cpu", "-ltorch", "-lc10",
            f"-Wl,-rpath,{libraries}", f"-Wl,-rpath,{objects.level_folder}", "-Wl,-z,defs",
        ])  # fmt: skip
        return out

    def _reduced(self, source: Path, names: Sequence[str]) -> Path:
        text = self._run([*self._command, "-x", "c++", "-E", str(source)])
        out = self._folder / f"{source.stem}.ii"
        out.write_text(kept(text, str(source), names))
        return out

    def _object(self, source: Path) -> Path:
        out = self._folder / f"{source.stem}.o"
        language = "c++-cpp-output" if source.suffix == ".ii" else "c++"
        self._run([*self._command, "-x", language, "-c", str(source), "-o", str(out)])
        return out

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command[-3:])}:\n{done.stderr[:6000]}"
        return done.stdout


_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[{}()\[\];]|[^"\'{}()\[\];]+')
_NAMESPACE = re.compile(r"^\s*(?:inline\s+)?(?:namespace\b[^{;=]*|extern\s+\"C\"\s*)\{$", re.DOTALL)
_RETURN = re.compile(r'^# \d+ "(?P<file>[^"]*)" 2', re.MULTILINE)
_MARKER = re.compile(r"^#.*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """A declaration; `name` is that of what has a body. The opening and the end of a namespace are chunks as
    well."""

    text: str
    name: str = ""

    @property
    def words(self) -> set[str]:
        return set(re.findall(r"\w+", self.text))


def kept(preprocessed: str, source: str, names: Collection[str]) -> str:
    """What a compiler's -E makes of `source`: all of its headers, and of its own text declarations and what
    `names` need.

    Raises KeyError for a name that has no body there.
    """
    starts = [found.end() for found in _RETURN.finditer(preprocessed) if found["file"] == source]
    at = max(starts, default=0)
    chunks = list(_chunks(_MARKER.sub("", preprocessed[at:])))
    bodies: dict[str, set[str]] = {}
    for chunk in chunks:
        if chunk.name:
            bodies.setdefault(chunk.name, set()).update(chunk.words)
    if missing := sorted(set(names) - bodies.keys()):
        raise KeyError(", ".join(missing))
    registered = {word for chunk in chunks if not chunk.name for word in re.findall(r"&(\w+)", chunk.text)}
    wanted, new = set[str](), {*names, *(registered & bodies.keys())}
    while new:
        wanted |= new
        new = {word for name in new for word in bodies[name] if word in bodies} - wanted
    body = "".join(chunk.text for chunk in chunks if not chunk.name or chunk.name in wanted)
    return preprocessed[:at] + "\n" + body


def _chunks(text: str) -> Iterator[_Chunk]:
    """Declarations at the level of namespaces."""
    parts: list[str] = []
    braces = others = 0
    for token in _TOKEN.findall(text):
        parts.append(token)
        if token in "([":
            others += 1
        elif token in ")]":
            others -= 1
        elif token == "{" and not braces and not others and _NAMESPACE.match("".join(parts)):
            yield _Chunk(text="".join(parts))
            parts = []
        elif token == "{":
            braces += 1
        elif token == "}" and not braces:  # of a namespace
            yield _Chunk(text="".join(parts))
            parts = []
        elif token == "}":
            braces -= 1
            if not braces and not others:
                chunk = "".join(parts)
                yield _Chunk(text=chunk, name=_name(chunk.partition("{")[0]))
                parts = []
        elif token == ";" and not braces and not others:
            yield _Chunk(text="".join(parts))
            parts = []
    yield _Chunk(text="".join(parts))


def _name(head: str) -> str:
    """Of a function, or of a structure: the last word in front of the parameters."""
    head = head.strip()
    while head.startswith("template"):
        depth = 0
        for at, letter in enumerate(head):
            depth += (letter == "<") - (letter == ">")
            if letter == ">" and not depth:
                head = head[at + 1 :].strip()
                break
        else:
            return ""
    words = re.findall(r"\w+", head.partition("(")[0])
    return words[-1] if words else ""
