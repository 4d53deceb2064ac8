"""Makes the CPU build of PyTorch in a folder one whose device `cuda` is a virtual GPU.

`python -m tests.support.virtual_torch SITE HEADERS HIP`: `SITE` has the package, `HEADERS` is the prefix of
an unpacked release, and `HIP` becomes a link to the folder of virtual HIP. Tensors are in virtual HIP's
memory, other operators run on the CPU, and flash attention is AOTriton's: `libtorch_hip.so` needs
`libaotriton_v2.so.0.11.0`, as that of PyTorch 2.9 does.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from aotforge.release.release import Release
from tests.integration.pytorch.wheel import FIXTURES, compile_with_pytorch
from vgpu.cache import default_cache
from vgpu.hip.build_hip import VirtualHip, build_virtual_hip

NEEDED = "libaotriton_v2.so.0.11.0"
SITES = [Path(place) for place in sys.path if place.endswith("site-packages")]
_FIRST = "import builtins\n"
"""The first import of torch/__init__.py: PyTorch looks for devices while it is imported."""

_EARLY = """
def _load_hip():
    import ctypes, os
    ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_hip.so"))
_load_hip()
"""
_LATE = """
cuda.is_available = lambda: True
cuda.device_count = lambda: ops.aotforge_device.device_count()
cuda.get_device_name = lambda device=None: ops.aotforge_device.device_name()
cuda._lazy_init = lambda: None
"""


def make_virtual(site: Path, headers: Path, virtual: VirtualHip) -> None:
    """Adds the libraries to torch/lib and changes the package's start."""
    torch = site / "torch"
    stub = torch / "lib" / NEEDED  # the official library: it has no code for these GPUs, here none at all
    shared = ["g++", "-shared", "-fPIC", "-x", "c++", "-", f"-Wl,-soname,{NEEDED}", "-o", str(stub)]
    subprocess.run(shared, input=b"", check=True)
    compile_with_pytorch(
        [FIXTURES / "device.cpp", FIXTURES / "flash.cpp"],
        torch / "lib" / "libtorch_hip.so",
        [
            *("-DLIBRARY_NAME=aotforge_11", f"-I{headers / 'include'}", "-Wl,-rpath,$ORIGIN"),
            *("-Wl,--no-as-needed", str(stub), str(virtual.library), "-Wl,-z,undefs"),
        ],
    )
    start = torch / "__init__.py"
    text = start.read_text(encoding="utf-8")
    assert text.count(f"\n{_FIRST}") == 1, f"{start} does not begin as expected"
    start.write_text(text.replace(f"\n{_FIRST}", f"\n{_EARLY}{_FIRST}") + _LATE, encoding="utf-8")


def virtual_environment(folder: Path, release: Path, virtual: VirtualHip) -> Path:
    """A virtual environment with such a PyTorch and what it imports. `release` has the headers."""
    site = folder / "site"
    for name in ("torch", "torchgen", "functorch"):
        (package,) = (place / name for place in SITES if (place / name).is_dir())
        shutil.copytree(package, site / name)
    opened = Release.open(release)
    make_virtual(site, opened.unpack([opened.runtime], folder / "unpacked"), virtual)
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "0.pth").write_text("".join(f"{place}\n" for place in (site, *SITES)))
    return environment


if __name__ == "__main__":
    site, headers, link = map(Path, sys.argv[1:])
    hip = build_virtual_hip(default_cache())
    make_virtual(site, headers, hip)
    link.symlink_to(hip.folder)
