"""Conversions between float32 and 8-bit floats, whose formats depend on the arch."""

from typing import Any

from vgpu.emulator.isa.entry import merged, table

_TO_FLOAT = {
    f"v_cvt_f32_{name}": f"D.f32 = f32_of_{name}(S0.u32 & 255, I->flags & FNUZ)" for name in ("fp8", "bf8")
}
_TO_PAIR = {
    f"v_cvt_pk_f32_{name}": f"D.u64 = pair(bits_f32(f32_of_{name}(S0.u16 & 255, I->flags & FNUZ)), "
    f"bits_f32(f32_of_{name}(S0.u16 >> 8, I->flags & FNUZ)))"
    for name in ("fp8", "bf8")
}
_TO_SMALL = {
    f"v_cvt_pk_{name}_f32": f"D.u16 = {name}_of_f32(S0.f32, I->flags & FNUZ, SATURATES(w)) | "
    f"{name}_of_f32(S1.f32, I->flags & FNUZ, SATURATES(w)) << 8"
    for name in ("fp8", "bf8")
}
_RULES: dict[str, Any] = {"archs": ("gfx94", "gfx95", "gfx12"), "rules": ("eight_bit_format",)}

_WIDE = {name: f"f32_of_{name}(S0.u16 {{}}, 0) * scale_of(S1.f32)" for name in ("fp8", "bf8")}
_PAIRS = {"f16": ("f16_of_f32", "f32_of_f16"), "bf16": ("bf16_of_f32", "f32_of_bf16")}
"""Of halves: from and to float32."""
_SCALED = {
    **{
        f"v_cvt_scalef32_pk_f32_{name}": f"D.u64 = pair(bits_f32({x.format('& 255')}), "
        f"bits_f32({x.format('>> 8')}))"
        for name, x in _WIDE.items()
    },
    **{
        f"v_cvt_scalef32_pk_{kind}_{name}": f"D.u32 = {narrow}({x.format('& 255')}) | "
        f"{narrow}({x.format('>> 8')}) << 16"
        for name, x in _WIDE.items()
        for kind, (narrow, _) in _PAIRS.items()
    },
}
_FP4 = "f32_of_bits(S0.u32 >> (8 * (I->op_sel & 3) + {}) & 15, 2, 1) * scale_of(S1.f32)"
"""One of the two E2M1 numbers of a byte, which the low bits of op_sel select."""
_SCALED_FP4 = {
    "v_cvt_scalef32_pk_f32_fp4": f"D.u64 = pair(bits_f32({_FP4.format(0)}), bits_f32({_FP4.format(4)}))",
    **{
        f"v_cvt_scalef32_pk_{kind}_fp4": f"D.u32 = {narrow}({_FP4.format(0)}) | {narrow}({_FP4.format(4)}) "
        f"<< 16"
        for kind, (narrow, _) in _PAIRS.items()
    },
}
_SCALED_TO_SMALL = {
    **{
        f"v_cvt_scalef32_pk_{name}_f32": f"D.u16 = {name}_of_f32(S0.f32 / scale_of(S2.f32), 0, SATURATES(w)) "
        f"| "
        f"{name}_of_f32(S1.f32 / scale_of(S2.f32), 0, SATURATES(w)) << 8"
        for name in ("fp8", "bf8")
    },
    **{
        f"v_cvt_scalef32_pk_{name}_{kind}": f"D.u16 = {name}_of_f32({wide}(S0.u32 & 0xffff) / "
        f"scale_of(S1.f32), 0, SATURATES(w)) | "
        f"{name}_of_f32({wide}(S0.u32 >> 16) / scale_of(S1.f32), 0, SATURATES(w)) << 8"
        for name in ("fp8", "bf8")
        for kind, (_, wide) in _PAIRS.items()
    },
}

TABLE = merged(
    table("vector", _TO_FLOAT, modifiers=frozenset({"src0_sel"}), **_RULES),
    table("vector", _TO_PAIR, modifiers=frozenset({"src0_sel", "op_sel"}), **_RULES),
    table("vector", _TO_SMALL, modifiers=frozenset({"op_sel"}), keeps_half=True, **_RULES),
    table("vector", _SCALED, _SCALED_FP4, modifiers=frozenset({"op_sel"}), archs=("gfx95",)),
    table("vector", _SCALED_TO_SMALL, modifiers=frozenset({"op_sel"}), keeps_half=True, archs=("gfx95",)),
)
