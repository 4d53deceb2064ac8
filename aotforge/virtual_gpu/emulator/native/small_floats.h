/* 8-bit floats: E4M3 and E5M2, as OCP defines them or without infinities and negative zero (FNUZ: 0x80 is the only NaN, and exponents
 * are biased by one more). Instruction.flags has FNUZ for archs with the latter. */

enum { FNUZ = 2 };
/* MODE.FP16_OVFL: what is beyond the largest number becomes that number. */
#define SATURATES(w) ((w)->mode & MODE_FP16_OVFL)

/* Scales are powers of two in 8 bits (OCP's E8M0); a float's exponent is one. */
INLINE float scale_of_bits(u32 e) { return e == 255 ? as_f32(0x7fc00000) : ldexpf(1.0f, (int)e - 127); }
INLINE float scale_of(float f) { return scale_of_bits((u32)exponent(f)); }

INLINE float f32_of_fp8(u32 x, int fnuz)
{
    u32 e = x >> 3 & 15, m = x & 7;
    float size = e ? as_f32((e + (fnuz ? 119 : 120)) << 23 | m << 20) : (float)m * (fnuz ? 0x1p-10f : 0x1p-9f);
    int nan = fnuz ? (x & 255) == 0x80 : (x & 0x7f) == 0x7f;
    return nan ? as_f32(0x7fc00000) : x & 0x80 ? -size : size;
}

INLINE float f32_of_bf8(u32 x, int fnuz)
{
    u32 e = x >> 2 & 31, m = x & 3;
    if (!fnuz)
        return f32_of_f16(x << 8 & 0xffff);
    float size = e ? as_f32((e + 111) << 23 | m << 21) : (float)m * 0x1p-17f;
    return (x & 255) == 0x80 ? as_f32(0x7fc00000) : x & 0x80 ? -size : size;
}

/* Round to nearest, ties to even, to `bits` of mantissa with the smallest normal power `low`; the result counts units of the smallest
 * denormal number in the format's own encoding. */
INLINE u32 rounded_small(float size, int bits, int low)
{
    if (exponent(size) - 127 < low)
        return (u32)(i32)rintf(ldexpf(size, bits - low)); /* the largest denormal's successor is the smallest normal number */
    u32 x = bits_f32(size), drop = 23 - (u32)bits;
    x += (1u << (drop - 1)) - 1 + (x >> drop & 1);
    return (x >> drop) - (u32)((126 + low) << bits);
}

/* Beyond the largest number: that number with `saturate` (FP16_OVFL), else infinity or NaN. */
INLINE u32 fp8_of_f32(float f, int fnuz, int saturate)
{
    u32 sign = bits_f32(f) >> 24 & 0x80, largest = fnuz ? 0x7f : 0x7e, nan = fnuz ? 0x80 : sign | 0x7f;
    if (is_nan(f) || (isinf(f) && !saturate))
        return nan;
    u32 x = isinf(f) ? 0x80 : rounded_small(fabsf(f), 3, fnuz ? -7 : -6);
    if (x > largest)
        return saturate ? sign | largest : nan;
    return fnuz && !x ? 0 : sign | x;
}

INLINE u32 bf8_of_f32(float f, int fnuz, int saturate)
{
    u32 sign = bits_f32(f) >> 24 & 0x80, largest = fnuz ? 0x7f : 0x7b, beyond = fnuz ? 0x80 : sign | 0x7c;
    if (is_nan(f))
        return fnuz ? 0x80 : sign | 0x7f;
    u32 x = isinf(f) ? 0x80 : rounded_small(fabsf(f), 2, fnuz ? -15 : -14);
    if (x > largest)
        return saturate && !(isinf(f) && !fnuz) ? sign | largest : beyond;
    return fnuz && !x ? 0 : sign | x;
}

/* E2M3, E3M2 and E2M1 have no special values. */
INLINE float f32_of_bits(u32 x, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, e = (int)(x >> mantissa_bits) & ((1 << exponent_bits) - 1);
    u32 m = x & ((1u << mantissa_bits) - 1);
    float size = ldexpf((float)(e ? m + (1u << mantissa_bits) : m), (e ? e : 1) - bias - mantissa_bits);
    return x >> (exponent_bits + mantissa_bits) & 1 ? -size : size;
}
