"""Conversions between float32 and 8-bit floats, whose formats depend on the arch."""

from typing import Any

from aotforge.virtual_gpu.emulator.isa.entry import merged, table

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

TABLE = merged(
    table("vector", _TO_FLOAT, modifiers=frozenset({"src0_sel"}), **_RULES),
    table("vector", _TO_PAIR, modifiers=frozenset({"src0_sel", "op_sel"}), **_RULES),
    table("vector", _TO_SMALL, modifiers=frozenset({"op_sel"}), keeps_half=True, **_RULES),
)
