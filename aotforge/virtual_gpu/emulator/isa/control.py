"""Branches, barriers and program end, and instructions without an effect on this machine.

Without effect: loads complete at once, so waits wait for nothing; caches, priorities and instruction fetch are not modelled.
"""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import merged, wave

CONTROL = merged(
    wave("s_branch", "PC = I->target;", "S0:c:0"),
    wave("s_cbranch_scc0", "if (!SCC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_scc1", "if (SCC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_vccz", "if (!scalar_mask(w, VCC_LO)) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_vccnz", "if (scalar_mask(w, VCC_LO)) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_execz", "if (!EXEC) PC = I->target;", "S0:c:0"),
    wave("s_cbranch_execnz", "if (EXEC) PC = I->target;", "S0:c:0"),
    wave("s_getpc_b64", "put_scalar64(w, &I->d, w->code_base + I->address);", "D:s:2"),
    wave("s_barrier", "w->state = AT_BARRIER;", ""),
    # gfx12 splits a barrier in two: a wave signals, then waits
    wave("s_barrier_signal", ";", "S0:i:1:barrier", archs=("gfx12",)),
    wave("s_barrier_wait", "w->state = AT_BARRIER;", "S0:i:1:barrier", archs=("gfx12",)),
    wave("s_endpgm", "w->state = ENDED;", ""),
)

NO_OPS = wave(
    "s_nop s_waitcnt s_waitcnt_vscnt s_waitcnt_depctr s_wait_alu s_wait_kmcnt s_wait_loadcnt s_wait_storecnt s_wait_dscnt "
    "s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_idle s_delay_alu s_clause s_sleep s_setprio s_inst_prefetch "
    "s_set_inst_prefetch_distance s_icache_inv s_dcache_wb v_nop buffer_wbinvl1 buffer_wbinvl1_vol buffer_inv buffer_wbl2 "
    "buffer_gl0_inv buffer_gl1_inv global_inv global_wb global_wbinv s_sendmsg",
    ";",
    "",
)
"""Their operands are not parsed."""
MESSAGES = frozenset({"sendmsg(MSG_DEALLOC_VGPRS)"})
"""Messages of s_sendmsg without an effect: giving registers back. Any other one is refused."""
