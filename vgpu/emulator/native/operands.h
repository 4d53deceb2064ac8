/* Reading and writing operands: a row of LANES words (two rows for 64 bits), modifiers applied. */

INLINE u64 scalar_mask(const Wave *w, u32 index)
{
    return LANES == 64 ? pair(w->s[index], w->s[index + 1]) : w->s[index];
}

INLINE u32 scalar32(const Wave *w, const Operand *o)
{
    if (o->space == CONSTANT)
        return (u32)o->value;
    if (LIKELY(o->space == SCALAR))
        return o->index == NULL_REGISTER ? 0 : w->s[o->index];
    return o->index == STATUS_SCC ? w->scc : o->index == STATUS_VCCZ ? scalar_mask(w, VCC_LO) == 0 : EXEC == 0;
}

/* A source of the vector unit's instructions on scalars, which have signs. */
INLINE u32 signed_scalar32(const Wave *w, const Operand *o, u32 sign)
{
    return (scalar32(w, o) & ~(o->abs ? sign : 0)) ^ (o->neg ? sign : 0);
}

INLINE u64 scalar64(const Wave *w, const Operand *o)
{
    if (o->space == CONSTANT)
        return o->value;
    if (LIKELY(o->space == SCALAR))
        return o->index == NULL_REGISTER ? 0 : pair(w->s[o->index], w->s[o->index + 1]);
    return scalar32(w, o);
}

INLINE void put_scalar32(Wave *w, const Operand *o, u32 value)
{
    if (LIKELY(o->index != NULL_REGISTER))
        w->s[o->index] = value;
}

INLINE void put_scalar64(Wave *w, const Operand *o, u64 value)
{
    if (LIKELY(o->index != NULL_REGISTER))
        memcpy(&w->s[o->index], &value, 8);
}

/* A mask has one bit per lane: a register pair with 64 lanes, one register with 32. */
INLINE u64 lane_mask(const Wave *w, const Operand *o) { return (LANES == 64 ? scalar64(w, o) : scalar32(w, o)); }
INLINE void put_lane_mask(Wave *w, const Operand *o, u64 mask)
{
    if (LANES == 64)
        put_scalar64(w, o, mask);
    else
        put_scalar32(w, o, (u32)mask);
}

/* Row of 0 or 1 per bit; row of all-ones or zero per bit; and back. */
INLINE void bits_of_mask(u64 mask, u32 *row)
{
    u32 low = (u32)mask;
    for (int l = 0; l < 32; l++)
        row[l] = (low >> l) & 1;
#if LANES == 64
    u32 high = (u32)(mask >> 32);
    for (int l = 0; l < 32; l++)
        row[32 + l] = (high >> l) & 1;
#endif
}

/* 16 lanes at once, where the processor can. Their header takes a compiler 0.14 s, several times an interpreter, so gcc's builtins are
 * used directly where all of them are there. */
#ifdef __AVX512F__
#if defined __has_builtin && !defined __clang__
#if __has_builtin(__builtin_ia32_ptestmd512) && __has_builtin(__builtin_ia32_storedqusi512_mask) && \
    __has_builtin(__builtin_ia32_vfmaddps512_mask) && __has_builtin(__builtin_ia32_pmovdw512_mask) && \
    __has_builtin(__builtin_ia32_vcvtph2ps512_mask)
#define BUILTINS 1
#endif
#endif
#ifndef BUILTINS
#include <immintrin.h>
#endif
typedef int Ints16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef short Shorts16 __attribute__((vector_size(32)));
INLINE u32 nonzero16(const u32 *row)
{
#ifdef BUILTINS
    Ints16 x = *(const Ints16 *)row;
    return (u16)__builtin_ia32_ptestmd512(x, x, -1);
#else
    __m512i x = _mm512_loadu_si512(row);
    return _mm512_test_epi32_mask(x, x);
#endif
}
INLINE void store16(u32 *d, const u32 *r, u32 mask)
{
#ifdef BUILTINS
    __builtin_ia32_storedqusi512_mask((int *)d, *(const Ints16 *)r, (u16)mask);
#else
    _mm512_mask_storeu_epi32(d, (__mmask16)mask, _mm512_loadu_si512(r));
#endif
}
INLINE void blend(u32 *d, const u32 *r, u64 mask)
{
    for (int l = 0; l < LANES; l += 16)
        store16(d + l, r + l, (u32)(mask >> l) & 0xffff);
}
#else
#include <emmintrin.h>
INLINE u32 nonzero16(const u32 *row)
{
    u32 mask = 0;
    for (int l = 0; l < 16; l += 4) {
        __m128i x = _mm_loadu_si128((const __m128i *)(row + l));
        u32 zero = (u32)_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(x, _mm_setzero_si128())));
        mask |= (zero ^ 15) << l;
    }
    return mask;
}
INLINE void blend(u32 *d, const u32 *r, u64 mask)
{
    u32 m[LANES];
    bits_of_mask(mask, m);
    EACH_LANE d[l] = m[l] ? r[l] : d[l];
}
#endif
INLINE u64 mask_of_bits(const u32 *row)
{
    u64 mask = 0;
    for (int l = 0; l < LANES; l += 16)
        mask |= (u64)nonzero16(row + l) << l;
    return mask;
}

