/* 8-bit floats: E4M3 and E5M2, as OCP defines them or without infinities and negative zero (FNUZ: 0x80 is the only NaN, and exponents
 * are biased by one more). Instruction.flags has FNUZ for archs with the latter. */

enum { FNUZ = 2 };
/* MODE.FP16_OVFL: what is beyond the largest number becomes that number. */
#define SATURATES(w) ((w)->mode & MODE_FP16_OVFL)

/* Scales are powers of two in 8 bits (OCP's E8M0); a float's exponent is one. */
INLINE float scale_of_bits(u32 e) { return as_f32(e == 255 ? 0x7fc00000 : e ? e << 23 : 0x400000); }
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
    u32 x = bits_f32(size), drop = 23 - (u32)bits;
    u32 normal = ((x + (1u << (drop - 1)) - 1 + (x >> drop & 1)) >> drop) - (u32)((126 + low) << bits);
    int is_small = exponent(size) - 127 < low;
    /* the largest denormal's successor is the smallest normal number */
    u32 small = (u32)(i32)rintf(choose_f32(is_small, size, 0) * as_f32((u32)(127 + bits - low) << 23));
    return choose(is_small, small, normal);
}

/* Beyond the largest number: that number with `saturate` (FP16_OVFL), else infinity or NaN. */
INLINE u32 fp8_of_f32(float f, int fnuz, int saturate)
{
    u32 sign = bits_f32(f) >> 24 & 0x80, largest = fnuz ? 0x7f : 0x7e, nan = fnuz ? 0x80 : sign | 0x7f;
    u32 top = bits_f32(f) & 0x7fffffff, x = choose(top == 0x7f800000, 0x80, rounded_small(as_f32(top), 3, fnuz ? -7 : -6));
    u32 result = choose(x > largest, choose(saturate != 0, sign | largest, nan), sign | x);
    result = choose((fnuz != 0) & (x == 0), 0, result);
    return choose((top > 0x7f800000) | ((top == 0x7f800000) & !saturate), nan, result);
}

INLINE u32 bf8_of_f32(float f, int fnuz, int saturate)
{
    u32 sign = bits_f32(f) >> 24 & 0x80, largest = fnuz ? 0x7f : 0x7b, beyond = fnuz ? 0x80 : sign | 0x7c;
    u32 top = bits_f32(f) & 0x7fffffff, x = choose(top == 0x7f800000, 0x80, rounded_small(as_f32(top), 2, fnuz ? -15 : -14));
    int saturates = (saturate != 0) & !((top == 0x7f800000) & !fnuz);
    u32 result = choose(x > largest, choose(saturates, sign | largest, beyond), sign | x);
    result = choose((fnuz != 0) & (x == 0), 0, result);
    return choose(top > 0x7f800000, fnuz ? 0x80 : sign | 0x7f, result);
}

/* E2M3, E3M2 and E2M1 have no special values. */
INLINE float f32_of_bits(u32 x, int exponent_bits, int mantissa_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1, e = (int)(x >> mantissa_bits) & ((1 << exponent_bits) - 1);
    u32 m = x & ((1u << mantissa_bits) - 1), sign = x >> (exponent_bits + mantissa_bits) << 31;
    float unit = as_f32((u32)((e ? e : 1) - bias - mantissa_bits + 127) << 23);
    return as_f32(sign | bits_f32((float)(i32)(e ? m + (1u << mantissa_bits) : m) * unit));
}
