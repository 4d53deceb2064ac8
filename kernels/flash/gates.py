"""Attention calls that PyTorch may make at each API level once `check_gpu` succeeds.

From PyTorch's gate (sdp_utils, mha_all_aot, mem_eff attention) of the releases that load a library of the
level. `check_gpu` succeeds on
an arch where the plan serves all of it: after it there is no other path.
"""

from __future__ import annotations

from aotforge.rules import Gate, GateCalls, dtypes

_FULL, _WINDOW, _BIAS = 0, 1, 2
_DROPOUT = (0, 1)
_HALF = tuple(dtypes("fp16", "bf16").values())
_ALL = tuple(dtypes("fp16", "bf16", "fp32").values())
_BOTH = "L stride_lh head_dim window_left window_right varlen_bits seqinfo_q0 seqinfo_k0 dropout_p philox_seed philox_offset1 philox_offset2"
_BIAS_STRIDES = "B stride_bz stride_bh stride_bm stride_bn"
_USES = {
    "attn_fwd": (*_BOTH.split(), *_BIAS_STRIDES.split(), "philox_seed_output", "philox_offset_output"),
    "attn_bwd": (*_BOTH.split(), *_BIAS_STRIDES.split(), "DB"),
}
_SINCE_0_12 = ("head_dim_v", "lse_packed")
_STRIDED = ("seqinfo_q1", "seqinfo_k1")


def _gate(level: str) -> Gate:
    newer = level != "0.11"
    calls: list[GateCalls] = []
    for operator, uses in _USES.items():
        needed = (*uses, *(_SINCE_0_12 if newer else ()))
        if newer and operator == "attn_fwd":
            needed = (*needed, *_STRIDED)
        flash = {"dtype": _HALF, "dropout": _DROPOUT, "mask": (_FULL, _WINDOW)}
        efficient = {"dtype": _ALL, "dropout": _DROPOUT, "mask": (_FULL, _WINDOW, _BIAS)}
        calls += [
            GateCalls(
                operator=operator,
                values={**flash, "width": (512,)},
                uses=needed,
                except_archs=() if newer else ("gfx11",),  # there PyTorch passes at most 256 up to this level
            ),
            GateCalls(
                operator=operator, values={**efficient, "width": (512 if newer else 256,)}, uses=needed
            ),
        ]
    calls.append(GateCalls(operator="attn_dropout_mask", values={"dtype": _ALL}))
    return Gate(name=level, calls=tuple(calls))


GATES = tuple(_gate(level) for level in ("0.11", "0.12", "0.13", "0.14"))
