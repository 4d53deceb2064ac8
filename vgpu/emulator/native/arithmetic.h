/* Bits, conversions and the few operations that do not fit in one expression of the instruction table. Nothing here depends
 * on the compiler's own half type; conversions are written so that lane loops vectorise. */

INLINE float as_f32(u32 x) { float f; memcpy(&f, &x, 4); return f; }
INLINE u32 bits_f32(float f) { u32 x; memcpy(&x, &f, 4); return x; }
INLINE double as_f64(u64 x) { double f; memcpy(&f, &x, 8); return f; }
INLINE u64 bits_f64(double f) { u64 x; memcpy(&x, &f, 8); return x; }
INLINE u64 pair(u32 low, u32 high) { return low | (u64)high << 32; }
/* A choice without a branch: gcc vectorises a loop only when its conditional expressions merge at most four values. */
INLINE u32 choose(int condition, u32 yes, u32 no)
{
    u32 mask = -(u32)condition;
    return (yes & mask) | (no & ~mask);
}
INLINE float choose_f32(int condition, float yes, float no) { return as_f32(choose(condition, bits_f32(yes), bits_f32(no))); }

INLINE float f32_of_f16(u32 h)
{
    u32 sign = (h & 0x8000) << 16, m = h & 0x7fff;
    u32 small = bits_f32((float)(i32)m * 0x1p-24f), normal = (m << 13) + 0x38000000, special = (m << 13) | 0x7f800000;
    return as_f32(sign | (m < 0x400 ? small : m >= 0x7c00 ? special : normal));
}

/* Round to nearest, ties to even; NaN stays NaN and becomes quiet. `beyond`: the result for finite numbers that are too large. */
INLINE u32 f16_rounded(float f, u32 beyond)
{
    u32 x = bits_f32(f), sign = (x >> 16) & 0x8000, m = x & 0x7fffffff;
    u32 small = bits_f32(as_f32(m) + 0.5f) - 0x3f000000; /* 0.5 has the spacing of the smallest halves */
    u32 normal = (m + 0xfff + ((m >> 13) & 1) - 0x38000000) >> 13, nan = 0x7e00 | ((m >> 13) & 0x3ff);
    u32 half = choose(m < 0x38800000, small, normal);
    half = choose(m >= 0x477ff000, beyond, half);
    half = choose(m == 0x7f800000, 0x7c00, half);
    return sign | choose(m > 0x7f800000, nan, half);
}
INLINE u32 f16_of_f32(float f) { return f16_rounded(f, 0x7c00); }
#define F16_BEYOND(w) ((w)->mode & MODE_FP16_OVFL ? 0x7bff : 0x7c00)

/* Toward zero; finite values never become infinite. */
INLINE u32 f16_of_f32_rtz(float f)
{
    u32 x = bits_f32(f), sign = (x >> 16) & 0x8000, m = x & 0x7fffffff;
    u32 small = (u32)(i32)(as_f32(m < 0x38800000 ? m : 0) * 0x1p24f), normal = (m - 0x38000000) >> 13;
    u32 nan = 0x7e00 | ((m >> 13) & 0x3ff), big = m == 0x7f800000 ? 0x7c00 : 0x7bff;
    u32 half = choose(m >= 0x47800000, big, choose(m < 0x38800000, small, normal));
    return sign | choose(m > 0x7f800000, nan, half);
}

/* a b + c of halves as a float that rounds to the right half: the double is exact where a tie is near, and is rounded to odd. */
INLINE float fused_f16(float a, float b, float c)
{
    double d = (double)a * (double)b + (double)c;
    float f = (float)d;
    u32 x = bits_f32(f), inexact = (double)f != d && d == d, beyond = fabs((double)f) > fabs(d);
    return as_f32((x - (inexact & beyond)) | inexact);
}

INLINE float f32_of_bf16(u32 h) { return as_f32(h << 16); }
INLINE u32 bf16_of_f32(float f)
{
    u32 x = bits_f32(f);
    return (x & 0x7fffffff) > 0x7f800000 ? (x >> 16) | 0x40 : (x + 0x7fff + ((x >> 16) & 1)) >> 16;
}

/* Toward zero, as each step of a dot product of bfloat16 is (RDNA3 guide: V_DOT2_BF16_BF16). */
INLINE float bf16_truncated(float f)
{
    u32 x = bits_f32(f), nan = (x & 0x7fffffff) > 0x7f800000;
    return as_f32((x & 0xffff0000) | (nan ? 0x400000 : 0));
}

