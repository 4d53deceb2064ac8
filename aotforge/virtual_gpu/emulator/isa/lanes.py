"""Instructions that move data between lanes."""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import merged, wave

TABLE = merged(
    wave("v_readfirstlane_b32", "read_first_lane(w, I);", "D:s:1 S0:vs:1"),
    wave("v_readlane_b32", "read_lane(w, I);", "D:s:1 S0:v:1 S1:si:1"),
    wave("v_writelane_b32", "write_lane(w, I);", "D:v:1 S0:si:1 S1:si:1"),
    wave("ds_bpermute_b32", "backward_permute(w, I);", "D:v:1 S0:v:1 S1:v:1", modifiers=("offset",)),
    wave("ds_permute_b32", "forward_permute(w, I);", "D:v:1 S0:v:1 S1:v:1", modifiers=("offset",)),
    wave(
        "ds_read_b64_tr_b16",
        "lds_load_transposed(w, I);",
        "D:v:2 S0:v:1",
        modifiers=("offset",),
        archs=("gfx950",),
    ),
    wave("v_permlane16_b32", "permute_rows(w, I, 0);", "D:v:1 S0:v:1 S1:si:1 S2:si:1", modifiers=("op_sel",)),
    wave(
        "v_permlanex16_b32", "permute_rows(w, I, 1);", "D:v:1 S0:v:1 S1:si:1 S2:si:1", modifiers=("op_sel",)
    ),
    wave("v_pk_mov_b32", "pack_move(w, I);", "D:v:2 S0:vs:2 S1:vs:2", modifiers=("op_sel",)),
    wave("v_swap_b32", "swap_registers(w, I);", "D:v:1 S0:v:1"),
    wave("v_permlane16_swap_b32", "swap_rows(w, I, 16);", "D:v:1 S0:v:1"),
    wave("v_permlane32_swap_b32", "swap_rows(w, I, 32);", "D:v:1 S0:v:1"),
)
