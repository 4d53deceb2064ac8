"""ABI of the library and its headers, compared with an interface that is generated from compat/, not from our
headers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.conformance.checks import names as public_names
from aotforge.conformance.checks.abi import EXTRA
from aotforge.conformance.checks.calls import make_program
from aotforge.conformance.matrix import load_matrix
from aotforge.formats.api_level import feature_level, library_version
from aotforge.library.sources import load_runtime_manifest
from aotforge.release.model import load_release_manifest
from tests.support import abi
from tests.support.runtime import ROOT, Objects

RELEASE = ROOT / "manifests" / "release.yaml"
LEVEL = "0.11"
LEVELS = {feature_level(release): release for release in load_release_manifest(RELEASE).api_levels}
OURS = "<aotriton/flash.h>"


def interface(folder: Path, level: str) -> Path:
    """`folder` with the generated header of a level and a HIP header of its own."""
    (folder / "hip").mkdir(parents=True)
    (folder / "hip" / "hip_runtime.h").write_text(abi.HIP)
    (folder / "interface.h").write_text(abi.header(abi.interface(), level))
    return folder


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interface(tmp_path_factory.mktemp("generated") / "interface", LEVEL)


def our_headers(objects: Objects) -> list[Path]:
    return [ROOT / "runtime" / "include", objects.level_folder / "include"]


def layout_of(include: str, level: str, folder: Path, includes: list[Path]) -> dict[str, str]:
    done = abi.compile_program(
        abi.layout(abi.interface(), level, include),
        folder,
        includes,
        name="layout",
        flags=["-c", "-o", "layout.o"],
    )
    assert done.returncode == 0, done.stderr
    # constructors are only declared: linking needs nothing because the program calls none
    subprocess.run(["g++", "layout.o", "-o", "layout"], cwd=folder, check=True)
    printed = subprocess.run([folder / "layout"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in printed.splitlines())


def test_the_levels_are_those_of_the_release_manifest() -> None:
    """CMake's list, the facts and the manifest."""
    known = (ROOT / "runtime" / "api_levels.txt").read_text()
    assert known.split() == list(LEVELS.values())
    data = abi.facts()["levels"]
    assert list(data) == list(LEVELS)
    for level, release in LEVELS.items():
        assert ".".join(map(str, data[level]["version"])) == library_version(release)
    assert load_runtime_manifest(ROOT / "manifests").api_level == next(iter(LEVELS.values()))


@pytest.mark.parametrize("level", LEVELS)
def test_every_size_and_offset(level: str, objects: Objects, tmp_path: Path) -> None:
    data, generated = abi.facts(), interface(tmp_path / "interface", level)
    there = objects.at(LEVELS[level])
    ours = layout_of(OURS, level, tmp_path / "ours", [*our_headers(there), generated])
    theirs = layout_of('"interface.h"', level, tmp_path / "theirs", [generated])
    assert ours == theirs
    assert data["tensor_view"]["sizes"] and data["levels"][level]["structs"]
    for rank, size in data["tensor_view"]["sizes"].items():
        assert ours[f"TensorView<{rank}>"] == str(size)
    for rank, size in data["levels"][level]["lazy_tensor"]["size"].items():
        assert ours[f"LazyTensor<{rank}>"] == str(size)
    for name, entry in data["levels"][level]["structs"].items():
        assert ours[name] == str(entry["size"])
        for field, offset in entry.get("offsets", {}).items():
            assert ours[f"{name}.{field}"].split()[0] == str(offset)


def expected_symbols(generated: Path, folder: Path, level: str = LEVEL) -> set[str]:
    done = abi.compile_program(
        abi.references(abi.interface(), level),
        folder,
        [generated],
        name="references",
        flags=["-c", "-O0", "-o", "r.o"],
    )
    assert done.returncode == 0, done.stderr
    wanted = {name for name in abi.undefined_symbols(folder / "r.o") if "aotriton" in name}
    # a constructor is two symbols: of a complete object, which programs call, and of a base
    return wanted | {name.replace("C1E", "C2E") for name in wanted}


@pytest.mark.parametrize("level", LEVELS)
def test_symbols_are_exactly_the_interface(level: str, objects: Objects, tmp_path: Path) -> None:
    wanted = expected_symbols(interface(tmp_path / "interface", level), tmp_path, level)
    assert len(wanted) > 70
    assert abi.defined_symbols(objects.at(LEVELS[level]).library) == wanted | EXTRA


