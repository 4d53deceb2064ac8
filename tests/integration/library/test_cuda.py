"""The library on NVIDIA devices, as the CUDA double plays them: look-up, contexts, modules, launches, errors;
HIP in the same process."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cubin import fake_cubin
from tests.support.fake_hsaco import FakeKernel, fake_hsaco
from tests.support.runtime import Objects
from tests.support.small_pack import Choice, Kernel, SmallPack, write

INVALID_VALUE, INVALID_DEVICE, INVALID_IMAGE, INVALID_CONTEXT, NO_BINARY = 1, 101, 200, 201, 209
SYMBOL_NOT_FOUND, INIT_FAILED, NOT_SUPPORTED, NO_DEVICE = 302, 303, 801, 100
CUDA, HIP = 2, 10

_CLIENT = """
import ctypes, json, sys
from ctypes import (
    POINTER, Structure, Union, byref, c_char_p, c_float, c_int, c_int32, c_int64,
    c_size_t, c_uint64, c_void_p
)
class Member(Union):
    _fields_ = [("ptr", c_void_p), ("i32", c_int32), ("i64", c_int64), ("u64", c_uint64), ("f32", c_float)]

class Value(Structure):
    _fields_ = [("name", c_char_p), ("type", c_int32), ("reserved", c_int32), ("to", Member)]

KINDS = ["ptr", "i32", "i64", "u64", "f32"]
library, cuda, hip = ctypes.CDLL(sys.argv[1]), None, None
library.aotforge_launch.argtypes = [c_char_p, POINTER(Value), c_size_t, c_int32, c_void_p]

def call(name, values, device, stream=None):
    made = (Value * len(values))()
    for value, (key, (kind, number)) in zip(made, values.items()):
        value.name, value.type = key.encode(), KINDS.index(kind)
        setattr(value.to, kind, number)
    return library.aotforge_launch(name.encode(), made, len(values), device, stream)

def load_cuda():
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuda_double_stream.restype = c_void_p
    cuda.cuda_double_record.restype = c_char_p

def record():
    return [json.loads(line) for line in cuda.cuda_double_record().decode().splitlines()]

ADD = {"x": ("ptr", 0x1000), "n": ("i64", 1000), "rows": ("i32", 3)}
answers = []
exec(sys.argv[2])
print(json.dumps(answers))
"""


def pack(arch: str, image: bytes, *, lds: int = 0) -> SmallPack:
    """An operator with one kernel: grid (ceil(n / 128), rows)."""
    choice = Choice(image=image, symbol="k", threads=128, lds=lds, grid=[[("n", 128)], [("rows", 1)], []])
    kernel = Kernel(
        name="e.k",
        operator="add",
        parameters=[("ptr", "x"), ("i64", "n"), ("i32", "rows")],
        nulls=2,
        functionals={(arch, ()): [choice]},
    )
    values = [("x", "ptr"), ("n", "i64"), ("rows", "i32")]
    return SmallPack(archs=[arch], operators={"add": values}, kernels=[kernel])


TYPES = ["ptr", "i64", "i32", "ptr", "ptr"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packs of two capabilities and of an AMD arch, with one operator."""
    folder = tmp_path_factory.mktemp("images")
    for capability, old in ((80, True), (90, False)):
        image = fake_cubin("k", TYPES, capability=capability, old=old)
        write(
            pack(f"sm_{capability}", image, lds=131072 if capability == 90 else 0),
            folder / f"nvidia-sm_{capability}",
        )
    hsaco = fake_hsaco("gfx908", [FakeKernel(symbol="k", types=TYPES)])
    write(pack("gfx908", hsaco), folder / "amd-gfx908")
    return folder


