"""Functions of the operator library on virtual GPUs and this processor against numpy, through C and through
TVM-FFI."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from aotforge.library.build_linux import OPERATOR_LIBRARY, build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.pack.writer import write_pack
from aotforge.targets.backends import unexecutable
from tests.integration.release.real import CACHE, ROOT, images_of
from tests.integration.release.standin import MANIFEST
from vgpu.hip.build_hip import VirtualHip, environment

pytestmark = pytest.mark.compiler
PROCESSOR = "cpu-x86-64-v3"
FEW = ("bf16", "i64")
"""fp16 is in profile `smoke`, whose images other tests verify. Six images each to compile."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A prefix with the operator library and a pack, and the environment in which its devices are virtual."""

    prefix: Path
    settings: dict[str, str]

    def run(self, *words: str, **more: str) -> str:
        """Output of a Python program."""
        env = os.environ | self.settings | {"PYTHONPATH": str(ROOT)} | more
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=850,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout


Make = Callable[..., Stack]


@pytest.fixture(scope="module")
def stack(virtual: VirtualHip, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the stack of an arch with a family's images of these types, or of all; of two devices."""

    @cache
    def make(arch: str, *types: str, family: str = "elementwise") -> Stack:
        folder = tmp_path_factory.mktemp(f"{arch}-{family}")
        others = {path.parent.name for path in ROOT.glob("kernels/*/rules.py")} - {family}
        keep: dict[str, tuple[str, ...]] = {f"{other}.dtype": () for other in others}
        if types:
            keep |= {"row": ("any",), "rows": ("any",), f"{family}.dtype": types}
        plan, images = images_of(arch, keep)
        texts = folder / "texts"
        texts.mkdir()
        for image in images:
            (texts / f"{image.digest}.s").write_text(image.asm)
        pack = write_pack(plan, images, release=MANIFEST.name, compressor=MANIFEST.compressor)
        place = folder / "lib" / "aotriton.images" / pack.name
        place.mkdir(parents=True)
        for name, data in pack.files.items():
            (place / name).write_bytes(data)
        built = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix / "lib" / OPERATOR_LIBRARY
        (folder / "lib" / OPERATOR_LIBRARY).write_bytes(built.read_bytes())
        level = {"AOTFORGE_CPU_LEVEL": arch.removeprefix("cpu-")}
        on_gpus = (
            environment(virtual, devices=[arch, arch], texts=[texts], cache=CACHE)
            if arch.startswith("gfx")
            else level
        )
        return Stack(prefix=folder, settings=on_gpus)

    return make


def test_the_calls_of_infiniops_on_a_virtual_mi100(stack: Make) -> None:
    """For a few types; for all of them below."""
    made = stack("gfx908", *FEW)
    words = ("--infiniops", f"--types={','.join(FEW)}")
    printed = made.run("-m", "tests.device.add", str(made.prefix), "rocm", *words)
    assert printed == "32 calls, 0 wrong\n"


@pytest.mark.slow
@pytest.mark.skipif(bool(unexecutable(PROCESSOR)), reason=unexecutable(PROCESSOR))
@pytest.mark.parametrize(
    ("calls", "family", "count"), [("add", "elementwise", 276), ("rows", "rms_norm", 111),
        ("rows", "softmax", 126), ("gemm", "gemm", 81)]
)  # fmt: skip
def test_every_call_and_type_on_this_processor(stack: Make, calls: str, family: str, count: int) -> None:
    made = stack(PROCESSOR, family=family)
    words = ("--only", family) if calls == "rows" else ()
    printed = made.run("-m", f"tests.device.{calls}", str(made.prefix), "cpu", *words)
    assert printed == f"{count} calls, 0 wrong\n"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx1100"])
def test_every_call_and_type(stack: Make, arch: str) -> None:
    made = stack(arch)
    assert made.run("-m", "tests.device.add", str(made.prefix), "rocm") == "276 calls, 0 wrong\n"


@pytest.mark.parametrize(("function", "count"), [("rms_norm", 11), ("softmax", 16)])
def test_rows_on_a_virtual_mi100(stack: Make, function: str, count: int) -> None:
    made = stack("gfx908", "fp16", family=function)
    printed = made.run("-m", "tests.device.rows", str(made.prefix), "rocm", "--only", function, "--few")
    assert printed == f"{count} calls, 0 wrong\n"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx1100"])
@pytest.mark.parametrize(("function", "count"), [("rms_norm", 111), ("softmax", 126)])
def test_every_width_and_type_of_rows(stack: Make, arch: str, function: str, count: int) -> None:
    made = stack(arch, family=function)
    printed = made.run("-m", "tests.device.rows", str(made.prefix), "rocm", "--only", function)
    assert printed == f"{count} calls, 0 wrong\n"


def test_matrix_products_on_a_virtual_mi100(stack: Make) -> None:
    made = stack("gfx908", "fp16", family="gemm")
    printed = made.run("-m", "tests.device.gemm", str(made.prefix), "rocm", "--few")
    assert printed == "13 calls, 0 wrong\n"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx1100"])
def test_matrix_products_of_every_size_and_type(stack: Make, arch: str) -> None:
    made = stack(arch, family="gemm")
    assert made.run("-m", "tests.device.gemm", str(made.prefix), "rocm") == "81 calls, 0 wrong\n"


_POINTERS = """
import ctypes, sys
from pathlib import Path
from tests.support.operator_library import DRIVERS, DeviceTensor, OperatorLibrary
library, hip = OperatorLibrary(Path(sys.argv[1]) / "lib" / "libaotforge_ops.so"), DRIVERS["rocm"]()
loaded = ctypes.CDLL("libamdhip64.so")
def made(seed):
    return DeviceTensor(driver=hip, dtype="fp16", shape=(4,), strides=(1,), seed=seed)
left, out = made(0), made(2)
loaded.hipSetDevice(1)
far, stream = made(1), ctypes.c_void_p()
loaded.hipStreamCreate(ctypes.byref(stream))
loaded.hipSetDevice(0)
host = far.c_tensor()
host.data = far.storage.ctypes.data
for other, on in ((host, 0), (far.c_tensor(), 0), (left.c_tensor(), stream.value), (left.c_tensor(), 0)):
    print(*library.add(left.c_tensor(), other, 1.0, out.c_tensor(), on))
"""


def test_pointers_and_streams_of_other_devices_are_refused(stack: Make, tmp_path: Path) -> None:
    made, record = stack("gfx908", "fp16"), tmp_path / "record"
    recorded = f"{made.settings['AOTFORGE_VIRTUAL']},record={record}"
    printed = made.run("-c", _POINTERS, str(made.prefix), AOTFORGE_VIRTUAL=recorded)
    assert printed.splitlines() == [
        "1 add: other: data is not memory of HIP: a pointer to host memory?",
        "101 add: other: data is memory of device 1, and the tensor is on device 0",
        "101 add: stream: it belongs to device 1, and the tensors are on device 0",
        "0 ",
    ]
    assert record.read_text().count('"launch"') == 1


_TVM = """
import sys
import numpy as np, tvm_ffi
from tests.support.operator_library import DRIVERS, DeviceTensor, Exported
module = tvm_ffi.load_module(sys.argv[1] + "/lib/libaotforge_ops.so")
hip = DRIVERS["rocm"]()

def made(seed, shape, strides):
    return DeviceTensor(driver=hip, dtype="fp16", shape=shape, strides=strides, seed=seed)

left, right, out = made(0, (3, 70), (70, 1)), made(1, (70,), (2,)), made(2, (3, 70), (80, 1))
kept = [Exported(tensor) for tensor in (left, right, out)]
module.add(*map(tvm_ffi.from_dlpack, kept[:2]), 2, tvm_ffi.from_dlpack(kept[2]))
found = out.view(out.after())
print(bool((found == (left.numbers() + 2 * right.numbers()).astype(np.float16)).all()))
x = np.ones(3, np.float32)
views = [tvm_ffi.from_dlpack(one) for one in kept]
for arguments in (
    (tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(x), 1.0, tvm_ffi.from_dlpack(x)),
    (views[0], views[1], 1.0),
    (None, views[1], 1.0, views[2]),
    (views[0], views[1], "one", views[2]),
    (views[0], views[0], 1.0, views[0], ),
    (views[0], views[1], 1.0, views[1]),
):
    try:
        module.add(*arguments)
        print("no error")
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="needs apache-tvm-ffi")
def test_tvm_ffi_loads_the_library_and_calls_add(stack: Make) -> None:
    made = stack("gfx908", "fp16")
    found = importlib.util.find_spec("tvm_ffi")
    path = str(Path(found.origin).parents[1])  # type: ignore[union-attr, arg-type]
    printed = made.run("-c", _TVM, str(made.prefix), PYTHONPATH=f"{ROOT}:{path}")
    right, no_pack, *refused = printed.splitlines()
    assert right == "True"
    assert no_pack.startswith("RuntimeError add: ") and "no image pack serves" in no_pack
    assert refused == [
        "TypeError add: takes 4 arguments, 3 were given",
        "TypeError add: input: None is not a tensor",
        "TypeError add: alpha: the argument is not a number",
        "no error",
        "ValueError add: out: shape (70) is not (3, 70), to which the inputs broadcast",
    ]