INLINE int is_nan(float f) { return (bits_f32(f) & 0x7fffffff) > 0x7f800000; }
INLINE int is_signalling(float f) { return is_nan(f) & !(bits_f32(f) & 0x400000); }
INLINE float quiet(float f) { return as_f32(bits_f32(f) | 0x400000); }
INLINE int exponent(float f) { return (bits_f32(f) >> 23) & 255; }
INLINE int is_denormal(float f) { return (f != 0) & (exponent(f) == 0); }
INLINE float flushed(float f) { return exponent(f) ? f : as_f32(bits_f32(f) & 0x80000000); }

/* The product is rounded before the addition. */
INLINE float flushed_sum(float a, float b, float c)
{
    return flushed(flushed(flushed(a) * flushed(b)) + flushed(c));
}

/* Minimum and maximum with IEEE mode on: a quiet NaN loses, a signalling one is made quiet and wins; -0 < +0. */
INLINE float number_of(float a, float b, u32 number)
{
    u32 x = bits_f32(a), y = bits_f32(b), r = choose(is_nan(a), y, choose(is_nan(b), x, number));
    r = choose(is_signalling(b), y | 0x400000, r);
    return as_f32(choose(is_signalling(a), x | 0x400000, r));
}
INLINE float max_f32(float a, float b)
{
    u32 x = bits_f32(a), y = bits_f32(b);
    return number_of(a, b, choose(a > b, x, choose(b > a, y, x & y)));
}
INLINE float min_f32(float a, float b)
{
    u32 x = bits_f32(a), y = bits_f32(b);
    return number_of(a, b, choose(a < b, x, choose(b < a, y, x | y)));
}

/* gfx12 has no IEEE mode: any NaN loses to a number (IEEE 754-2019: minimumNumber, maximumNumber). */
INLINE float some_number(float a, float b, float number)
{
    float without_a = choose_f32(is_nan(b), quiet(a), b);
    return choose_f32(is_nan(a), without_a, choose_f32(is_nan(b), a, number));
}
INLINE float max_num_f32(float a, float b) { return some_number(a, b, max_f32(a, b)); }
INLINE float min_num_f32(float a, float b) { return some_number(a, b, min_f32(a, b)); }

/* IEEE 754-2019: a NaN wins. */
INLINE float nan_or(float a, float b, float number)
{
    return choose_f32(is_nan(a), quiet(a), choose_f32(is_nan(b), quiet(b), number));
}
INLINE float maximum_f32(float a, float b) { return nan_or(a, b, max_f32(a, b)); }
INLINE float minimum_f32(float a, float b) { return nan_or(a, b, min_f32(a, b)); }

/* The middle one; with a NaN the smallest of all. */
INLINE float med3_f32(float a, float b, float c)
{
    float top = max_f32(max_f32(a, b), c), least = min_f32(min_f32(a, b), c);
    float middle = choose_f32(bits_f32(top) == bits_f32(b), max_f32(a, c), max_f32(a, b));
    middle = choose_f32(bits_f32(top) == bits_f32(a), max_f32(b, c), middle);
    return choose_f32(is_nan(a) | is_nan(b) | is_nan(c), least, middle);
}

INLINE float med3_num_f32(float a, float b, float c)
{
    float least = min_num_f32(min_num_f32(a, b), c);
    return choose_f32(is_nan(a) | is_nan(b) | is_nan(c), least, med3_f32(a, b, c));
}

INLINE i32 least_i32(i32 a, i32 b) { return a < b ? a : b; }
INLINE i32 most_i32(i32 a, i32 b) { return a > b ? a : b; }
INLINE u32 least_u32(u32 a, u32 b) { return a < b ? a : b; }
INLINE u32 most_u32(u32 a, u32 b) { return a > b ? a : b; }
#define OF_THREE(t) \
    INLINE t min3_##t(t a, t b, t c) { return least_##t(least_##t(a, b), c); } \
    INLINE t max3_##t(t a, t b, t c) { return most_##t(most_##t(a, b), c); } \
    INLINE t maxmin_##t(t a, t b, t c) { return least_##t(most_##t(a, b), c); } \
    INLINE t minmax_##t(t a, t b, t c) { return most_##t(least_##t(a, b), c); } \
    INLINE t med3_##t(t a, t b, t c) { return most_##t(least_##t(a, b), least_##t(most_##t(a, b), c)); }
OF_THREE(i32)
OF_THREE(u32)

/* Toward zero, saturating; NaN gives zero. */
INLINE i32 i32_of_f32(float a)
{
    return is_nan(a) ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (i32)a;
}
INLINE u32 u32_of_f32(float a) { return !(a > 0) ? 0 : a >= 0x1p32f ? UINT32_MAX : (u32)a; }