/* ---- sources ---- */

INLINE void spread(u32 *row, u32 value) { EACH_LANE row[l] = value; }

SLOW static void dpp_row(const Wave *w, const Instruction *I, const u32 *from, u32 *row)
{
    u64 exec = EXEC;
    EACH_LANE
    {
        int lane = I->dpp_lane[l];
        int valid = lane >= 0 && (I->fetch_inactive || (exec >> lane & 1));
        row[l] = valid ? from[lane] : 0;
    }
}

INLINE u32 selected(u32 x, u32 sel, u32 sext)
{
    u32 shift = sel >= SEL_WORD0 ? 16 * (sel - SEL_WORD0) : sel ? 8 * (sel - SEL_BYTE0) : 0, y = x >> shift;
    if (sel == SEL_DWORD)
        return x;
    if (sel >= SEL_WORD0)
        return sext ? (u32)(i32)(i16)y : y & 0xffff;
    return sext ? (u32)(i32)(i8)y : y & 0xff;
}

/* The slow way to a source: anything with a modifier. `sign` is the type's sign bit, 0 for types without one. */
SLOW static const u32 *modified_row(const Wave *w, const Instruction *I, int k, u32 sign, int wide, u32 *row)
{
    const Operand *o = &I->s[k];
    if (o->space == VECTOR)
        memcpy(row, w->v[o->index], sizeof(u32) * LANES * (wide ? 2 : 1));
    else if (o->space == CONSTANT)
        memcpy(row, o->row, sizeof(u32) * LANES * (wide ? 2 : 1));
    else {
        u64 x = wide ? scalar64(w, o) : scalar32(w, o);
        spread(row, (u32)x);
        if (wide)
            spread(row + LANES, (u32)(x >> 32));
    }
    if (I->dpp && k == 0) {
        u32 copy[LANES];
        memcpy(copy, row, sizeof copy);
        dpp_row(w, I, copy, row);
    }
    if (o->sel)
        EACH_LANE row[l] = selected(row[l], o->sel, o->sext);
    if (o->half)
        EACH_LANE row[l] >>= 16;
    u32 *top = wide ? row + LANES : row;
    if (o->abs)
        EACH_LANE top[l] &= ~sign;
    if (o->neg)
        EACH_LANE top[l] ^= sign;
    return row;
}

INLINE const u32 *source(const Wave *w, const Instruction *I, int k, u32 sign, int wide, u32 *row)
{
    const Operand *o = &I->s[k];
    if (LIKELY(o->plain))
        return o->space == VECTOR ? w->v[o->index] : o->row;
    if (o->space == SCALAR && !(o->neg | o->abs | o->half) && !wide) {
        spread(row, scalar32(w, o));
        return row;
    }
    return modified_row(w, I, k, sign, wide, row);
}

INLINE const u32 *source_mask(const Wave *w, const Instruction *I, int k, u32 *row)
{
    bits_of_mask(lane_mask(w, &I->s[k]), row);
    return row;
}

