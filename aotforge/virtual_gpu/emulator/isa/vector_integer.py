"""Vector integer arithmetic, bits, moves and selection, lane by lane."""

from __future__ import annotations

from aotforge.virtual_gpu.emulator.isa.entry import merged, table

_ADDITION = table(
    "vector",
    {
        "v_add_u32 v_add_nc_u32": "D.u32 = S0.u32 + S1.u32; if (I->clamp && D.u32 < S0.u32) D.u32 = ~0u",
        "v_sub_u32 v_sub_nc_u32": "D.u32 = S0.u32 - S1.u32; if (I->clamp && S0.u32 < S1.u32) D.u32 = 0",
        "v_subrev_u32 v_subrev_nc_u32": "D.u32 = S1.u32 - S0.u32; if (I->clamp && S1.u32 < S0.u32) D.u32 = 0",
        "v_add_nc_i32 v_add_i32": "D.u32 = S0.u32 + S1.u32",
        "v_sub_nc_i32 v_sub_i32": "D.u32 = S0.u32 - S1.u32",
        "v_add_co_u32": "D.u32 = S0.u32 + S1.u32; SD.mask = D.u32 < S0.u32",
        "v_sub_co_u32": "D.u32 = S0.u32 - S1.u32; SD.mask = S1.u32 > S0.u32",
        "v_subrev_co_u32": "D.u32 = S1.u32 - S0.u32; SD.mask = S0.u32 > S1.u32",
        "v_addc_co_u32 v_add_co_ci_u32": "u64 t = (u64)S0.u32 + S1.u32 + S2.mask; D.u32 = (u32)t; SD.mask = (u32)(t >> 32)",
        "v_subb_co_u32 v_sub_co_ci_u32": "u64 t = (u64)S0.u32 - S1.u32 - S2.mask; D.u32 = (u32)t; SD.mask = (u32)(t >> 32) & 1",
        "v_subbrev_co_u32 v_subrev_co_ci_u32": "u64 t = (u64)S1.u32 - S0.u32 - S2.mask; D.u32 = (u32)t; SD.mask = (u32)(t >> 32) & 1",
        "v_add3_u32": "D.u32 = S0.u32 + S1.u32 + S2.u32",
        "v_lshl_add_u32": "D.u32 = (S0.u32 << (S1.u32 & 31)) + S2.u32",
        "v_add_lshl_u32": "D.u32 = (S0.u32 + S1.u32) << (S2.u32 & 31)",
        "v_xad_u32": "D.u32 = (S0.u32 ^ S1.u32) + S2.u32",
        "v_lshl_add_u64": "D.u64 = (S0.u64 << (S1.u32 & 7)) + S2.u64",
    },
)

_PRODUCTS = table(
    "vector",
    {
        "v_mul_lo_u32": "D.u32 = S0.u32 * S1.u32",
        "v_mul_hi_u32": "D.u32 = (u32)((u64)S0.u32 * S1.u32 >> 32)",
        "v_mul_hi_i32": "D.i32 = (i32)((i64)S0.i32 * S1.i32 >> 32)",
        "v_mul_u32_u24": "D.u32 = (S0.u32 & 0xffffff) * (S1.u32 & 0xffffff)",
        "v_mul_i32_i24": "D.u32 = (u32)((i32)(S0.u32 << 8) >> 8) * (u32)((i32)(S1.u32 << 8) >> 8)",
        "v_mad_u32_u24": "D.u32 = (S0.u32 & 0xffffff) * (S1.u32 & 0xffffff) + S2.u32",
        "v_mad_i32_i24": "D.u32 = (u32)((i32)(S0.u32 << 8) >> 8) * (u32)((i32)(S1.u32 << 8) >> 8) + S2.u32",
        "v_mad_u64_u32 v_mad_co_u64_u32": "u64 p = (u64)S0.u32 * S1.u32; D.u64 = p + S2.u64; SD.mask = D.u64 < p",
        "v_mad_u32_u16": "D.u32 = S0.u16 * S1.u16 + S2.u32",
    },
)