INLINE i32 i16_saturated(i32 x) { return x < -32768 ? -32768 : x > 32767 ? 32767 : x; }
INLINE u32 u16_saturated(u32 x) { return x > 65535 ? 65535 : x; }

INLINE u32 reverse_bits(u32 a)
{
    a = (a >> 1 & 0x55555555) | (a & 0x55555555) << 1;
    a = (a >> 2 & 0x33333333) | (a & 0x33333333) << 2;
    a = (a >> 4 & 0x0f0f0f0f) | (a & 0x0f0f0f0f) << 4;
    return __builtin_bswap32(a);
}
INLINE u32 field_u32(u32 a, u32 offset, u32 width) { return (a >> (offset & 31)) & ((1u << (width & 31)) - 1); }
INLINE i32 field_i32(i32 a, u32 offset, u32 width)
{
    u32 x = (u32)(a >> (offset & 31)), n = width & 31, top = n ? 32 - n : 0; /* shifted in: copies of the sign */
    return n ? (i32)(x << top) >> top : 0;
}
INLINE u32 sfield_u32(u32 a, u32 offset, u32 width) /* scalar: width 0 to 127, 32 and more is everything */
{
    return width >= 32 ? a >> (offset & 31) : (a >> (offset & 31)) & ((1u << width) - 1);
}
INLINE i32 sfield_i32(i32 a, u32 offset, u32 width)
{
    i32 x = a >> (offset & 31);
    return width == 0 ? 0 : width >= 32 ? x : (i32)((u32)x << (32 - width)) >> (32 - width);
}
INLINE u64 sfield_u64(u64 a, u32 offset, u32 width)
{
    return width >= 64 ? a >> (offset & 63) : (a >> (offset & 63)) & ((1ull << width) - 1);
}
INLINE i64 sfield_i64(i64 a, u32 offset, u32 width)
{
    i64 x = a >> (offset & 63);
    return width == 0 ? 0 : width >= 64 ? x : (i64)((u64)x << (64 - width)) >> (64 - width);
}

/* Products of neighbouring parts of two words, summed. */
INLINE i64 part_of(u32 x, int at, int bits, u32 sign)
{
    u32 top = x << (32 - bits - at);
    return sign ? (i64)((i32)top >> (32 - bits)) : (i64)(top >> (32 - bits));
}
INLINE i64 dot_integers(u32 a, u32 b, int bits, u32 sign_a, u32 sign_b)
{
    i64 sum = 0;
    for (int at = 0; at < 32; at += bits)
        sum += part_of(a, at, bits, sign_a) * part_of(b, at, bits, sign_b);
    return sum;
}
INLINE i32 sum_i32(i64 x, int saturate)
{
    return !saturate ? (i32)(u32)x : x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (i32)x;
}
INLINE u32 sum_u32(i64 x, int saturate) { return saturate && x > UINT32_MAX ? UINT32_MAX : (u32)x; }

INLINE u32 apart(u32 a, u32 b) { return a > b ? a - b : b - a; }
/* Differences of neighbouring parts; `masked`: not of bytes that are zero in b. */
INLINE u32 differences(u32 a, u32 b, int bits, int masked)
{
    u32 sum = 0;
    for (int at = 0; at < 32; at += bits) {
        u32 y = (u32)part_of(b, at, bits, 0);
        sum += masked && !y ? 0 : apart((u32)part_of(a, at, bits, 0), y);
    }
    return sum;
}
INLINE u32 u8_saturated(i32 x) { return x < 0 ? 0 : x > 255 ? 255 : (u32)x; }
INLINE u32 i8_saturated(i32 x) { return (u32)(x < -128 ? -128 : x > 127 ? 127 : x) & 255; }