RUN = """
#include "interface.h"
#include <cstdio>
using namespace aotriton;
int main() {
  const Stream stream(nullptr);
  v3::flash::attn_fwd_params p;
  if (p.Sm_scale != 0 || p.window_right != 0 || p.varlen_type != 0 || p.philox_offset2 != 0) return 1;
  using A4 = std::array<uint64_t, 4>;
  using A2 = std::array<uint64_t, 2>;
  const TensorView<4> t(4096, A4{1, 2, 16, 64}, A4{2048, 1024, 64, 1}, kFloat16);
  if (t.size(2) != 16 || t.stride(1) != 1024 || t.dtype() != kFloat16 || t.data_ptr() !=
      reinterpret_cast<void*>(4096)) return 2;
  if (t.sizes() != A4{1, 2, 16, 64} || t.stride_ptr()[3] != 1 || *static_cast<uint64_t*>(t.kparam_stride(0))
      != 2048) return 3;
  if (*static_cast<void**>(t.kparam_data_ptr()) != t.data_ptr() || TensorView<4>::get_null_tensor(kInt8))
      return 4;
  const TensorView<2> lse(8192, A2{2, 16}, A2{16, 1}, kFloat32);
  p.Q = p.K = p.V = p.Out = t;
  p.L = lse;
  if (v3::flash::attn_fwd(p, p.kVersion, stream) != 0) return 5;
  if (v3::flash::attn_fwd(p, p.kVersion + 1, stream) != 13) return 6;
  const TensorView<0> none;
  const TensorView<4> null4;
  if (v2::flash::attn_fwd(t, t, t, null4, 1.0f, lse, t, 0.0f, none, none, 0, none, none, null4, true, none,
      stream) != 0) return 7;
  if (v2::flash::attn_bwd(t, t, t, null4, 1.0f, t, t, t, t, t, null4, lse, lse, 0.0f, none, none, 0, false,
      stream) != 0) return 8;
  v3::flash::attn_bwd_params b;
  b.Q = b.K = b.V = b.Out = b.DO = b.DQ = b.DK = b.DV = t;
  b.L = lse;
  static int events = 0;
  b.D = {const_cast<TensorView<2>*>(&lse), [](void* c) { ++events; return *static_cast<TensorView<2>*>(c);
      }, [](void*) { events += 16; }};
  v3::flash::attn_options options{-1};
  if (v3::flash::attn_bwd(b, b.kVersion, stream, &options) != 0 || events != 17) return 9;
  if (v2::flash::check_gpu(stream) != 0 || isArchExperimentallySupported(nullptr) ||
      getMultiProcessorCount(nullptr) != 120) return 10;
  if (getGpuFromStream(nullptr) != 0x100209080000) return 11;
  std::puts("all");
}
"""


@pytest.mark.parametrize("optimisation", ["-O0", "-O2"])
def test_a_program_of_other_headers_runs(
    optimisation: str, objects: Objects, generated: Path, spy_images: Path, tmp_path: Path
) -> None:
    flags = [optimisation, str(objects.library), f"-Wl,-rpath,{objects.folder}"]
    done = abi.compile_program(RUN, tmp_path, [generated], flags=flags)
    assert done.returncode == 0, done.stderr
    env = os.environ | {"LD_LIBRARY_PATH": str(objects.hip(7)), "AOTRITON_IMAGES_DIR": str(spy_images)}
    ran = subprocess.run([tmp_path / "program"], env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "all\n")


def test_calls_of_pytorch_main(objects: Objects, spy_images: Path, tmp_path: Path) -> None:
    """What no installed PyTorch has yet (tests/integration/pytorch has the adapter of the one that is);
    inference also runs."""
    there = objects.at(LEVELS["0.14"])
    source = make_program(load_matrix(ROOT).calls, "main").source
    flags = ["-std=c++20", "-Wno-error", str(there.library), f"-Wl,-rpath,{there.level_folder}"]
    hip = ROOT / "runtime" / "src" / "standin"
    done = abi.compile_program(source, tmp_path, [*our_headers(there), hip], flags=flags)
    assert done.returncode == 0, done.stderr
    env = os.environ | {"LD_LIBRARY_PATH": str(objects.hip(7)), "AOTRITON_IMAGES_DIR": str(spy_images)}
    assert subprocess.run([tmp_path / "program"], env=env, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("level", "standard"), [("0.11", "c++20"), *((level, "c++17") for level in LEVELS)])
def test_the_headers_declare_every_public_name_of_the_release(
    level: str, standard: str, objects: Objects, generated: Path, tmp_path: Path
) -> None:
    release = LEVELS[level]
    found = names_of(our_headers(objects.at(release)), generated, standard, tmp_path)
    wanted = public_names.read_names(ROOT / "compat" / "api_names" / f"{release}.tsv")
    assert len(wanted) > 180
    assert public_names.differences(wanted, found) == []


RELEASE_NAMES = public_names.read_names(ROOT / "compat" / "api_names" / "0.11.2b.tsv")


def names_of(
    includes: list[Path], hip: Path, standard: str, folder: Path
) -> frozenset[public_names.PublicName]:
    """Public names of headers, by the first clang that is here."""
    clang = next((path for n in (14, 15, 16, 19) if (path := shutil.which(f"clang++-{n}"))), None)
    if clang is None:
        pytest.skip("clang++ 14 or newer is not installed")
    (folder / "names.cpp").write_text(public_names.program())
    flags = [f"-std={standard}", *(f"-I{path}" for path in (*includes, hip)), *public_names.CLANG_FLAGS]
    done = subprocess.run(
        [clang, *flags, "names.cpp"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return public_names.names_of_dump(done.stdout)
