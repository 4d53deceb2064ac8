"""Which instructions the virtual GPU lacks: all that Triton's LLVM knows for an arch, less its table, with
the reasons."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.support.instruction_names import known_instructions
from vgpu.emulator.isa import INSTRUCTIONS
from vgpu.emulator.targets import emulated_targets

_ENCODING = re.compile(r"_e(32|64)$")
REASONS: Mapping[str, str] = {
    "graphics": r"image_.*|s_wqm_.*|s_quadmask_.*|v_interp_.*|v_cube.*|(lds|ds)_(direct|param)_load|ds_bvh_.*"
    r"|.*_norm_[iu]16_.*|v_cvt_pknorm_.*|v_screen_.*|s_endpgm_ordered_ps_done|ds_ordered_count"
    r"|global_atomic_ordered_add_b64|ds_(add|sub)_gs_reg_rtn",
    "typed buffers: graphics": r"(tbuffer|buffer)_(load|store)_(d16_|d16_hi_)?format_.*",
    "sparse matrices: `tl.dot` has none": r"v_(smfmac|swmmac)_.*",
    "matrix products that Triton does not choose": r"v_wmma_(bf16|f16|i32)_.*"
    r"|v_mfma_f64_4x4x4.*|v_mfma_ld_scale_b32|v_dot4_f32_[bf][fp]8_[bf][fp]8",
    "stochastic rounding: none of Triton": r"v_cvt_(scalef32_)?sr_.*|v_prng_b32",
    "other scaled casts: none of Triton": r"v_cvt_scalef32_.*|ds_read_b96_tr_b6",
    "scalar stores and atomics: LLVM selects none": r"s_(buffer_)?atomic_.*"
    r"|s_(buffer_)?store_.*|s_scratch_.*|s_dcache_.*|s_atc_.*|s_buffer_load_[iu].*|s_buffer_prefetch_data",
    "atomics: none of LLVM": r"(flat|global|buffer)_atomic_f?cmpswap_?(f32|x2)?|ds_mskor_.*"
    r"|ds_cmpst(ore)?_(rtn_)?f(32|64)|ds_wrap_.*|ds_condxchg32_.*|ds_(append|consume|nop)|ds_wrxchg2.*"
    r"|ds_storexchg_2addr.*|ds_.*_src2_.*",
    "global wave synchronisation: none of Triton": r"ds_gws_.*",
    "named barriers: none of Triton": r"s_barrier_.*|s_get_barrier_state",
    "special loads and stores: LLVM selects none": r".*_addtid(_b32)?|(global|scratch)_(load|store)_block"
    r"|buffer_store_lds_dword|scratch_load_lds_.*|s_alloc_vgpr|global_load_tr_.*",
    "narrow loads to LDS: not published": r"global_load_lds_[su](byte|short)",
    "registers by number: none of Triton": r"[sv]_movrel.*|s_set_gpr_idx_.*|v_swaprel_b32",
    "products that are not IEEE": r".*_legacy(_f16|_f32)?|.*_dx9_zero_f32|v_mullit_f32",
    "half sums without denormals: not IEEE": r"v_(mad|mac|madak|madmk)_f16",
    "other rounding modes: refused": r"s_(denorm|round)_mode",
    "comparisons with one outcome: folded": r"v_cmpx?_(f|t|tru)_.*",
    "clocks (`memrealtime`): no time here": r"s_mem(real)?time|s_sendmsg_rtn_.*",
    "debuggers, traps, traces": r"s_rfe_.*|s_cbranch_(cdbg|[gij]).*|s_set(halt|kill|vskip)|s_sendmsghalt"
    r"|s_endpgm_saved|s_ttracedata.*|s_(inc|dec)perflevel|s_version|s_code_end|s_wait_event|v_clrexcp"
    r"|v_pipeflush|v_illegal|s_subvector_.*",
    "intrinsics that Triton does not use": r"v_lerp_u8|v_m?qsad_.*|v_cvt_off_f32_i4|v_cvt_pk(accum)?_u8_f32"
    r"|v_pk_fmac_f16|v_permlanex?16_var_b32|ds_bpermute_fi_b32|s_bitreplicate_b64_b32",
    "second names": r"v_mfma_.*(bf16|f16|xf32|i8)|s_m(in|ax)_f(16|32)",
}
"""Patterns of complete names; the first that matches counts. What Triton and LLVM's patterns select is in the
table; clocks and narrow loads to LDS, which a kernel may contain by name, are refused."""


def missing(arch: str) -> frozenset[str]:
    """What the arch has and the table lacks; a half of a dual-issue pair is an instruction of its own."""
    names = {_ENCODING.sub("", name).replace("v_dual_", "v_") for name in known_instructions(arch)}
    return frozenset(
        name
        for name in names
        if name not in INSTRUCTIONS or not arch.startswith(INSTRUCTIONS[name].archs or ("gfx",))
    )


def reason(name: str) -> str:
    """Why the table lacks an instruction; empty: unknown."""
    return next((why for why, pattern in REASONS.items() if re.fullmatch(pattern, name)), "")


def section() -> list[str]:
    """The page's lines about them: counts per reason, the largest of all archs."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for arch in emulated_targets():
        for name in missing(arch):
            counts[reason(name) or f"`{name}`"][arch] += 1
    order = [*REASONS, *sorted(counts.keys() - REASONS.keys())]
    rows = [f"| {max(counts[why].values())} | {why} |" for why in order if why in counts]
    least, most = (choose(_share(arch) for arch in emulated_targets()) for choose in (min, max))
    return [
        "\n## Instructions\n",
        f"Of those that LLVM knows, {least} to {most} percent per arch are there. The rest:",
        "\n| | lacking |\n|---|---|",
        *rows,
    ]


def _share(arch: str) -> int:
    names = {_ENCODING.sub("", name) for name in known_instructions(arch)}
    return 100 - 100 * len(missing(arch)) // len(names)