/* Sources of the mixed-precision fused multiply-add: op_sel_hi marks a source as a half, op_sel selects which one. */
static const u32 *source_mix(const Wave *w, const Instruction *I, int k, u32 *row)
{
    const Operand *o = &I->s[k];
    int half = I->op_sel_hi >> k & 1, high = I->op_sel >> k & 1;
    const u32 *from = o->space == VECTOR ? w->v[o->index] : o->row;
    if (o->space != VECTOR && o->space != CONSTANT) {
        spread(row, scalar32(w, o));
        from = row;
    }
    if (half)
        EACH_LANE row[l] = bits_f32(f32_of_f16(high ? from[l] >> 16 : from[l] & 0xffff));
    else if (from != row)
        memcpy(row, from, sizeof(u32) * LANES);
    if (o->abs)
        EACH_LANE row[l] &= 0x7fffffff;
    if (o->neg)
        EACH_LANE row[l] ^= 0x80000000;
    return row;
}

/* permute_bytes of all lanes, where they have one selector that picks bytes only: most compilers' packing of halves. */
INLINE int permute_rows_alike(const Instruction *I, const u32 *a, const u32 *b, const u32 *selectors, u32 *r)
{
    u32 s = selectors[0];
    if (I->s[2].space == VECTOR || s & 0xf8f8f8f8)
        return 0;
    const u32 *from[4] = {s & 4 ? a : b, s & 4 << 8 ? a : b, s & 4 << 16 ? a : b, s & 4 << 24 ? a : b};
    const u32 *x = from[0], *y = from[1], *z = from[2], *t = from[3];
    u32 i = 8 * (s & 3), j = 8 * (s >> 8 & 3), k = 8 * (s >> 16 & 3), n = 8 * (s >> 24 & 3);
    EACH_LANE r[l] = (x[l] >> i & 255) | (y[l] >> j & 255) << 8 | (z[l] >> k & 255) << 16 | (t[l] >> n & 255) << 24;
    return 1;
}

/* ---- destinations ---- */

INLINE float clamped(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; /* NaN becomes zero: DX10_CLAMP */
}
SLOW static void clamp_f32(u32 *r)
{
    EACH_LANE r[l] = bits_f32(clamped(as_f32(r[l])));
}
SLOW static void clamp_f16(u32 *r)
{
    EACH_LANE r[l] = f16_of_f32(clamped(f32_of_f16(r[l])));
}

/* Which lanes a DPP instruction writes: enabled rows and banks whose source exists, or is zero by bound_ctrl. */
static u64 dpp_lanes(const Wave *w, const Instruction *I)
{
    u64 lanes = 0, exec = EXEC;
    EACH_LANE
    {
        int lane = I->dpp_lane[l], valid = lane >= 0 && (I->fetch_inactive || (exec >> lane & 1));
        int enabled = (I->row_mask >> (l / 16) & 1) && (I->bank_mask >> (l / 4 % 4) & 1);
        lanes |= (u64)(enabled && (valid || I->bound_ctrl)) << l;
    }
    return lanes;
}

SLOW static void place(const Instruction *I, const u32 *d, u32 *r)
{
    u32 sel = I->dst_sel, shift = sel >= SEL_WORD0 ? 16 * (sel - SEL_WORD0) : sel ? 8 * (sel - SEL_BYTE0) : 0;
    u32 field = sel >= SEL_WORD0 ? 0xffff : 0xff, keep = I->dst_unused == 2 ? ~(field << shift) : 0;
    if (sel != SEL_DWORD)
        EACH_LANE r[l] = (r[l] & field) << shift | (d[l] & keep);
    if (I->write == WRITE_LOW_KEEP)
        EACH_LANE r[l] = (r[l] & 0xffff) | (d[l] & 0xffff0000);
    if (I->write == WRITE_HIGH_KEEP)
        EACH_LANE r[l] = r[l] << 16 | (d[l] & 0xffff);
}

INLINE void put_row(Wave *w, const Instruction *I, u32 *r, int rows)
{
    u32 *d = w->v[I->d.index];
    u64 lanes = EXEC;
    if (!LIKELY(I->plain_write)) {
        if (I->dpp)
            lanes &= dpp_lanes(w, I);
        place(I, d, r);
    }
    if (LIKELY(lanes == FULL))
        memcpy(d, r, sizeof(u32) * LANES * rows);
    else
        for (int i = 0; i < rows; i++)
            blend(d + i * LANES, r + i * LANES, lanes);
}

/* A comparison's result: zero for lanes that are off. */
INLINE void put_comparison(Wave *w, const Instruction *I, const u32 *row)
{
    put_lane_mask(w, &I->sd, mask_of_bits(row) & EXEC);
}
