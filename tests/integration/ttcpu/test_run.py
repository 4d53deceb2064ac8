"""`python -m ttcpu`: a script like Triton's tutorials, whose kernels run on PyTorch's CPU tensors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.ttcpu.features import compile_kernel
from ttcpu.levels import host_level

pytestmark = pytest.mark.compiler
ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 128 == 0})
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    out = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([m, k]), right.load([k, n]), total)
    out.store([m, n], total.to(tl.float16))


@triton.jit
def checked(x, n):
    tl.device_assert(tl.load(x) > n, "x is too small")


torch.manual_seed(0)
x, y = torch.randn(1000, device=DEVICE), torch.randn(1000, device=DEVICE)
out = torch.empty_like(x)
add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, out, 1000)
assert torch.equal(out, x + y)
a, b = torch.randn(100, 64).half(), torch.randn(64, 80).half()
c = torch.empty(100, 80, dtype=torch.float16)
product[(4, 3)](a, b, c, 100, 80, 64, BM=32, BN=32, BK=16)
torch.testing.assert_close(c, (a.float() @ b.float()).half(), rtol=2e-3, atol=2e-3)
print("milliseconds", triton.testing.do_bench(lambda: add[(8,)](x, y, out, 1000), warmup=1, rep=2) > 0)
checked[(1,)](torch.ones(1), 0, debug=True)
try:
    checked[(1,)](torch.ones(1), 5, debug=True)
except RuntimeError as error:
    print(error)
memory = bytearray(12003)
places = [4000 * number + 1 + number for number in range(3)]
parts = [torch.frombuffer(memory, dtype=torch.float32, offset=place, count=1000) for place in places]
parts[0].copy_(x), parts[1].copy_(y)
add.fn.fn[(8,)](*parts, 1000, BLOCK=128, EVEN=False)
print([part.data_ptr() % 2 for part in parts], torch.equal(parts[2], x + y))
empty = torch.empty(0)
add.fn.fn[(1,)](empty, empty, empty, 0, BLOCK=128, EVEN=False)
out.zero_()
for grid in ((0,), (8,), (2**31,)):
    try:
        add.fn.fn[grid](x, empty, out, 1000, BLOCK=128, EVEN=False)
        print("ran", out.any().item())
    except ValueError as error:
        print(error, out.any().item())


@triton.jit
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


@triton.jit
def recursive(out, n):
    tl.store(out, factorial(n))


try:
    recursive[(1,)](out, 5)
except triton.CompilationError as error:
    print("tl.store(out, factorial(n))" in str(error))
print(sys.argv[1:])
"""