def run(
    objects: Objects, images: Path, script: str, *, driver: bool = True, **environment: str
) -> tuple[list[Any], str]:
    """The answers of a program that executes `script`, and the library's log."""
    folders = [str(objects.hip(7)), *([str(objects.folder / "cuda")] if driver else [])]
    env: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if "DOUBLE" not in name},
        "LD_LIBRARY_PATH": ":".join(folders),
        "AOTRITON_IMAGES_DIR": str(images),
        "AOTRITON_LOG": "info",
        **environment,
    }
    command = [sys.executable, "-c", _CLIENT, str(objects.library), script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_call_launches_the_image_of_the_streams_device(objects: Objects, images: Path) -> None:
    answers, log = run(
        objects,
        images,
        """
load_cuda()
cuda.cuInit(0)
streams = [cuda.cuda_double_stream(0), cuda.cuda_double_stream(1)]
answers += [call("add", ADD, 2, stream) for stream in (*streams, streams[0])]
answers.append(cuda.cuda_double_push(-1))
answers.append(record())
""",
        CUDA_DOUBLE_DEVICES="sm_90,sm_80",
    )
    *codes, depth, events = answers
    assert codes == [0, 0, 0] and depth == 0  # what was current is current again
    assert [event.get("capability") for event in events] == [90, None, 80, None, None]  # each image once
    launches = [event for event in events if event["event"] == "launch"]
    assert [one["device"] for one in launches] == [0, 1, 0]
    assert [one["shared"] for one in launches] == [
        131072,
        0,
        131072,
    ]  # over 48 KiB is requested of the driver
    assert all(one["grid"] == [8, 3, 1] and one["block"] == [128, 1, 1] for one in launches)
    passed = [struct.pack("<Q", 0x1000), struct.pack("<q", 1000), struct.pack("<i", 3), bytes(8), bytes(8)]
    assert launches[0]["arguments"] == [value.hex() for value in passed]
    assert "CUDA device 1: sm_80, served by" in log


def test_the_default_stream_is_that_of_the_current_context(objects: Objects, images: Path) -> None:
    answers, log = run(
        objects,
        images,
        """
load_cuda()
answers.append(call("add", ADD, 2))
cuda.cuda_double_push(1)
answers += [call("add", ADD, 2), cuda.cuda_double_push(-1)]
answers.append([one["device"] for one in record() if one["event"] == "launch"])
""",
        CUDA_DOUBLE_DEVICES="sm_90,sm_80",
    )
    assert answers == [INVALID_CONTEXT, 0, 1, [1]]
    assert "no CUDA context is current on this thread" in log


def test_both_vendors_in_one_process(objects: Objects, images: Path) -> None:
    answers, log = run(
        objects,
        images,
        """
load_cuda()
cuda.cuInit(0)
stream = cuda.cuda_double_stream(0)
answers += [call("add", ADD, 10), call("add", ADD, 2, stream), call("add", ADD, 10), call("add", ADD, 2,
    stream)]
hip = ctypes.CDLL("libamdhip64.so.7")
hip.hip_double_calls.restype = ctypes.c_long
answers += [hip.hip_double_calls(b"hipModuleLaunchKernel"), len([1 for one in record() if one["event"] ==
    "launch"])]
""",
        HIP_DOUBLE_DEVICES="gfx908",
    )
    assert answers == [0, 0, 0, 0, 2, 2]
    assert "HIP device 0: gfx908" in log and "CUDA device 0: sm_90" in log


_STREAM = "load_cuda(); cuda.cuInit(0); s = cuda.cuda_double_stream(0); "


_ADD = _STREAM + 'answers.append(call("add", ADD, 2, s))'


@pytest.mark.parametrize(
    ("script", "code", "line", "environment"),
    [
        ('answers.append(call("add", ADD, 3))', INVALID_DEVICE,
            "none of AOTFORGE_HIP, AOTFORGE_CUDA, AOTFORGE_CPU", {}),
        ('answers.append(call("add", ADD, 1))', NO_BINARY, "no image pack serves cpu-x86-64", {}),
        (_ADD.replace('"add"', '"sub"'), NOT_SUPPORTED, "no operator of that name", {}),
        ("answers.append(library.aotforge_launch(b'add', None, 1, 10, None))", INVALID_VALUE,
            "add: values: is a null pointer", {}),
        (_ADD.replace("ADD", '{"x": ("ptr", 1)}'), INVALID_VALUE, "n: is missing", {}),
        (_ADD.replace("ADD", '{**ADD, "rows": ("i32", 65536)}'), NOT_SUPPORTED,
            "the grid is larger than a device takes", {}),
        (_ADD, NO_BINARY, "no image pack serves sm_89", {"CUDA_DOUBLE_DEVICES": "sm_89"}),
        ('answers.append(call("add", ADD, 2))', NO_DEVICE, "CUDA cannot be initialised",
            {"CUDA_DOUBLE_DEVICES": ""}),
        (_ADD, NOT_SUPPORTED, "CUDA does not load it", {"CUDA_DOUBLE_FAIL": "cuLibraryLoadData:801"}),
        (_ADD, NO_BINARY, "no kernel k: no kernel image is available",
            {"CUDA_DOUBLE_FAIL": "cuKernelGetFunction:209"}),
        (_ADD, 719, "launch failed", {"CUDA_DOUBLE_FAIL": "cuLaunchKernel:719"}),
    ],
)  # fmt: skip
def test_every_error_has_a_code_and_a_line(
    objects: Objects, images: Path, script: str, code: int, line: str, environment: Mapping[str, str]
) -> None:
    known: dict[str, str] = {"HIP_DOUBLE_DEVICES": "gfx908", **environment}
    answers, log = run(objects, images, script, driver=True, **known)
    assert answers == [code], log
    assert line in log


def test_without_a_driver_the_call_fails_and_hip_is_served(objects: Objects, images: Path) -> None:
    if Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1").exists():
        pytest.skip("this machine has NVIDIA's driver")
    script = 'answers += [call("add", ADD, 2), call("add", ADD, 10), call("add", ADD, 2)]'
    answers, log = run(objects, images, script, driver=False, HIP_DOUBLE_DEVICES="gfx908")
    assert answers == [INIT_FAILED, 0, INIT_FAILED]
    assert "CUDA is not available: libcuda.so.1: cannot open shared object file" in log


def test_a_driver_older_than_cuda_12_is_refused(objects: Objects, images: Path, tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", str(tmp_path / "old.c"), "-o", library],
        check=True,
    )
    answers, log = run(
        objects, images, 'answers.append(call("add", ADD, 2))', driver=False, LD_LIBRARY_PATH=str(tmp_path)
    )
    assert answers == [SYMBOL_NOT_FOUND] and "in every driver since CUDA 12" in log


def test_an_image_of_another_capability_is_never_launched(objects: Objects, tmp_path: Path) -> None:
    write(pack("sm_90", fake_cubin("k", TYPES, capability=80)), tmp_path / "nvidia-sm_90")
    script = _STREAM + 'answers += [call("add", ADD, 2, s), record()]'
    answers, _ = run(objects, tmp_path, script)
    assert answers[0] == NO_BINARY and not [one for one in answers[1] if one["event"] == "launch"]


def test_bytes_that_are_no_cubin_are_refused_by_the_driver(objects: Objects, tmp_path: Path) -> None:
    write(
        pack("sm_90", fake_hsaco("gfx908", [FakeKernel(symbol="k", types=TYPES)])), tmp_path / "nvidia-sm_90"
    )
    answers, _ = run(objects, tmp_path, _ADD)
    assert answers == [INVALID_IMAGE]
