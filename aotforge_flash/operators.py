"""Names and types of the values that the library's attention operators take, in their order."""

from __future__ import annotations

_SHAPE = (
    ("i32", "batch num_head_q num_head_k group seqlen_q seqlen_k head_dim head_dim_v width"),
    ("ptr", "seqinfo_q0 seqinfo_q1 seqinfo_k0 seqinfo_k1"),
    ("i32", "varlen_bits lse_packed"),
    ("f32", "sm_scale dropout_p"),
    ("ptr", "philox_seed philox_offset1"),
    ("u64", "philox_offset2"),
    ("i32", "dtype mask window_left window_right dropout"),
)
_QKV = ("i64", "stride_qz stride_qh stride_qm stride_kz stride_kh stride_kn stride_vz stride_vh stride_vn")
_PAGES = "stride_kp stride_kn stride_kh stride_vp stride_vn stride_vh"

OPERATORS: dict[str, tuple[tuple[str, str], ...]] = {
    "attn_fwd": (
        ("ptr", "Q K V B L Out"),
        _QKV,
        ("i64", "stride_bz stride_bh stride_bm stride_bn stride_lz stride_lh stride_lm"),
        ("i64", "stride_oz stride_oh stride_om"),
        *_SHAPE,
        ("ptr", "philox_seed_output philox_offset_output persistent_atomic_counter"),
    ),
    "attn_bwd": (
        ("ptr", "Q K V B Out DO DK DV DQ DB L D DQ_ACC"),
        _QKV,
        ("i64", "stride_bz stride_bh stride_bm stride_bn stride_oz stride_oh stride_om"),
        ("i64", "stride_doz stride_doh stride_dom stride_dkz stride_dkh stride_dkn"),
        ("i64", "stride_dvz stride_dvh stride_dvn stride_dqz stride_dqh stride_dqm"),
        ("i64", "stride_dbz stride_dbh stride_dbm stride_dbn"),
        ("i64", "stride_lz stride_lh stride_lm stride_dz stride_dh stride_dm"),
        ("i64", "stride_dqaz stride_dqah stride_dqam"),
        *_SHAPE,
    ),
    "paged_attn": (
        ("ptr", "Q K V Out L O_part L_part sinks k_scale v_scale block_table cu_seqlens_q seqused_k"),
        (
            "i64",
            f"stride_qm stride_qh {_PAGES} stride_om stride_oh stride_lm stride_lh stride_table stride_scale",
        ),
        ("i32", "batch num_head_q num_head_k group rows page_size num_splits split_keys"),
        ("i32", "rows_combined causal window_left"),
        ("f32", "sm_scale softcap"),
        ("i32", "head_dim dtype cache"),
    ),
    "reshape_and_cache": (
        ("ptr", "K_new V_new K V k_scale v_scale slots"),
        ("i64", f"stride_nm stride_nh stride_wm stride_wh {_PAGES} stride_scale"),
        ("i32", "tokens num_head_k page_size head_dim dtype cache"),
    ),
}
"""A copy of what kernels/flash and kernels/flash_paged declare, which this package does not import."""
