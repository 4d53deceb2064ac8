"""The provider of InfiniOps against its real headers: the cases of its test of add, called through InfiniOps,
on a virtual MI100 and on this processor.

Checkouts of InfiniTensor/InfiniOps and InfiniTensor/InfiniRT are in AOTFORGE_INFINIOPS and AOTFORGE_INFINIRT.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aotforge.library.build_linux import build_runtime
from aotforge.library.library_build import LibraryRequest
from aotforge.targets.backends import unexecutable
from tests.integration.release.real import CACHE, ROOT
from tests.integration.vgpu.hip.test_operator_library import (  # noqa: F401 - a fixture
    FEW,
    PROCESSOR,
    Make,
    Stack,
    stack,
)

ALL = "fp16,bf16,fp32,i16,i32,i64,u16,u32,u64"
PROVIDER = ROOT / "integrations" / "infiniops"
SOURCES = tuple(os.environ.get(f"AOTFORGE_INFINI{name}", "") for name in ("OPS", "RT"))
pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not all(SOURCES), reason="needs AOTFORGE_INFINIOPS and AOTFORGE_INFINIRT: checkouts"),
]

_CALLS = """
import ctypes, sys
from pathlib import Path
from ctypes import byref, c_double
from tests.device import add
from tests.support.operator_library import DRIVERS, DeviceTensor, OperatorLibrary

device = {"cpu": 0, "rocm": 7}[sys.argv[4]]

class InfiniOps(OperatorLibrary):
    def __init__(self, library, bridge):
        super().__init__(library)
        self.bridge = ctypes.CDLL(bridge)
        self.bridge.infiniops_error.restype = ctypes.c_char_p
    def call(self, name, left, right, alpha, out, device=device):
        code = self.bridge.infiniops_add(device, byref(left), byref(right), c_double(alpha), byref(out))
        return code, self.bridge.infiniops_error().decode()

driver, types = DRIVERS[sys.argv[4]](), sys.argv[3].split(",")
library = InfiniOps(Path(sys.argv[1]) / "lib" / "libaotforge_ops.so", sys.argv[2])
calls = [call for call in add.infiniops() if call.dtype in types]
print(len(calls), *filter(None, (add.check(library, driver, call) for call in calls)))
one = DeviceTensor(driver=driver, dtype="fp16", shape=(4,), strides=(1,), seed=0).c_tensor()
print(library.call("add", one, one, 1.0, one, device=1)[1])
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """InfiniOps' `Operator<Add>` with the provider, as a library with C functions."""
    folder = tmp_path_factory.mktemp("infiniops")
    infiniops, infinirt = map(Path, SOURCES)
    prefix = build_runtime(LibraryRequest(root=ROOT, cache=CACHE)).prefix
    script = infinirt / "scripts" / "generate_public_headers.py"
    made = ("--output-dir", folder, "--source-output", folder / "dispatch.cc", "--devices", "cpu")
    subprocess.run([sys.executable, script, *made], cwd=infinirt, check=True)
    own = ["g++", "-std=c++17", "-O1", "-fPIC", "-c", "-Wall", "-Wextra", "-Werror"]
    other: list[str | Path] = [
        "-isystem",
        infiniops / "src",
        "-isystem",
        folder,
        "-isystem",
        infinirt / "include",
    ]
    source = ROOT / "tests" / "fixtures" / "infiniops" / "bridge.cc"
    includes: list[str | Path] = [f"-I{PROVIDER / 'src'}", f"-I{prefix / 'include'}", *other]
    subprocess.run([*own, source, *includes, "-o", folder / "bridge.o"], check=True)
    view = infinirt / "src" / "tensor_view.cc"
    plain = [flag for flag in own if not flag.startswith("-W")]
    subprocess.run([*plain, view, "-I", infinirt / "src", "-I", folder, "-o", folder / "view.o"], check=True)
    library: list[str | Path] = ["-L", prefix / "lib", "-laotforge_ops", "-Wl,--no-undefined"]
    objects = [folder / "bridge.o", folder / "view.o"]
    subprocess.run(["g++", "-shared", "-o", folder / "libbridge.so", *objects, *library], check=True)
    return folder / "libbridge.so"


def _printed(made: Stack, bridge: Path, names: str, device: str = "rocm") -> list[str]:
    return made.run("-c", _CALLS, str(made.prefix), str(bridge), names, device).splitlines()


def test_the_cases_of_infiniops_through_its_operator(stack: Make, bridge: Path) -> None:  # noqa: F811
    count, refused = _printed(stack("gfx908", *FEW), bridge, ",".join(FEW))
    assert count == "64"
    assert refused == "add: input: device cuda:0 differs from the stream's" or re.match(
        "add: .*CUDA", refused
    )


@pytest.mark.slow
def test_all_cases_of_infiniops_through_its_operator(stack: Make, bridge: Path) -> None:  # noqa: F811
    assert _printed(stack("gfx908"), bridge, ALL)[0] == "132"


@pytest.mark.slow
@pytest.mark.skipif(bool(unexecutable(PROCESSOR)), reason=unexecutable(PROCESSOR))
def test_all_cases_of_infiniops_on_this_processor(stack: Make, bridge: Path) -> None:  # noqa: F811
    """Its 108 cases, and 24 newer ones, through the slot of `kCpu`."""
    assert _printed(stack(PROCESSOR), bridge, ALL, "cpu")[0] == "132"


def test_infiniops_generator_finds_the_implementations() -> None:
    """By the pattern with which its scripts read headers."""
    scripts = Path(SOURCES[0]) / "scripts"
    for folder, device in (("cuda/nvidia", "kNvidia"), ("cpu", "kCpu")):
        header = PROVIDER / "src" / "native" / folder / "ops" / "add" / "aotforge.h"
        found = subprocess.run(
            [sys.executable, "-c",
                "import sys, ops_config; "
                "print(ops_config._OPERATOR_SPECIALIZATION_RE.findall(sys.stdin.read()))"],
            cwd=scripts, input=header.read_text(), capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert found.stdout == "['8']\n"
        assert f"class Operator<Add, Device::Type::{device}, 8>" in header.read_text()