INLINE u32 bits_of_table(u32 a, u32 b, u32 c, u32 table)
{
    u32 result = 0;
    for (int i = 0; i < 8; i++)
        result |= (table >> i & 1 ? ~0u : 0) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

/* Selector bytes: 0 to 7 pick a byte of {a, b} with b lowest, 8 to 11 the sign of a word, 12 zero, more ones. */
INLINE u32 permute_bytes(u32 a, u32 b, u32 selector)
{
    u32 result = 0;
    for (int i = 0; i < 32; i += 8) {
        u32 s = (selector >> i) & 255, byte = (s & 4 ? a : b) >> (8 * (s & 3)) & 255;
        u32 sign = -((s & 2 ? a : b) >> (s & 1 ? 31 : 15) & 1) & 255, special = choose(s == 12, 0, choose(s < 12, sign, 255));
        result |= choose(s < 8, byte, special) << i;
    }
    return result;
}

/* A division's operand (s0, one of s1 = denominator and s2 = numerator) moved away from overflow and underflow. The first rule that
 * applies decides, so that they come last first here. */
INLINE float division_scale(float s0, float s1, float s2, u32 *scaled)
{
    u32 up = bits_f32(s0 * 0x1p64f), down = bits_f32(s0 * 0x1p-64f), same = bits_f32(s0);
    int tiny_reciprocal = is_denormal(1.0f / s1), tiny_quotient = is_denormal(s2 / s1), far = exponent(s2) - exponent(s1) >= 96;
    int zero = (s2 == 0) | (s1 == 0), tiny = is_denormal(s1), both = tiny_reciprocal & tiny_quotient;
    u32 denominator_up = choose(s0 == s1, up, same), numerator_up = choose(s0 == s2, up, same);
    u32 result = choose(exponent(s2) <= 23, up, same);
    result = choose(tiny_quotient, numerator_up, result);
    result = choose(tiny_reciprocal, down, result);
    result = choose(both, denominator_up, result);
    result = choose(tiny, up, result);
    result = choose(far, denominator_up, result);
    *scaled = (u32)(!zero & (far | (!tiny & tiny_quotient)));
    return as_f32(choose(zero, 0x7fc00000, result));
}

/* The special cases of s2 / s1 around the quotient s0. */
INLINE float division_fixup(float s0, float s1, float s2)
{
    u32 x1 = bits_f32(s1), x2 = bits_f32(s2), sign = (x1 ^ x2) & 0x80000000;
    int infinite1 = (x1 & 0x7fffffff) == 0x7f800000, infinite2 = (x2 & 0x7fffffff) == 0x7f800000;
    u32 result = sign | (bits_f32(s0) & 0x7fffffff);
    result = choose(infinite1 | (s2 == 0) | (exponent(s2) - exponent(s1) < -150), sign, result);
    result = choose((s1 == 0) | infinite2, sign | 0x7f800000, result);
    result = choose(((s1 == 0) & (s2 == 0)) | (infinite1 & infinite2), 0xffc00000, result);
    result = choose(is_nan(s1), x1 | 0x400000, result);
    return as_f32(choose(is_nan(s2), x2 | 0x400000, result));
}

/* Of halves: no quotient of theirs is out of a float's range. */
INLINE float division_fixup_f16(float s0, float s1, float s2)
{
    u32 x1 = bits_f32(s1), x2 = bits_f32(s2), usual = (bits_f32(s0) & 0x7fffffff) | ((x1 ^ x2) & 0x80000000);
    int special = (s1 == 0) | (s2 == 0) | ((x1 & 0x7fffffff) >= 0x7f800000) | ((x2 & 0x7fffffff) >= 0x7f800000);
    return as_f32(choose(special, bits_f32(division_fixup(s0, s1, s2)), usual));
}

INLINE float division_fmas(float a, float b, float c, u32 scaled)
{
    float sum = fmaf(a, b, c);
    return !scaled ? sum : exponent(c) > 127 ? sum * 0x1p64f : sum * 0x1p-64f;
}

/* 1: signalling NaN, 2: quiet NaN, then -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf. */
INLINE u32 class_of(float a)
{
    u32 x = bits_f32(a), e = exponent(a), m = x & 0x7fffff, negative = x >> 31;
    if (e == 255 && m)
        return m & 0x400000 ? 2 : 1;
    u32 rank = e == 255 ? 3 : e ? 2 : m ? 1 : 0; /* distance from zero */
    return negative ? 1u << (5 - rank) : 1u << (6 + rank);
}

/* Results of the transcendental unit: inputs and outputs that are denormal become zero. */
INLINE float flush_unary(float (*f)(float), float a) { return flushed(f(flushed(a))); }
INLINE float reciprocal(float a) { return flushed(1.0f / flushed(a)); }
INLINE float reciprocal_root(float a) { return flushed((float)(1.0 / sqrt((double)flushed(a)))); }
INLINE float fraction(float a)
{
    float r = a - floorf(a);
    return r >= 1.0f ? as_f32(0x3f7fffff) : r;
}
/* ldexpf: the double is exact, so that there is one rounding. */
INLINE float scale_by_power(float a, i32 n)
{
    i32 power = least_i32(most_i32(n, -300), 300);
    return (float)((double)a * as_f64((u64)(1023 + power) << 52));
}
