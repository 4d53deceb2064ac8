"""Instructions executed once for all lanes: control, lane moves, matrix products, and no-ops.

Matrix shapes are in LLVM's spelling, rows x columns x k; several blocks are that many independent products.
cbsz and abid (broadcast of blocks of A) are for instructions of several blocks; no entry allows blgp
(permutation of B).
"""

from typing import Any

from vgpu.emulator.isa.entry import SUM_ORDER, Entry, merged, wave

CONTROL = merged(
    wave("s_branch", "PC = I->target;", "S0:c:0"),
    wave("s_cbranch_scc0", "if (!SCC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_scc1", "if (SCC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_vccz", "if (!scalar_mask(w, VCC_LO)) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_vccnz", "if (scalar_mask(w, VCC_LO)) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_execz", "if (!EXEC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_execnz", "if (EXEC) PC = I->target;", "S0:c:0"),
    wave("s_getpc_b64", "put_scalar64(w, &I->d, w->code_base + I->address);", "D:s:2"),
    wave("s_setpc_b64", "jump(w, scalar64(w, &I->s[0]));", "S0:s:2"),
    wave(
        "s_swappc_b64",
        "u64 to = scalar64(w, &I->s[0]); put_scalar64(w, &I->d, w->code_base + I->address); jump(w, to);",
        "D:s:2 S0:s:2",
    ),
    wave("s_call_b64", "put_scalar64(w, &I->d, w->code_base + I->address); PC = I->target;", "D:s:2 S0:c:0"),
    wave("s_barrier", "w->state = AT_BARRIER;", ""),
    # gfx12 splits a barrier in two: a wave signals, then waits
    wave("s_barrier_signal", ";", "S0:i:1:barrier", archs=("gfx12",)),
    wave("s_barrier_wait", "w->state = AT_BARRIER;", "S0:i:1:barrier", archs=("gfx12",)),
    wave("s_endpgm", "w->state = ENDED;", ""),
)

# loads complete at once, so waits wait for nothing; caches, priorities and instruction fetch are not modelled
NO_OPS = wave(
    "s_nop s_waitcnt s_waitcnt_vscnt s_waitcnt_vmcnt s_waitcnt_lgkmcnt s_waitcnt_expcnt s_waitcnt_depctr "
    "s_wait_alu s_wait_kmcnt s_wait_loadcnt s_wait_storecnt "
    "s_wait_dscnt "
    "s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_expcnt s_wait_samplecnt s_wait_bvhcnt s_wait_idle "
    "s_delay_alu s_clause s_sleep s_setprio s_inst_prefetch "
    "s_prefetch_inst s_prefetch_inst_pc_rel s_prefetch_data s_prefetch_data_pc_rel s_wakeup s_sleep_var "
    "s_dcache_inv s_gl1_inv "
    "s_set_inst_prefetch_distance s_icache_inv s_dcache_wb v_nop buffer_wbinvl1 buffer_wbinvl1_vol "
    "buffer_inv buffer_invl2 buffer_wbl2 "
    "buffer_gl0_inv buffer_gl1_inv global_inv global_wb global_wbinv",
    ";",
    "",
)
"""Their operands are not parsed."""
INTERRUPT = "sendmsg(MSG_INTERRUPT)"
MESSAGES = frozenset({"sendmsg(MSG_DEALLOC_VGPRS)", INTERRUPT})
"""Of s_sendmsg: giving registers back has no effect; an interrupt is a host call."""
MESSAGE = wave("s_sendmsg", "if (I->flags) host_call(w);", "")
UNPARSED = NO_OPS.keys() | MESSAGE.keys()

MODE = merged(
    wave("s_setreg_imm32_b32", "set_mode(w, I, (u32)I->s[1].value);", "S0:i:1:hwreg S1:i:1"),
    wave("s_setreg_b32", "set_mode(w, I, scalar32(w, &I->s[1]));", "S0:i:1:hwreg S1:s:1"),
    wave("s_getreg_b32", "put_scalar32(w, &I->d, w->mode >> 23 & 1);", "D:s:1 S0:i:1:hwreg"),
    wave("s_trap", "fault(w, FAULT_TRAP, 0, I->s[0].value, 0);", "S0:i:1"),
)
"""Of the MODE register only FP16_OVFL may be accessed: see `hwreg` in binding.py."""

