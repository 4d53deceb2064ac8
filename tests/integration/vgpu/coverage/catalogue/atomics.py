"""Atomic operations of every type that the language has, and locks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, generator, given, out
from tests.integration.vgpu.coverage.formats import Array

_GROUP = "atomics"
_OPERATIONS: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
    "add": (np.add, "i32 u32 i64 u64 fp16 bf16 fp32 fp64"),
    "max": (np.maximum, "i32 u32 i64 u64 fp32 fp64"),
    "min": (np.minimum, "i32 u32 i64 u64 fp32 fp64"),
    "and": (np.bitwise_and, "i32 i64"),
    "or": (np.bitwise_or, "i32 i64"),
    "xor": (np.bitwise_xor, "i32 i64"),
}


def _read_modify_write(operation: str, kind: str, more: str = "") -> Feature:
    """Several lanes and both programs hit each of seven places; every lane also has one of its own, whose old
    value it stores."""
    function, _ = _OPERATIONS[operation]
    name = f"atomic_{operation} {kind}{more.replace(', ', ' ')}"
    body = f"""
i = tl.program_id(0) * 64 + tl.arange(0, 64)
v = tl.load(x + i)
tl.atomic_{operation}(p + i % 7, v{more})
old = tl.atomic_{operation}(p + 16 + i, v{more})
tl.store(o + i, old)
"""
    low = -100 if kind[0] in "if" and operation != "add" else -3 if kind[0] != "u" else 0
    rng = generator(name)
    x, p = rng.integers(low, 4 if operation == "add" else 100, 128), rng.integers(max(low, -2), 4, 144)

    def reference(x: Array, p: Array) -> tuple[Array, Array]:
        after = p.copy()
        function.at(after, np.arange(128) % 7, x)  # type: ignore[attr-defined]
        after[16:] = function(p[16:], x)
        return after, p[16:]

    tensors = {"x": given(kind, x), "p": given(kind, p, written=True), "o": out(kind, 128)}
    return Feature(name=name, group=_GROUP, body=body, tensors=tensors, reference=reference, grid=(2, 1, 1))


def _exchange(kind: str) -> Feature:
    body = "i = tl.arange(0, 128)\ntl.store(o + i, tl.atomic_xchg(p + i, tl.load(x + i)))"
    tensors = {
        "x": given(kind, range(128)),
        "p": given(kind, range(50, 178), written=True),
        "o": out(kind, 128),
    }
    return Feature(
        name=f"atomic_xchg {kind}", group=_GROUP, body=body, tensors=tensors, reference=lambda x, p: (x, p)
    )


def _compare(kind: str) -> Feature:
    body = """
i = tl.arange(0, 128)
old = tl.atomic_cas(p + i, (i % 3).to(p.dtype.element_ty), (i + 1000).to(p.dtype.element_ty))
tl.store(o + i, old)
"""
    start = np.arange(128) % 2
    tensors = {"p": given(kind, start, written=True), "o": out(kind, 128)}
    i = np.arange(128)
    return Feature(
        name=f"atomic_cas {kind}",
        group=_GROUP,
        body=body,
        tensors=tensors,
        reference=lambda p: (np.where(p == i % 3, i + 1000, p), p),
    )


_LOCK = """
while tl.atomic_cas(lock, 0, 1) == 1:
    pass
i = tl.arange(0, 64)
tl.store(p + i, tl.load(p + i) * 2 + 1)
tl.debug_barrier()
tl.atomic_xchg(lock, 0)
"""

FEATURES = (
    *(_read_modify_write(name, kind) for name, (_, kinds) in _OPERATIONS.items() for kind in kinds.split()),
    *(_read_modify_write("add", "i32", f', sem="{sem}", scope="{scope}"')
      for sem, scope in (("relaxed", "gpu"), ("acquire", "cta"), ("release", "sys"))),
    *(_exchange(kind) for kind in ("i32", "i64", "fp32")),
    *(_compare(kind) for kind in ("i32", "i64", "u32")),
    Feature(name="atomic_add of a scalar", group=_GROUP, body="tl.store(o + tl.atomic_add(p, 1), 1)",
            tensors={"p": given("i32", [0], written=True), "o": out("i32", 5)},
                reference=lambda p: (p + 5, np.ones(5)), grid=(5, 1, 1)),
    Feature(name="atomic_add with a mask", group=_GROUP,
        body="i = tl.arange(0, 64)\ntl.atomic_add(p + i, i, mask=i % 3 == 0)",
            tensors={"p": given("i32", range(64), written=True)},
                reference=lambda p: np.where(p % 3 == 0, 2 * p, p)),
    Feature(name="lock between programs", group=_GROUP, body=_LOCK,
            tensors={"lock": given("i32", [0], written=True), "p": given("i32", [0] * 64, written=True)},
            reference=lambda lock, p: (lock, p + 15), grid=(4, 1, 1)),
)  # fmt: skip
