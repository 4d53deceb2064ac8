"""Instructions without an effect on this machine: loads complete at once, so waits wait for nothing; caches, priorities and
instruction fetch are not modelled. Their operands are not looked at.
"""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import Entry

_NAMES = """
s_nop s_waitcnt s_waitcnt_vscnt s_waitcnt_depctr s_wait_alu s_wait_kmcnt s_wait_loadcnt s_wait_storecnt s_wait_dscnt
s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_idle s_delay_alu s_clause s_sleep s_setprio s_inst_prefetch
s_set_inst_prefetch_distance s_icache_inv s_dcache_wb v_nop buffer_wbinvl1 buffer_wbinvl1_vol buffer_inv buffer_wbl2
buffer_gl0_inv buffer_gl1_inv global_inv global_wb global_wbinv
s_sendmsg
"""
MESSAGES = frozenset({"sendmsg(MSG_DEALLOC_VGPRS)"})
"""Messages without an effect here: giving registers back. Any other one is refused."""

TABLE = {name: Entry(name=name, form="wave", code=";", slots=()) for name in _NAMES.split()}
IDLE = frozenset(TABLE)