_OFFSET, _OP_SEL = {"modifiers": ("offset",)}, {"modifiers": ("op_sel",)}

LANES = merged(
    wave("v_readfirstlane_b32", "read_first_lane(w, I);", "D:s:1 S0:vs:1"),
    wave("v_readlane_b32", "read_lane(w, I);", "D:s:1 S0:v:1 S1:si:1"),
    wave("v_writelane_b32", "write_lane(w, I);", "D:v:1 S0:si:1 S1:si:1"),
    wave("ds_bpermute_b32", "backward_permute(w, I);", "D:v:1 S0:v:1 S1:v:1", **_OFFSET),
    wave("ds_permute_b32", "forward_permute(w, I);", "D:v:1 S0:v:1 S1:v:1", **_OFFSET),
    wave("ds_swizzle_b32", "swizzle(w, I);", "D:v:1 S0:v:1", modifiers=("offset",), rules=("swizzle",)),
    *(
        wave(
            f"ds_read_b64_tr_b{n}",
            f"lds_load_transposed(w, I, {n});",
            "D:v:2 S0:v:1",
            archs=("gfx950",),
            **_OFFSET,
        )
        for n in (16, 8, 4)
    ),
    wave("v_permlane16_b32", "permute_rows(w, I, 0);", "D:v:1 S0:v:1 S1:si:1 S2:si:1", **_OP_SEL),
    wave("v_permlanex16_b32", "permute_rows(w, I, 1);", "D:v:1 S0:v:1 S1:si:1 S2:si:1", **_OP_SEL),
    wave("v_pk_mov_b32", "pack_move(w, I);", "D:v:2 S0:vsi:2 S1:vsi:2", rules=("low_constants",), **_OP_SEL),
    wave("v_swap_b32", "swap_registers(w, I);", "D:v:1 S0:v:1"),
    wave("v_swap_b16", "swap_halves(w, I);", "D:v:1:u16 S0:v:1:u16", archs=("gfx11", "gfx12")),
    # halves of 64 lanes: all archs that have it run waves of 32 here, where it does nothing
    wave("v_permlane64_b32", ";", "D:v:1 S0:v:1", archs=("gfx11", "gfx12")),
    wave("v_permlane16_swap_b32", "swap_rows(w, I, 16);", "D:v:1 S0:v:1", archs=("gfx95",)),
    wave("v_permlane32_swap_b32", "swap_rows(w, I, 32);", "D:v:1 S0:v:1", archs=("gfx95",)),
)

