"""Libraries in a torch/lib: a client of each old name before, with, and after a drop-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aotforge.deliver.dropin.apply import drop_in, undo
from aotforge.deliver.dropin.inputs import read_prefix, read_torch_lib
from aotforge.errors import DropInError
from tests.support.attention import spy_pack
from tests.support.runtime import ROOT, Objects, build_objects
from tests.support.small_pack import write

ORIGINAL = "#include <aotriton/flash.h>\n"
ORIGINAL += "hipError_t aotriton::v2::flash::check_gpu(aotriton::Stream) { return hipError_t(77); }\n"
TORCH = "#include <aotriton/flash.h>\n"
TORCH += 'extern "C" int probe() { return int(aotriton::v2::flash::check_gpu({})); }\n'
PYTHON = '#include <cstdio>\nextern "C" int probe();\nint main() { std::printf("%d", probe()); }\n'
OLD_NAMES = [f"libaotriton_v2.so.0.11.{patch}" for patch in (0, 1, 2)]


@pytest.fixture(scope="module")
def objects() -> Objects:
    return build_objects()


@pytest.fixture(scope="module")
def prefix(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    (folder / "lib").mkdir()
    shutil.copyfile(objects.library, folder / "lib" / objects.library.name)
    for name in ("libaotriton_v2.so", *OLD_NAMES[:2]):
        (folder / "lib" / name).symlink_to(objects.library.name)
    (folder / "lib" / "libaotriton_v2.so.9").symlink_to("libaotriton_v2.so.9")  # to itself
    pack = folder / "lib" / "aotriton.images" / "amd-gfx908"
    write(spy_pack(), pack)
    (pack / "__signature__").touch()  # PyTorch's CMake and the drop-in require it, the library does not
    return folder


def compile_(folder: Path, output: str, text: str, objects: Objects, *flags: str) -> None:
    source = folder / f"{output}.cpp"
    source.write_text(text)
    runtime = ROOT / "runtime"
    includes = [
        f"-I{path}" for path in (runtime / "include", objects.folder / "include", runtime / "src" / "standin")
    ]
    command = ["g++", "-std=c++17", str(source), "-o", str(folder / output)]
    subprocess.run([*command, *includes, *flags], check=True, cwd=folder)
    source.unlink()


def make_torch(folder: Path, name: str, objects: Objects) -> Path:
    """As an installed wheel: the library once per name as copies, official images, a libtorch_hip.so that
    needs `name`."""
    lib = folder / "torch with spaces" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "version.py").write_text("__version__ = '2.9.1+rocm6.4'\n")
    compile_(lib, name, ORIGINAL, objects, "-shared", "-fPIC", f"-Wl,-soname,{name}")
    shutil.copyfile(lib / name, lib / "libaotriton_v2.so")
    compile_(lib, "libtorch_hip.so", TORCH, objects, "-shared", "-fPIC", name, "-Wl,-rpath,$ORIGIN")
    compile_(lib.parent, "python", PYTHON, objects, str(lib / "libtorch_hip.so"), f"-Wl,-rpath,{lib}")
    (lib / "aotriton.images" / "amd-gfx90a").mkdir(parents=True)
    (lib / "aotriton.images" / "amd-gfx90a" / "__signature__").write_bytes(b"of another format")
    return lib


def probe(lib: Path, objects: Objects) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AOTRITON")}
    env |= {"LD_LIBRARY_PATH": str(objects.hip(6)), "AOTRITON_LOG": "debug"}
    done = subprocess.run([lib.parent / "python"], env=env, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", OLD_NAMES)
def test_a_consumer_of_each_old_name(name: str, objects: Objects, prefix: Path, tmp_path: Path) -> None:
    lib = make_torch(tmp_path, name, objects)
    assert probe(lib, objects) == "77"
    torch = read_torch_lib(lib)
    assert (torch.version, torch.needed) == ("2.9.1+rocm6.4", (name,))
    drop_in(read_prefix(prefix, release="0.11.2b-r1"), torch)
    assert probe(lib, objects) == "0"  # the release's library, with images next to the link that was loaded
    images = lib / "aotriton.images"
    shutil.move(images, lib / "aside")
    assert probe(lib, objects) not in {"0", "77"}  # and nowhere else
    shutil.move(lib / "aside", images)
    undo(lib)
    assert probe(lib, objects) == "77"
    assert not (images / "amd-gfx908").exists()


def test_a_pytorch_of_another_feature_release(objects: Objects, prefix: Path, tmp_path: Path) -> None:
    lib = make_torch(tmp_path, "libaotriton_v2.so.0.10.0", objects)
    with pytest.raises(
        DropInError, match=r"needs libaotriton_v2\.so\.0\.10\.0, and release 0\.11\.2b-r1 serves"
    ):
        drop_in(read_prefix(prefix, release="0.11.2b-r1"), read_torch_lib(lib))
    assert probe(lib, objects) == "77"


def test_a_folder_that_is_not_a_rocm_pytorch(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(DropInError, match="not a folder"):
        read_torch_lib(tmp_path / "nowhere")
    lib = make_torch(tmp_path, OLD_NAMES[0], objects)
    compile_(lib, "libtorch_hip.so", "int nothing;\n", objects, "-shared", "-fPIC")
    with pytest.raises(DropInError, match=r"no library in .* needs"):
        read_torch_lib(lib)
    (lib / "libtorch_cpu.so").write_text("GROUP ( )")
    (lib / "libtorch_hip.so").unlink()
    with pytest.raises(DropInError, match="not built for ROCm"):
        read_torch_lib(lib)


def test_an_incomplete_prefix(prefix: Path, tmp_path: Path) -> None:
    with pytest.raises(DropInError, match="no lib/libaotriton_v2"):
        read_prefix(tmp_path, release="r")
    copy = tmp_path / "copy"
    shutil.copytree(prefix, copy, symlinks=True)
    (copy / "lib" / "aotriton.images" / "amd-gfx908" / "__signature__").unlink()
    with pytest.raises(DropInError, match="amd-gfx908"):
        read_prefix(copy, release="r")
    shutil.rmtree(copy / "lib" / "aotriton.images")
    with pytest.raises(DropInError, match="no complete image pack"):
        read_prefix(copy, release="r")