_BITS = table(
    "vector",
    {
        "v_and_b32": "D.u32 = S0.u32 & S1.u32",
        "v_or_b32": "D.u32 = S0.u32 | S1.u32",
        "v_xor_b32": "D.u32 = S0.u32 ^ S1.u32",
        "v_xnor_b32": "D.u32 = ~(S0.u32 ^ S1.u32)",
        "v_not_b32": "D.u32 = ~S0.u32",
        "v_bfrev_b32": "D.u32 = reverse_bits(S0.u32)",
        "v_and_or_b32": "D.u32 = (S0.u32 & S1.u32) | S2.u32",
        "v_or3_b32": "D.u32 = S0.u32 | S1.u32 | S2.u32",
        "v_xor3_b32": "D.u32 = S0.u32 ^ S1.u32 ^ S2.u32",
        "v_lshl_or_b32": "D.u32 = (S0.u32 << (S1.u32 & 31)) | S2.u32",
        "v_lshlrev_b32": "D.u32 = S1.u32 << (S0.u32 & 31)",
        "v_lshrrev_b32": "D.u32 = S1.u32 >> (S0.u32 & 31)",
        "v_ashrrev_i32": "D.i32 = S1.i32 >> (S0.u32 & 31)",
        "v_lshlrev_b64": "D.u64 = S1.u64 << (S0.u32 & 63)",
        "v_lshrrev_b64": "D.u64 = S1.u64 >> (S0.u32 & 63)",
        "v_ashrrev_i64": "D.i64 = S1.i64 >> (S0.u32 & 63)",
        "v_bfe_u32": "D.u32 = field_u32(S0.u32, S1.u32, S2.u32)",
        "v_bfe_i32": "D.i32 = field_i32(S0.i32, S1.u32, S2.u32)",
        "v_bfi_b32": "D.u32 = (S0.u32 & S1.u32) | (~S0.u32 & S2.u32)",
        "v_bfm_b32": "D.u32 = ((1u << (S0.u32 & 31)) - 1) << (S1.u32 & 31)",
        "v_alignbit_b32": "D.u32 = (u32)(pair(S1.u32, S0.u32) >> (S2.u16 & 31))",
        "v_alignbyte_b32": "D.u32 = (u32)(pair(S1.u32, S0.u32) >> (8 * (S2.u16 & 3)))",
        "v_perm_b32": "D.u32 = permute_bytes(S0.u32, S1.u32, S2.u32)",
        # the immediate is a truth table, indexed by the bits of S0, S1, S2 with S2 lowest
        "v_bitop3_b32": "D.u32 = bits_of_table(S0.u32, S1.u32, S2.u32, I->immediate)",
        "v_bcnt_u32_b32": "D.u32 = (u32)__builtin_popcount(S0.u32) + S1.u32",
        "v_ffbh_u32 v_clz_i32_u32": "D.i32 = S0.u32 ? __builtin_clz(S0.u32) : -1",
        # leading bits that equal the sign; -1 when all do
        "v_ffbh_i32 v_cls_i32": "u32 x = S0.u32 ^ (u32)((i32)S0.u32 >> 31); D.i32 = x ? __builtin_clz(x) : -1",
        # bits set below this lane; l is its number
        "v_mbcnt_lo_u32_b32": "D.u32 = S1.u32 + (u32)__builtin_popcount(S0.u32 & (l < 32 ? (1u << l) - 1 : ~0u))",
        "v_mbcnt_hi_u32_b32": "D.u32 = S1.u32 + (u32)__builtin_popcount(S0.u32 & (l < 32 ? 0 : (1u << (l & 31)) - 1))",
        "v_ffbl_b32 v_ctz_i32_b32": "D.i32 = S0.u32 ? __builtin_ctz(S0.u32) : -1",
    },
)

_ORDER = table(
    "vector",
    {
        "v_min_i32": "D.i32 = S0.i32 < S1.i32 ? S0.i32 : S1.i32",
        "v_max_i32": "D.i32 = S0.i32 > S1.i32 ? S0.i32 : S1.i32",
        "v_min_u32": "D.u32 = S0.u32 < S1.u32 ? S0.u32 : S1.u32",
        "v_max_u32": "D.u32 = S0.u32 > S1.u32 ? S0.u32 : S1.u32",
    },
)

_SELECTION = table(
    "vector",
    {
        "v_cndmask_b32": "D.b32 = S2.mask ? S1.b32 : S0.b32",
        "v_cndmask_b16": "D.u16 = S2.mask ? S1.u16 : S0.u16",
    },
    implied={"S2": "vcc"},
)

_MOVES = table(
    "vector",
    {
        "v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32": "D.u32 = S0.u32",
        "v_mov_b64": "D.u64 = S0.u64",
        "v_mov_b16": "D.u16 = S0.u16",
        "v_cvt_u32_u16": "D.u32 = S0.u16",
        "v_cvt_i32_i16": "D.i32 = S0.i16",
    },
)

_WORDS = table(
    "vector",
    {
        "v_add_u16 v_add_nc_u16": "D.u16 = S0.u16 + S1.u16",
        "v_sub_u16 v_sub_nc_u16": "D.u16 = S0.u16 - S1.u16",
        "v_mul_lo_u16": "D.u16 = S0.u16 * S1.u16",
        "v_lshlrev_b16": "D.u16 = S1.u16 << (S0.u16 & 15)",
        "v_lshrrev_b16": "D.u16 = S1.u16 >> (S0.u16 & 15)",
        "v_ashrrev_i16": "D.i16 = S1.i16 >> (S0.u16 & 15)",
        "v_and_b16": "D.u16 = S0.u16 & S1.u16",
        "v_or_b16": "D.u16 = S0.u16 | S1.u16",
        "v_xor_b16": "D.u16 = S0.u16 ^ S1.u16",
        "v_min_i16": "D.i16 = S0.i16 < S1.i16 ? S0.i16 : S1.i16",
        "v_max_i16": "D.i16 = S0.i16 > S1.i16 ? S0.i16 : S1.i16",
        "v_min_u16": "D.u16 = S0.u16 < S1.u16 ? S0.u16 : S1.u16",
        "v_max_u16": "D.u16 = S0.u16 > S1.u16 ? S0.u16 : S1.u16",
    },
)

TABLE = merged(_ADDITION, _PRODUCTS, _BITS, _ORDER, _SELECTION, _MOVES, _WORDS)