_Shape = tuple[int, int, int]
"""(m, k, blocks) of a matrix product."""
_WIDE: tuple[_Shape, ...] = ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1))
_CDNA = ("gfx908", "gfx90a", "gfx94", "gfx95")
_GFX908: dict[str, tuple[_Shape, ...]] = {
    "f32": ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)),
    "f16": _WIDE,
    "bf16": ((32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)),
}
_GFX950: tuple[_Shape, ...] = ((32, 16, 1), (16, 32, 1))
_EIGHT_BITS = ("fp8", "bf8")
_BITS = {"f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8}


def _mfma(
    shape: _Shape, kind: str, names: str, *, second: str = "", archs: tuple[str, ...] = _CDNA
) -> dict[str, Entry]:
    """`names`: endings behind `v_mfma_f32_MxMxK`, {b} is the number of blocks if several (gfx940 and later);
    `kind` of A's elements, `second` of B's where it differs."""
    m, k, blocks = shape
    result = "i32" if kind == "i8" else "f32"
    stem, b = f"v_mfma_{result}_{m}x{m}x{k}", f"_{blocks}b" if blocks > 1 else ""
    registers, per_lane = m * m * blocks // 64, k * m * blocks // 64
    inputs = max(1, per_lane * _BITS[kind] // 32)
    kinds = f"IN_{kind.upper()}, IN_{(second or kind).upper()}"
    call = "mfma_i8(w, I, {});" if kind == "i8" else f"mfma(w, I, {{}}, {kinds});"
    return wave(
        " ".join(stem + ending.format(b=b) for ending in names.split()),
        call.format(f"{m}, {k}, {blocks}"),
        f"D:v:{registers} S0:v:{inputs} S1:v:{inputs} S2:vi:{registers}",
        modifiers=("cbsz", "abid") if blocks > 1 else (),
        archs=archs,
        blocks=blocks,
        approximated="" if kind == "i8" else SUM_ORDER,
        rules=("eight_bit_format",) if kind in _EIGHT_BITS else (),
    )


def _mfma_of_formats(m: int) -> dict[str, Entry]:
    """Modifiers have the formats of A and B. S3 and S4: powers of two for 32 elements along k, in vector
    registers only, as hardware uses other bits of constants and scalars (LLVM's VOP3PInstructions.td,
    MAIInst)."""
    registers = m * m // 64
    shape, slots = f"{m}x{m}x{2048 // m}", f"D:v:{registers} S0:v:0 S1:v:0 S2:vi:{registers}"
    shared: dict[str, Any] = {"archs": ("gfx95",), "rules": ("formats",), "approximated": SUM_ORDER}
    formats, bytes_ = ("cbsz", "blgp"), ("op_sel", "op_sel_hi")
    plain, scaled = f"v_mfma_f32_{shape}_f8f6f4", f"v_mfma_scale_f32_{shape}_f8f6f4"
    with_scales = f"{slots} S3:v:1 S4:v:1"
    return merged(
        wave(plain, f"mfma_of_formats(w, I, {m}, 0);", slots, modifiers=formats, **shared),
        wave(scaled, f"mfma_of_formats(w, I, {m}, 1);", with_scales, modifiers=formats + bytes_, **shared),
    )


def _wmma(
    kinds: str, *, result: str = "f32", archs: tuple[str, ...] = ("gfx11", "gfx12")
) -> dict[str, Entry]:
    """`kinds` of A's and B's elements as the name has them."""
    first, _, second = kinds.partition("_")
    call = (
        "wmma_i8(w, I);"
        if result == "i32"
        else f"wmma(w, I, IN_{first.upper()}, IN_{(second or first).upper()});"
    )
    return wave(
        f"v_wmma_{result}_16x16x16_{kinds}",
        call,
        "D:v:8 S0:v:0 S1:v:0 S2:vi:8",
        modifiers=("neg_lo",) if result == "i32" else (),
        archs=archs,
        approximated="" if result == "i32" else SUM_ORDER,
        rules=("wmma_inputs",),
    )


MATRIX = merged(
    *(_mfma(shape, kind, f"{kind} {{b}}_{kind}") for kind, shapes in _GFX908.items() for shape in shapes),
    *(_mfma(shape, "bf16", "bf16_1k {b}_bf16") for shape in _WIDE),
    *(_mfma(shape, kind, f"_{kind}") for kind in ("f16", "bf16") for shape in _GFX950),
    *(_mfma(shape, "i8", "i8 {b}_i8") for shape in _WIDE),
    *(_mfma(shape, "i8", "_i8", archs=("gfx94", "gfx95")) for shape in ((32, 16, 1), (16, 32, 1))),
    *(_mfma(shape, "i8", "_i8", archs=("gfx95",)) for shape in ((32, 32, 1), (16, 64, 1))),
    *(_mfma(shape, "xf32", "_xf32", archs=("gfx94",)) for shape in ((32, 4, 1), (16, 8, 1))),
    *(
        _mfma(shape, a, f"_{a}_{b}", second=b, archs=("gfx94", "gfx95"))
        for shape in ((32, 16, 1), (16, 32, 1))
        for a in _EIGHT_BITS
        for b in _EIGHT_BITS
    ),
    _mfma_of_formats(32),
    _mfma_of_formats(16),
    wave(
        "v_mfma_f64_16x16x4f64 v_mfma_f64_16x16x4_f64",
        "mfma_f64(w, I);",
        "D:v:8 S0:v:2 S1:v:2 S2:vi:8:f64",
        archs=("gfx90a", "gfx94", "gfx95"),
        approximated=SUM_ORDER,
    ),
    *(_wmma(kind) for kind in ("f16", "bf16")),
    _wmma("iu8", result="i32"),
    *(_wmma(f"{a}_{b}", archs=("gfx12",)) for a in _EIGHT_BITS for b in _EIGHT_BITS),
)
