"""Programs, control flow, functions, debugging, inline assembly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.integration.vgpu.coverage.feature import Feature, N, Tensor, given, normal, out

_GROUP = "programs and control flow"
_I = f"i = tl.arange(0, {N})\n"


def _control(
    name: str, body: str, tensors: dict[str, Tensor], reference: Callable[..., Any], **more: Any
) -> Feature:
    return Feature(name=name, group=_GROUP, body=body, tensors=tensors, reference=reference, **more)


def _x(name: str) -> dict[str, Tensor]:
    return {"x": given("fp32", normal(name)), "o": out("fp32")}


_HELPERS = """
@triton.jit
def inlined(a, b: tl.constexpr = 3):
    return a * b, a + b


@triton.jit(noinline=True)
def apart(a):
    return a * 5 + 1


@triton.jit
def early(a, n):
    if n > 10:
        return a * 2
    return a * 3


@triton.jit
def nested(pair):
    a, b = pair
    return a + b[0] * b[1]


@triton.constexpr_function
def power(n):
    return 2**n
"""

FEATURES = (
    _control("program_id",
        "p = tl.program_id(2) * 6 + tl.program_id(1) * 2 + tl.program_id(0)\ntl.store(o + p, p)",
             {"o": out("i32", 24)}, lambda: np.arange(24), grid=(2, 3, 4)),
    *(_control(f"num_programs({axis})", f"tl.store(o + tl.program_id({axis}), tl.num_programs({axis}))",
               {"o": out("i32", 3)}, lambda: np.full(3, 3),
                   grid=tuple(3 if a == axis else 1 for a in range(3)))
      for axis in range(3)),
    _control("persistent programs", """
for t in range(tl.program_id(0), n, tl.num_programs(0)):
    i = t * 32 + tl.arange(0, 32)
    tl.store(o + i, tl.load(x + i) + t)
""", {"x": given("i32", range(320)), "o": out("i32", 320)}, lambda x: x + np.arange(320) // 32,
    values={"n": ("i32", 10)}, grid=(3, 1, 1)),
    _control("if with a scalar",
        f"{_I}v = tl.load(x + i)\nif n > 3:\n    v = v + 1\nelse:\n    v = v - 1\ntl.store(o + i, v)",
             {"x": given("i32", range(N)), "o": out("i32")}, lambda x: x + 1, values={"n": ("i32", 5)}),
    _control("if by program",
        f"{_I}if tl.program_id(0) % 2 == 0:\n    tl.store(o + i, i)\nelif tl.program_id(0) == 1:\n"
        f"    tl.store(p + i, i * 2)",
             {"o": out("i32"), "p": out("i32")}, lambda: (np.arange(N), np.arange(N) * 2), grid=(2, 1, 1)),
    _control("early return",
             f"if tl.program_id(0) > 0:\n    return\n{_I}tl.store(o + i, i)", {"o": out("i32")},
                 lambda: np.arange(N), grid=(4, 1, 1)),
    _control("while", """
n = tl.load(x)
count = 0
while n != 1:
    n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
    count += 1
tl.store(o, count)
""", {"x": given("i32", [27]), "o": out("i32", 1)}, lambda x: np.array([111])),
    _control("while over a tensor", f"""
{_I}v = tl.load(x + i)
while tl.max(v, 0) > 1:
    v = tl.where(v > 1, v - 3, v)
tl.store(o + i, v)
""", {"x": given("i32", range(N)), "o": out("i32")}, lambda x: np.where(x > 1, (x - 2) % 3 - 1, x)),
    _control("for with a run-time range",
        f"{_I}v = tl.zeros(({N},), tl.int32)\nfor k in range(n, 2, -3):\n    v += k * i\ntl.store(o + i, v)",
             {"o": out("i32")}, lambda: np.arange(N) * sum(range(20, 2, -3)), values={"n": ("i32", 20)}),
    _control("nested loops with conditions", f"""
{_I}v = i
for a in range(n):
    for b in range(a):
        if (a + b) % 2 == 0:
            v += a * b
