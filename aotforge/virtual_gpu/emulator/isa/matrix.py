"""Matrix multiplication. cbsz and abid (broadcast of blocks of A) are for instructions of several blocks; blgp (permutation of B) is
refused by name: no entry allows it.

Shapes are in LLVM's spelling, rows x columns x k; several blocks are as many independent products.
"""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import Entry, merged, wave

# (m, k, blocks): inputs of one type, float32 accumulators
_GFX908 = {
    "f32": ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)),
    "f16": ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
    "bf16": ((32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)),
}
_GFX90A_BF16 = ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1))  # names end in _1k
_GFX950 = ((32, 16, 1), (16, 32, 1))


def _one(name: str, m: int, k: int, blocks: int, kind: str) -> dict[str, Entry]:
    registers = m * m * blocks // 64
    per_lane = k * m * blocks // 64
    inputs = per_lane if kind == "f32" else max(1, per_lane // 2)
    code = f"mfma(w, I, {m}, {k}, {blocks}, IN_{kind.upper()});"
    slots = f"D:v:{registers} S0:v:{inputs} S1:v:{inputs} S2:vi:{registers}"
    return wave(name, code, slots, modifiers=("cbsz", "abid") if blocks > 1 else (), archs=("gfx9",))


def _mfma() -> dict[str, Entry]:
    parts = []
    for kind, shapes in _GFX908.items():
        for m, k, blocks in shapes:
            # gfx940 and later write an underscore before the type, and the number of blocks
            stem = f"v_mfma_f32_{m}x{m}x{k}"
            long = f"{stem}_{blocks}b_{kind}" if blocks > 1 else f"{stem}_{kind}"
            parts.append(_one(f"{stem}{kind} {long}", m, k, blocks, kind))
    for m, k, blocks in _GFX90A_BF16:
        stem = f"v_mfma_f32_{m}x{m}x{k}"
        long = f"{stem}_{blocks}b_bf16" if blocks > 1 else f"{stem}_bf16"
        parts.append(_one(f"{stem}bf16_1k {long}", m, k, blocks, "bf16"))
    for kind in ("f16", "bf16"):
        parts += [_one(f"v_mfma_f32_{m}x{m}x{k}_{kind}", m, k, blocks, kind) for m, k, blocks in _GFX950]
    return merged(*_without_repeats(parts))


def _without_repeats(parts: list[dict[str, Entry]]) -> list[dict[str, Entry]]:
    """gfx908's bf16 forms have no underscore names of their own: those belong to the `_1k` forms."""
    seen: set[str] = set()
    result = []
    for part in reversed(parts):
        result.append({name: entry for name, entry in part.items() if name not in seen})
        seen |= set(part)
    return result


TABLE = merged(
    _mfma(),
    wave(
        "v_wmma_f32_16x16x16_f16",
        "wmma(w, I, IN_F16, I->flags);",
        "D:v:8 S0:v:0 S1:v:0 S2:vi:8",
        archs=("gfx11", "gfx12"),
    ),
    wave(
        "v_wmma_f32_16x16x16_bf16",
        "wmma(w, I, IN_BF16, I->flags);",
        "D:v:8 S0:v:0 S1:v:0 S2:vi:8",
        archs=("gfx11", "gfx12"),
    ),
)
