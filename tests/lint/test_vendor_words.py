"""Vendor words are where their vendor is; every other file that has some is listed with the reason.

Code that knows a vendor belongs to `PLACES`: `aotforge/targets/<vendor>`, the runtime's files of a driver,
and what emulates or
measures a vendor's machine code. Elsewhere a file has only the words that `EXCEPTIONS` lists for it. Sources
are checked:
`aotforge/`, `kernels/`, `runtime/src/`. Examples in texts (`--arch gfx908`, `e.g. gfx908 or MI100`, hints)
are not knowledge.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from functools import cache

import pytest

from tests.lint.language import ROOT
from tests.support.project_files import project_files

WORDS = re.compile(
    r"""
    (?<![A-Za-z])(?i:
        hsacos? | cubins? | ptx | ptxas | amdgcn | amdgpu | amdhsa            # formats of images
        | lds | [vsa]gprs? | wavefronts? | mfma | wmma                        # hardware
        | waves_per_eu | matrix_instr_nonkdim | kpack                         # options of Triton's back ends
        | hips? | rocms? | hsa | rocr | cuda | rocjitsu | (?:lib)?amdhip64 | libcuda | nvcuda   # drivers
        | gfx[0-9a-fx]+ | sm_?[0-9]{2,3} | mi[0-9]{2,3}                       # archs and products
        | amd(?!64) | nvidia | radeon | instinct | geforce                    # makers
    )(?![A-Za-z])
    | (?<![A-Za-z])(?:hip|cuda|cu)(?=[A-Z])\w+                                # functions and types of drivers
    | (?:Hip|Cuda|Amd|Nvidia|Rocm)(?=[A-Z(]|\b)
    """,
    re.VERBOSE,
)
EXAMPLES = re.compile(r"--arch [\w,]+|e\.g\. [^;\")]*|hint=\"[^\"]*\"")
RESULTS = re.compile(r"hipError\w*|hipSuccess|hipStream_t|<hip/hip_runtime\.h>")
"""Results and streams of AOTriton's C++ interface (`runtime/include/aotriton`). The library uses them for all
vendors: CUDA's
numbers are the same."""
ARCH, FUNCTION = "(arch)", "(function)"
"""In `EXCEPTIONS`: any arch or product; any function or type of a driver."""

PLACES: tuple[tuple[str, str], ...] = (
    ("aotforge/targets/*", "the vendors"),
    ("vgpu/*", "the emulator of AMD's instruction sets, and the HIP library whose devices it is"),
    ("aotforge/upstream/*", "AMD's own AOTriton, and a program that calls it through HIP"),
    ("aotforge/cli/upstream.py", "its tasks"),
    ("ttcpu/*", "a back end of Triton, among those of the vendors"),
    ("aotforge/devtools/cost/*", "costs of AMD's machine code, counted by the emulator"),
    ("aotforge/base/architectures.py", "the schema of manifests/architectures.yaml: each vendor has its own"),
    ("runtime/src/hip_api.*", "AMD's driver"),
    ("runtime/src/cuda_api.*", "NVIDIA's driver"),
    ("runtime/src/standin/*", "declarations of HIP, where it is not installed"),
    ("runtime/src/*/process.cpp", "names and places of drivers' libraries on an operating system"),
)

_AOTRITON = "AOTriton's interface and archives are ROCm's: names that PyTorch's build and its users use"
_SETTING = "fields of Setting; an option of another vendor than the arch's is refused"
_DEFAULT = "the arch that a tool takes without --arch"
_APIS = "the list of drivers: selects one by a request's device"
EXCEPTIONS: tuple[tuple[str, str, str], ...] = (
    ("aotforge/conformance/*", f"rocm rocms hip amd libamdhip64 {FUNCTION}", _AOTRITON),
    ("aotforge/deliver/*", "rocm hip amd amdgpu cuda", f"{_AOTRITON}; its devices are torch.cuda"),
    ("aotforge/base/templates/*", f"rocm rocms hip amd {FUNCTION}", _AOTRITON),
    ("aotforge/base/templates/wheel_*.md.jinja", ARCH, "wheels are named by AMD's archs"),
    ("aotforge/base/templates/*_page.md.jinja", "amdgpu cuda", "pages for owners of AMD's GPUs"),
    ("aotforge/devtools/card_pages.py", f"amd radeon instinct hsa {ARCH}", "pages for owners of AMD's GPUs"),
    ("aotforge/cli/conformance.py", "rocm", _AOTRITON),
    ("aotforge/cli/deliver.py", "rocm", _AOTRITON),
    ("aotforge/cli/settings.py", "hip", "the virtual HIP"),
    ("aotforge/cli/hardware.py", "hip libamdhip64", "--hip names the library of a driver"),
    ("aotforge/cli/program.py", f"amd {ARCH}", "what the project is for, and examples"),
    ("aotforge/formats/artifact_names.py", "rocm", _AOTRITON),
    ("aotforge/release/*.py", "rocm", _AOTRITON),
    ("aotforge/release/attention_package/*", f"hip rocm amd {ARCH}", _AOTRITON),
    ("aotforge/release/wheels.py", f"rocm amd {ARCH}", f"{_AOTRITON}; wheels are named by AMD's archs"),
    ("aotforge/release/windows_notes.txt", "hip rocm amd amdhip64", _AOTRITON),
    ("aotforge/devtools/doctor.py", "amd", "what AMD's device wheels of an installed PyTorch lack"),
    ("aotforge/pipeline/build_windows.py", "amd", "the archs that the wheel has extras for"),
    ("runtime/src/windows/dropin.c", "hip rocm", "PyTorch's own library, and how its builds are called"),
    ("aotforge/library/build_windows.py", "hip", _AOTRITON),
    ("aotforge/base/templates/attention.md.jinja", f"{ARCH} {FUNCTION}", _AOTRITON),
    ("aotforge/devtools/demo/*", f"hip {FUNCTION}", "a client of AOTriton's interface, on the virtual HIP"),
    ("aotforge/run/step.py", "rocm", "names of root filesystems"),
    ("aotforge/base/hardware.py", f"amd nvidia rocm instinct {ARCH}",
     "the schema of hardware reports: versions of drivers"),
    ("aotforge/base/source_groups.py", "amd nvidia hip", "folders of this project"),
    ("aotforge/library/library_build.py", "hip cuda", "folders of this project"),
    ("aotforge/rules.py", "amd nvidia", "the vocabulary's vendors"),
    ("aotforge/rules.py", "waves_per_eu matrix_instr_nonkdim kpack", _SETTING),
    ("aotforge/plan/checks.py", "waves_per_eu matrix_instr_nonkdim kpack", _SETTING),
    ("kernels/*", f"mfma waves_per_eu matrix_instr_nonkdim kpack {ARCH}",
     "columns of manifests/tuning, and the fields of Setting"),
    ("kernels/*/*_warpgroups.py", "nvidia",
     "names of Triton's modules for the instructions that they are written for"),
    ("kernels/*/*_mfma.py", "amd", "names of Triton's modules for the instructions that it is written for"),
    ("aotforge/rules.py", "wavefront lds",
     "names in job keys, older than the second vendor: a change compiles all again"),
    ("aotforge/compile/cache_entry.py", "wavefront lds hsaco vgpr agpr sgpr",
     "names in stored entries, older than the second vendor"),
    ("aotforge/verify/hazards.py", "vgprs", "registers of the instructions that hazards are about"),
    ("aotforge/verify/executors.py", "lds", "an argument of the virtual GPU's launch"),
    ("aotforge/verify/report.py", "lds", "a class of instructions of the virtual GPU"),
    ("aotforge/toolchain/triton.py", "amdgcn amd amdgpu nvidia", "files and variables of the Triton package"),
    ("aotforge/toolchain/allocator.py", "amd", "files of the Triton package"),
    ("aotforge/cli/build.py", ARCH, _DEFAULT),
    ("aotforge/cli/build.py", "rocm", _AOTRITON),
    ("aotforge/cli/kernels.py", f"hip libamdhip64 {ARCH}",
     f"{_DEFAULT}; --hip names the library of a driver"),
    ("aotforge/verify/device/library.py", "amd nvidia", "numbers of their devices in launch.h"),
    ("aotforge/cli/images.py", "hsaco", "an image's format in a help text"),
    ("aotforge/devtools/debug_kernel.py", ARCH, _DEFAULT),
    ("aotforge/pipeline/requests.py", "nvidia", "help texts of --unexecuted and --device"),
    ("aotforge/verify/device/messages.py", "amd", "--hip names the library of a driver"),
    ("runtime/src/state.*", "hip cuda", _APIS),
    ("runtime/src/process.h", "hip cuda nvidia", _APIS),
    ("runtime/src/device_api.h", f"hip cuda {ARCH}", _APIS),
    ("runtime/src/api_launch.cpp", "hip cuda", _APIS),
    ("runtime/src/ops/*", "hip cuda rocm", "device types of DLPack, and the driver of each"),
    ("runtime/src/api_util.cpp", f"hip {ARCH}", "functions of AOTriton's interface that name AMD's archs"),
)  # fmt: skip
"""Files, their words in lower case, and why they have them."""

SUFFIXES = (".py", ".c", ".cpp", ".h", ".def", ".html", ".jinja", ".txt")
SOURCES = ("aotforge/", "vgpu/", "ttcpu/", "kernels/", "runtime/src/")


@cache
def words_by_file() -> dict[str, list[tuple[int, str]]]:
    """Line numbers and vendor words of all sources."""
    names = sorted(
        name for name in project_files(ROOT) if name.startswith(SOURCES) and name.endswith(SUFFIXES)
    )
    assert len(names) > 350
    return {
        name: found(name, (ROOT / name).read_text(encoding="utf-8"))
        for name in names
        if (ROOT / name).is_file()
    }


def found(path: str, text: str) -> list[tuple[int, str]]:
    """Line numbers and vendor words, as `EXCEPTIONS` has them."""
    with_words = {text.count("\n", 0, match.start()) for match in WORDS.finditer(text)}
    lines = text.split("\n")
    return [(number + 1, word) for number in sorted(with_words) for word in _words(path, lines[number])]


def _words(path: str, line: str) -> list[str]:
    line = EXAMPLES.sub("", line)
    if path.startswith("runtime/"):
        line = RESULTS.sub("", line)
    return [_normal(match[0]) for match in WORDS.finditer(line)]


def _normal(word: str) -> str:
    if re.fullmatch(r"gfx\w+|sm_?\d+|mi\d+", word, re.IGNORECASE):
        return ARCH
    return FUNCTION if re.match(r"(hip|cuda|cu)[A-Z]", word) else word.lower()


def hits(path: str, words: list[tuple[int, str]]) -> list[str]:
    """Lines with vendor words that the file must not have."""
    if any(fnmatch(path, place) for place, _ in PLACES):
        return []
    allowed = {word for place, words, _ in EXCEPTIONS if fnmatch(path, place) for word in words.split()}
    return [f"{path}:{number}: {word}" for number, word in words if word not in allowed]


def test_vendor_words_are_where_their_vendor_is() -> None:
    new = [hit for path, words in words_by_file().items() for hit in hits(path, words)]
    advice = "move it to aotforge/targets/<vendor> or a driver's file, or use the neutral term:"
    assert not new, "\n".join([advice, *new])


def test_every_place_and_exception_is_needed() -> None:
    unused = [place for place, _ in PLACES if not any(fnmatch(path, place) for path in words_by_file())]
    for place, words, reason in EXCEPTIONS:
        assert reason
        had = {word for path, all in words_by_file().items() if fnmatch(path, place) for _, word in all}
        unused += [f"{place}: {word}" for word in words.split() if word not in had]
    assert not unused, "\n".join(unused)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("aotforge/plan/planner.py", "hsaco = image.binary"),
        ("aotforge/plan/planner.py", "if arch == 'gfx908':"),
        ("aotforge/plan/planner.py", "if arch == 'sm_90':"),
        ("aotforge/plan/planner.py", "from aotforge.targets.amd.backend import AMD"),
        ("aotforge/plan/planner.py", "driver = HipDriver(library)"),
        ("aotforge/plan/planner.py", "more_lds_bytes = 3  # LDS of a workgroup"),
        ("aotforge/rules.py", "stats.vgpr_spills"),
        ("kernels/gemm/rules.py", "if target.vendor == 'nvidia':"),
        ("runtime/src/launch.cpp", "hipModuleLaunchKernel(function);"),
        ("runtime/src/launch.cpp", "cuLaunchKernel(function);"),
        ("runtime/src/dispatch.cpp", "CudaApi api;"),
    ],
)
def test_a_new_word_is_found(path: str, line: str) -> None:
    assert hits(path, found(path, f"first\n{line}\n"))[0].startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("aotforge/plan/planner.py", 'hint="./dev build --arch gfx908"'),
        ("aotforge/plan/planner.py", '"arch or product, e.g. gfx908 or MI100"'),
        ("aotforge/plan/planner.py", "docker uses amd64; sums, chips, ships, adds"),
        ("aotforge/targets/nvidia/driver.py", "cuInit"),
        ("runtime/src/launch.cpp", "hipError_t launch(hipStream_t stream) { return hipSuccess; }"),
    ],
)
def test_other_texts_are_not_found(path: str, line: str) -> None:
    assert not hits(path, found(path, line))