tl.store(o + i, v)
""", {"o": out("i32")},
    lambda: np.arange(N) + sum(a * b for a in range(7) for b in range(a) if (a + b) % 2 == 0),
        values={"n": ("i32", 7)}),
    *(_control(f"tl.range with {text}",
        f"{_I}v = tl.zeros(({N},), tl.float32)\nfor k in tl.range(0, n, {text}):\n"
               f"    v += tl.load(x + k * {N} + i)\ntl.store(o + i, v)",
               {"x": given("fp32", np.arange(8 * N) % 100), "o": out("fp32")},
                   lambda x: x.reshape(8, N).sum(0), values={"n": ("i32", 8)})
      for text in ("num_stages=3", "loop_unroll_factor=4", "flatten=True", "disallow_acc_multi_buffer=True")),
    _control("static_range",
        f"{_I}v = i\nfor k in tl.static_range(4):\n    v = v * 2 + k\ntl.store(o + i, v)", {"o": out("i32")},
             lambda: np.arange(N) * 16 + 11),
    _control("constexpr branch, static_assert, static_print",
        f"tl.static_assert(B % 2 == 0)\ntl.static_print(B)\n"
             f"{_I}if B > 4:\n    tl.store(o + i, i)\nelse:\n    tl.store(o, 0)",
             {"o": out("i32")}, lambda: np.arange(N), constants={"B": 8}),
    _control("constexpr function", f"{_I}tl.store(o + i, i + power(5))", {"o": out("i32")},
        lambda: np.arange(N) + 32, helpers=_HELPERS),
    _control("function with two results",
             f"{_I}a, b = inlined(i)\ntl.store(o + i, a + b)", {"o": out("i32")},
                 lambda: np.arange(N) * 4 + 3, helpers=_HELPERS),
    _control("function with early return", f"{_I}tl.store(o + i, early(i, n))", {"o": out("i32")},
        lambda: np.arange(N) * 2, helpers=_HELPERS,
             values={"n": ("i32", 11)}),
    _control("tuples", f"{_I}tl.store(o + i, nested((i, (i, 2))))", {"o": out("i32")},
        lambda: np.arange(N) * 3, helpers=_HELPERS),
    _control("noinline function of a scalar", f"{_I}tl.store(o + i, i + apart(n))", {"o": out("i32")},
        lambda: np.arange(N) + 36, helpers=_HELPERS,
             values={"n": ("i32", 7)}),
    _control("device_print", f'{_I}v = tl.load(x + i)\ntl.device_print("v", v)\ntl.store(o + i, v)',
        _x("print"), lambda x: x),
    _control("device_assert that holds",
        f'{_I}v = tl.load(x + i)\ntl.device_assert(v < 1e9, "large")\ntl.store(o + i, v)', _x("assert"),
            lambda x: x,
             options={"debug": True}),
    _control("device_assert that fails",
             f'{_I}v = tl.load(x + i)\ntl.device_assert(v < 0, "not negative")\ntl.store(o + i, v)',
                 _x("assert"), lambda x: x,
             options={"debug": True}, expects="not negative"),
    _control("debug_barrier",
        f"{_I}tl.store(o + i, i)\ntl.debug_barrier()\nv = tl.load(o + {N - 1} - i)\ntl.debug_barrier()\n"
        f"tl.store(o + i, v)",
             {"o": out("i32")}, lambda: np.arange(N)[::-1]),
    _control("inline assembly", f'''{_I}v = tl.load(x + i)
r = tl.inline_asm_elementwise("v_add_u32 $0, $1, $2", "=v,v,v", [v, i], dtype=tl.int32, is_pure=True, pack=1)
tl.store(o + i, r)''', {"x": given("i32", range(N)), "o": out("i32")}, lambda x: 2 * x),
    _control("inline assembly with two instructions", f'''{_I}v = tl.load(x + i)
text: tl.constexpr = "v_lshlrev_b32 $0, 2, $1\\nv_xor_b32 $0, $0, $1"
r = tl.inline_asm_elementwise(text, "=&v,v", [v], dtype=tl.int32, is_pure=True, pack=1)
tl.store(o + i, r)''', {"x": given("i32", range(N)), "o": out("i32")}, lambda x: x << 2 ^ x),
    *(_control(f"value {kind}", f"{_I}tl.store(o + i, i * 0 + s)", {"o": out(result)},
        lambda number=number: np.full(N, number),
               values={"s": (kind, number)})
      for kind, result, number in (("i8", "i32", -5), ("i16", "i32", -300), ("i64", "i64", -(2**40)),
          ("u8", "i32", 200),
                                   ("u64", "u64", 2**63 + 1), ("fp32", "fp32", 0.75), ("fp64", "fp64", 0.1))),
    *(_control(f"{warps} warps, a transposed tile", """
r = tl.arange(0, 64)
t = tl.load(x + r[:, None] * 64 + r[None, :])
tl.store(o + r[:, None] * 64 + r[None, :], tl.trans(t) + tl.sum(t, 1)[:, None])
""", {"x": given("fp32", np.arange(4096) % 61), "o": out("fp32", 4096)},
               lambda x: x.reshape(64, 64).T + x.reshape(64, 64).sum(1)[:, None],
                   options={"num_warps": warps})
      for warps in (1, 2, 4, 8, 16)),
    *(_control(f"option {name}={value}", f"{_I}tl.store(o + i, tl.exp(tl.load(x + i)))", _x("options"),
        np.exp, tolerance=1e-5, options={name: value})
      for name, value in (("waves_per_eu", 2), ("enable_fp_fusion", False), ("allow_flush_denorm", True),
          ("num_stages", 1))),
    _control("spilled registers", """
r = tl.arange(0, 32)
at = x + r[:, None] * 32 + r[None, :]
s = 0.0
""" + "".join(f"t{k} = tl.load(at + {1024 * k})\ns += tl.max(tl.max(t{k}, 1), 0)\n" for k in range(10))
             + "".join(f"tl.store(o + {1024 * k} + r[:, None] * 32 + r[None, :], t{k} + s)\n"
                       for k in range(10)),
             {"x": given("fp32", np.arange(10240) % 97), "o": out("fp32", 10240)},
                 lambda x: x + x.reshape(10, -1).max(1).sum(),
             options={"num_warps": 1, "waves_per_eu": 8}),
)  # fmt: skip
