"""Kernels that compilers and GPUs of other people got wrong: right on the virtual GPU and on the CPU."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.ttcpu import features as cpu
from tests.integration.vgpu.coverage.execute import (
    PASSED,
    buffers_of,
    compiled,
    difference,
    load,
    run,
)
from tests.integration.vgpu.coverage.feature import (
    Feature,
    Tensor,
    bits,
    elementwise,
    given,
    integers,
    normal,
    out,
)
from tests.integration.vgpu.coverage.formats import Array, rounded
from tests.support.triton_kernels import compile_kernel
from ttcpu.levels import host_level
from vgpu.emulator.program import LaunchRequest
from vgpu.memory import Memory

pytestmark = pytest.mark.compiler


def product_of_bf16() -> Feature:
    """v_dot2_bf16_bf16 would truncate (triton#11217)."""
    inputs = {name: given("bf16", normal(f"product {name}", 4096)) for name in "xy"}
    return elementwise("product", "reports", "x * y", "bf16", inputs, lambda x, y: rounded(x * y, "bf16"))


def queue_of_slots() -> Feature:
    """Programs take slots from a counter until none is left (triton#11037)."""
    body = """
slot = tl.atomic_add(counter, 1)
while slot < n:
    tl.atomic_add(o + slot, 1)
    slot = tl.atomic_add(counter, 1)
"""
    tensors = {"counter": given("i32", [0], written=True), "o": given("i32", [0] * 100, written=True)}
    return Feature(
        name="queue", group="reports", body=body, tensors=tensors, values={"n": ("i32", 100)},
        grid=(8, 1, 1), reference=lambda *_: (np.array([108]), np.ones(100, np.int32)),
    )  # fmt: skip


def two_products(kind: str, stages: int) -> Feature:
    """One accumulator of two products in a loop (triton#10821)."""
    body = """
m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
acc = tl.zeros((64, 64), tl.float32)
for step in range(0, 96, 32):
    at = m[:, None] * 96 + step + k[None, :]
    bt = (step + k[:, None]) * 64 + n[None, :]
    acc = tl.dot(tl.load(a + at), tl.load(b + bt), acc, input_precision="ieee")
    acc = tl.dot(tl.load(c + at), tl.load(d + bt), acc, input_precision="ieee")
tl.store(o + m[:, None] * 64 + n[None, :], acc)
"""
    shapes = {"a": (64, 96), "b": (96, 64), "c": (64, 96), "d": (96, 64)}
    tensors = {name: given(kind, normal(f"two {name}", shape)) for name, shape in shapes.items()}

    def reference(*flat: Array) -> Array:
        a, b, c, d = (x.astype(np.float64).reshape(s) for x, s in zip(flat, shapes.values(), strict=True))
        return np.asarray(a @ b + c @ d)

    return Feature(
        name=f"two products {kind}", group="reports", body=body, tensors=tensors | {"o": out("fp32", 4096)},
        reference=reference, tolerance=1e-4, options={"num_stages": stages},
    )  # fmt: skip


def logarithms_of_integers() -> Feature:
    """int64 to float32, log, times a row of bf16; rows apart (triton#8306)."""
    body = """
row, column = tl.program_id(0), tl.arange(0, 1024)
mask = column < 640
value = tl.log(tl.load(x + row * 896 + column, mask=mask, other=0).to(tl.float32) + 1)
tl.store(o + row * 640 + column, value * tl.load(w + column, mask=mask, other=0).to(tl.float32), mask=mask)
"""
    x, w = integers("logarithms", 0, 1 << 40, (4, 896)), given("bf16", normal("row", 640))

    def reference(x: Array, w: Array) -> Array:
        return np.asarray(np.log(x.reshape(4, 896)[:, :640].astype(np.float32) + 1.0) * w.astype(np.float64))

    tensors = {"x": given("i64", x), "w": w, "o": out("fp32", 2560)}
    return Feature(
        name="logarithms", group="reports", body=body, tensors=tensors, reference=reference,
        tolerance=1e-5, grid=(4, 1, 1),
    )  # fmt: skip


def branch_and_first_program() -> Feature:
    """A branch that is always taken, and a store of the first program alone (triton#11153, #11148)."""
    body = """
pid, i = tl.program_id(0), tl.arange(0, 64)
value = tl.load(x + pid * 64 + i)
if n > 0:
    tl.store(o + pid * 64 + i, value * 2)
tl.store(first + i, value + 1, mask=(pid == 0) & (i < n))
"""
    tensors = {
        "x": given("i32", range(192)),
        "o": out("i32", 192),
        "first": given("i32", [7] * 64, written=True),
    }
    return Feature(
        name="branch", group="reports", body=body, tensors=tensors, values={"n": ("i32", 40)}, grid=(3, 1, 1),
        reference=lambda x, first: (x * 2, np.where(np.arange(64) < 40, x[:64] + 1, first)),
    )  # fmt: skip


def one_row() -> Feature:
    """Rows from an arange of one element: row 1 is not written (triton-shared#309)."""
    body = """
rows, columns = tl.program_id(0) + tl.arange(0, 1)[:, None], tl.arange(0, 16)[None, :]
tl.store(o + rows * 8 + columns, 5, mask=(rows < 2) & (columns < 8))
"""
    tensors = {"o": given("i32", [9] * 16, written=True)}
    return Feature(
        name="one row", group="reports", body=body, tensors=tensors,
        reference=lambda o: np.where(np.arange(16) < 8, 5, o),
    )  # fmt: skip


def sum_with_nan() -> Feature:
    """Of bf16; Triton's interpreter adds bit patterns (triton#11604)."""
    numbers = np.full(16, 0.5)
    numbers[5] = np.nan
    body = "tl.store(o, tl.sum(tl.load(x + tl.arange(0, 16)), 0))"
    tensors = {"x": given("bf16", numbers), "o": out("bf16", 1)}
    return Feature(name="sum", group="reports", body=body, tensors=tensors, reference=lambda x: x.sum())


def attention_of_four_loads() -> Feature:
    """Four loads, two products, a running maximum: LLVM aborted with four stages (triton#9815)."""
    body = """
i = tl.arange(0, 16)
at = i[:, None] * 16 + i[None, :]
query, top = tl.load(q + at), tl.full((16,), float("-inf"), tl.float32)
total, out = tl.zeros((16,), tl.float32), tl.zeros((16, 16), tl.float32)
for step in tl.range(0, n, 16, num_stages=4):
    here = step * 16 + at
    score = tl.dot(query, tl.trans(tl.load(k + here))) + tl.load(b + here).to(tl.float32)
    higher = tl.maximum(top, tl.max(score, 1))
    weight = tl.exp(score - higher[:, None])
    scale = tl.exp(top - higher)
    value = tl.load(v + here) + tl.load(w + here)
    out = out * scale[:, None] + tl.dot(weight.to(tl.bfloat16), value)
    total, top = total * scale + tl.sum(weight, 1), higher
tl.store(o + at, out / total[:, None])
"""
    sizes = {"q": 16, "k": 64, "b": 64, "v": 64, "w": 64}
    tensors = {name: given("bf16", normal(f"four {name}", (rows, 16), 0.5)) for name, rows in sizes.items()}

    def reference(*flat: Array) -> Array:
        q, k, b, v, w = (x.astype(np.float64).reshape(-1, 16) for x in flat)
        score = np.concatenate([q @ k[at : at + 16].T + b[at : at + 16] for at in range(0, 64, 16)], axis=1)
        weight = np.exp(score - score.max(1, keepdims=True))
        return np.asarray(weight / weight.sum(1, keepdims=True) @ (v + w))

    return Feature(
        name="four loads", group="reports", body=body, tensors=tensors | {"o": out("fp32", 256)},
        values={"n": ("i32", 64)}, reference=reference, tolerance=2e-2, options={"num_stages": 4},
    )  # fmt: skip


def every_code(kind: str) -> Feature:
    """All codes of an 8-bit float to bf16, infinities and NaN among them (triton#11784)."""
    source: Tensor = bits(kind, np.arange(256, dtype=np.uint8))
    return elementwise(f"every {kind}", "reports", "x.to(tl.bfloat16)", "bf16", {"x": source}, lambda x: x)


ANYWHERE = [
    product_of_bf16(), queue_of_slots(), two_products("bf16", 1), two_products("fp32", 1),
    logarithms_of_integers(), branch_and_first_program(), one_row(), sum_with_nan(),
    attention_of_four_loads(),
]  # fmt: skip
ARCHS = ["gfx908", "gfx950", "gfx1030", "gfx1100", "gfx1201"]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("feature", ANYWHERE, ids=lambda one: one.name)
def test_on_the_virtual_gpu(feature: Feature, arch: str, tmp_path: Path) -> None:
    outcome = run(feature, arch, tmp_path)
    assert (outcome.verdict, outcome.reason) == (PASSED, "")


@pytest.mark.parametrize(
    "feature", [*ANYWHERE, every_code("fp8e5"), every_code("fp8e4nv")], ids=lambda one: one.name
)
def test_on_the_cpu(feature: Feature, tmp_path: Path) -> None:
    outcome = cpu.run(feature, host_level(), tmp_path)
    assert (outcome.verdict, outcome.reason) == (PASSED, "")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_two_products_in_two_stages(kind: str, arch: str, tmp_path: Path) -> None:
    outcome = run(two_products(kind, 2), arch, tmp_path)
    assert (outcome.verdict, outcome.reason) == (PASSED, "")


@pytest.mark.parametrize("arch", ["gfx950", "gfx1201"])
def test_a_queue_ends_in_any_order_of_waves(arch: str, tmp_path: Path) -> None:
    feature = queue_of_slots()
    image = compiled(feature, arch, tmp_path)
    program = load(image, arch)
    for schedule in range(1, 6):
        buffers = buffers_of(feature)
        arguments = [*(b.ctypes.data for b in buffers.values()), 100]
        program.launch(
            LaunchRequest(
                grid=feature.grid, arguments=arguments, memory=Memory(buffers), lds_bytes=image.lds_bytes,
                schedule=schedule,
            )
        )  # fmt: skip
        assert difference(feature, buffers) == ""


def test_a_missing_store_would_be_noticed(tmp_path: Path) -> None:
    """The checks above compare every element."""
    feature = branch_and_first_program()
    wrong = replace(feature, body=feature.body.replace("pid == 0", "pid == 1"))
    assert run(wrong, "gfx1100", tmp_path).reason.startswith("first[0] is ")


FAR = 67_108_864
MAP_NORESERVE = 0x4000  # Python 3.11 does not name it
FAR_KERNEL = f"""@triton.jit
def kernel(x, o):
    i = tl.arange(0, 32)
    tl.store(o + i, tl.load(x + i * {FAR}))
"""


@pytest.mark.parametrize("arch", ["gfx908", "gfx942", "gfx1100", "gfx1201"])
def test_elements_more_than_4_gib_apart(arch: str) -> None:
    """Offsets in bytes beyond 32 bits, of a tensor without pages (ROCm/triton#944)."""
    made = compile_kernel(FAR_KERNEL, arch, {"x": "*i32", "o": "*i32"}, divisible_by={"x": 16, "o": 16})
    size, kind = 31 * FAR * 4 + 4, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    with mmap.mmap(-1, size, flags=kind) as pages:
        x, o = np.frombuffer(pages, np.int32), np.zeros(32, np.int32)
        x[::FAR] = np.arange(1, 33)
        request: Any = LaunchRequest(
            grid=(1, 1, 1), arguments=[x.ctypes.data, o.ctypes.data], memory=Memory({"x": x, "o": o}),
            lds_bytes=made.lds,
        )  # fmt: skip
        made.load(arch).launch(request)
        del x, request
    assert list(o) == list(range(1, 33))