def _run(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    return subprocess.run(
        [sys.executable, "-m", "ttcpu", *arguments], capture_output=True, text=True,
        check=False, cwd=folder,
        env={**clean, "TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_script_with_autotuning_descriptors_assertions_and_bad_input(threads: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = _run(["script.py", "--size", "7"], tmp_path, OMP_NUM_THREADS=threads)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "milliseconds True"
    assert lines[1].startswith("device_assert failed:")
    assert lines[1].endswith("x is too small")
    assert lines[2].endswith("] True"), "pointers that are not aligned to elements"
    assert lines[3:6] == [
        "ran False",
        "y: a null pointer that the kernel uses, as an empty tensor has False",
        "the grid (2147483648, 1, 1) is not possible: each size is 0 to 2^31 - 1, their product below 2^63 "
        "False",
    ]
    assert lines[6:] == ["True", "['--size', '7']"]


ADD = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

x, out = torch.ones(100), torch.empty(100)
add[(1,)](x, out, 100, BLOCK=128)
print(float(out.sum()))
"""


@pytest.mark.torch
def test_machine_code_in_the_cache_is_executed_only_if_this_process_would_have_made_it(
    tmp_path: Path,
) -> None:
    """Truncated and exchanged code is compiled again; a cache that every user can write is reported."""
    (tmp_path / "script.py").write_text(ADD)
    assert _run(["script.py"], tmp_path).stdout == "200.0\n"
    codes = sorted((tmp_path / "cache").rglob("*.so"))
    assert sorted(code.name for code in codes) == ["add.so", "aotforge_cpu_launch.so"]
    intact = [code.read_bytes() for code in codes]
    for change in (lambda _: b"", lambda content: content[:-100] + b"x" * 100):
        for code, content in zip(codes, intact, strict=True):
            code.write_bytes(change(content))
        done = _run(["script.py"], tmp_path)
        assert done.stdout == "200.0\n", done.stderr


FAULTS = """
import sys
import torch, triton, triton.language as tl

@triton.jit(do_not_specialize=["address"])
def far(x, out, address, n: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if n == 1:
        tl.store(out + at, tl.load(x + (at + 1000000000)))
    if n == 2:
        tl.store(out + (at - 1000000000), tl.load(x + at))
    if n == 3:
        tl.store(address.to(tl.int64).to(tl.pointer_type(tl.float32)) + at, 1.0)

n, address = int(sys.argv[1]), int(sys.argv[2])
x, out = torch.ones(256)[6:], torch.empty(256)
far[(64,)](x, out, address, n=n, BLOCK=4)
print("ran")
"""


_ONE = r"0x\w+; nearest is (x|out), 1024 bytes, of which it would be byte -?\d+"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("number", "address", "threads", "message"),
    [
        ("1", "1", "1", f"script.py:9: access out of bounds: read at {_ONE}"),
        ("2", "1", "3", f"script.py:11: access out of bounds: write at {_ONE}"),
        ("3", "16", "3", "script.py:13: access out of bounds: write at 0x10, a null pointer"),
        ("3", str(1 << 62), "1", "script.py:13: access out of bounds: .* an address of more than 48 bits"),
        ("4", "1", "3", ""),
    ],
)
def test_a_fault_ends_the_process_with_the_access(
    number: str, address: str, threads: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(FAULTS)
    done = _run(["script.py", number, address], tmp_path, OMP_NUM_THREADS=threads)
    assert done.returncode == (-11 if message else 0), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == (2 if message else 0), done.stderr
    assert not lines or re.fullmatch(f"error: far, {message}", lines[0]), lines[0]
    assert not lines or lines[1].startswith("Next step: compare masks, strides and grid")
    assert done.stdout.endswith("ran\n") != bool(message)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    done = _run(["missing.py"], tmp_path)
    assert done.returncode == 2
    assert "missing.py is not a file" in done.stderr
    assert "python -m ttcpu FILE.py" in done.stderr


def test_two_compilations_give_the_same_bytes(tmp_path: Path) -> None:
    source = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(x, BLOCK: tl.constexpr):\n"
    )
    source += "    i = tl.arange(0, BLOCK)\n    tl.store(x + i, tl.softmax(tl.load(x + i)))\n"
    program = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "import kernel\nfrom tests.integration.ttcpu.features import compile_kernel\n"
        "made = compile_kernel(kernel.kernel, {'x': '*fp32', 'BLOCK': 'constexpr'}, {'BLOCK': 64}, "
        "sys.argv[2])\n"
        "print(hashlib.sha256(made.code).hexdigest())\n"
    )
    digests = set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        (folder / "kernel.py").write_text(source)
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder), host_level()], capture_output=True, text=True,
            check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed, "TRITON_DISABLE_LINE_INFO": "1"},
        )  # fmt: skip
        digests.add(done.stdout)
    assert len(digests) == 1


def test_what_is_not_supported_is_named_with_its_line(tmp_path: Path) -> None:
    from tests.integration.vgpu.coverage.catalogue import FEATURES
    from tests.integration.vgpu.coverage.execute import kernel_of
    from ttcpu.errors import UnsupportedError

    feature = FEATURES["inline assembly"]
    kernel = kernel_of(feature, tmp_path)
    with pytest.raises(
        UnsupportedError, match=r"feature_\w+\.py:\d+: .* does not support tt\.elementwise_inline_asm"
    ):
        compile_kernel(kernel, feature.signature, feature.constants, host_level())
