/* Operations on doubles that do not fit in one expression of the instruction table. The reciprocal, the root and its reciprocal are
 * IEEE operations; hardware's are less exact, and compilers refine them. */

INLINE int exponent_f64(double f) { return (int)(bits_f64(f) >> 52) & 2047; }
INLINE int is_nan_f64(double f) { return (bits_f64(f) & INT64_MAX) > 0x7ff0000000000000ull; }
INLINE int is_signalling_f64(double f) { return is_nan_f64(f) && !(bits_f64(f) >> 51 & 1); }
INLINE double quiet_f64(double f) { return as_f64(bits_f64(f) | 1ull << 51); }
INLINE int is_denormal_f64(double f) { return f != 0 && exponent_f64(f) == 0; }

/* As max_f32 and min_f32. */
INLINE double max_f64(double a, double b)
{
    double equal = as_f64(bits_f64(a) & bits_f64(b));
    double number = a > b ? a : b > a ? b : equal;
    double other = is_nan_f64(a) ? b : is_nan_f64(b) ? a : number;
    return is_signalling_f64(a) ? quiet_f64(a) : is_signalling_f64(b) ? quiet_f64(b) : other;
}
INLINE double min_f64(double a, double b)
{
    double equal = as_f64(bits_f64(a) | bits_f64(b));
    double number = a < b ? a : b < a ? b : equal;
    double other = is_nan_f64(a) ? b : is_nan_f64(b) ? a : number;
    return is_signalling_f64(a) ? quiet_f64(a) : is_signalling_f64(b) ? quiet_f64(b) : other;
}

INLINE double max_num_f64(double a, double b)
{
    return is_nan_f64(a) ? (is_nan_f64(b) ? quiet_f64(a) : b) : is_nan_f64(b) ? a : max_f64(a, b);
}
INLINE double min_num_f64(double a, double b)
{
    return is_nan_f64(a) ? (is_nan_f64(b) ? quiet_f64(a) : b) : is_nan_f64(b) ? a : min_f64(a, b);
}

INLINE double maximum_f64(double a, double b) { return is_nan_f64(a) ? quiet_f64(a) : is_nan_f64(b) ? quiet_f64(b) : max_f64(a, b); }
INLINE double minimum_f64(double a, double b) { return is_nan_f64(a) ? quiet_f64(a) : is_nan_f64(b) ? quiet_f64(b) : min_f64(a, b); }

/* Toward zero, saturating; NaN gives zero. */
INLINE i32 i32_of_f64(double a)
{
    return is_nan_f64(a) ? 0 : a >= 0x1p31 ? INT32_MAX : a <= -0x1p31 ? INT32_MIN : (i32)a;
}
INLINE u32 u32_of_f64(double a) { return !(a > 0) ? 0 : a >= 0x1p32 ? UINT32_MAX : (u32)a; }

INLINE double fraction_f64(double a)
{
    double r = a - floor(a);
    return r >= 1.0 ? as_f64(0x3fefffffffffffffull) : r;
}

/* A mantissa in [1/2, 1) and its power of two; zero, infinities and NaN are their own mantissas, with exponent 0. */
INLINE int has_exponent(double a) { return a != 0 && exponent_f64(a) != 2047; }
INLINE i32 frexp_exponent(double a)
{
    int e = 0;
    if (has_exponent(a))
        (void)frexp(a, &e);
    return e;
}
INLINE double frexp_mantissa(double a)
{
    int e;
    return has_exponent(a) ? frexp(a, &e) : a;
}

/* As division_scale, division_fixup and division_fmas. */
INLINE double division_scale_f64(double s0, double s1, double s2, u32 *scaled)
{
    u32 flag = 0;
    double result = s0;
    int tiny_reciprocal = is_denormal_f64(1.0 / s1), tiny_quotient = is_denormal_f64(s2 / s1);
    if (s2 == 0 || s1 == 0)
        result = as_f64(0x7ff8000000000000ull);
    else if (exponent_f64(s2) - exponent_f64(s1) >= 768) {
        flag = 1;
        result = s0 == s1 ? s0 * 0x1p128 : s0;
    } else if (is_denormal_f64(s1))
        result = s0 * 0x1p128;
    else if (tiny_reciprocal && tiny_quotient) {
        flag = 1;
        result = s0 == s1 ? s0 * 0x1p128 : s0;
    } else if (tiny_reciprocal)
        result = s0 * 0x1p-128;
    else if (tiny_quotient) {
        flag = 1;
        result = s0 == s2 ? s0 * 0x1p128 : s0;
    } else if (exponent_f64(s2) <= 53)
        result = s0 * 0x1p128;
    *scaled = flag;
    return result;
}

INLINE double division_fixup_f64(double s0, double s1, double s2)
{
    u64 sign = (bits_f64(s1) ^ bits_f64(s2)) & 1ull << 63;
    double zero = as_f64(sign), infinite = as_f64(sign | 0x7ff0000000000000ull);
    int infinite1 = isinf(s1), infinite2 = isinf(s2);
    if (is_nan_f64(s2) || is_nan_f64(s1))
        return quiet_f64(is_nan_f64(s2) ? s2 : s1);
    if ((s1 == 0 && s2 == 0) || (infinite1 && infinite2))
        return as_f64(0xfff8000000000000ull);
    if (s1 == 0 || infinite2)
        return infinite;
    if (infinite1 || s2 == 0 || exponent_f64(s2) - exponent_f64(s1) < -1075)
        return zero;
    return as_f64(sign | (bits_f64(s0) & INT64_MAX));
}

INLINE double division_fmas_f64(double a, double b, double c, u32 scaled)
{
    double sum = fma(a, b, c);
    return !scaled ? sum : exponent_f64(c) > 1023 ? sum * 0x1p128 : sum * 0x1p-128;
}

/* As class_of: exponent and mantissa of any format. */
INLINE u32 class_of_parts(u32 negative, int special, int has_mantissa, int is_quiet, int has_power)
{
    if (special && has_mantissa)
        return is_quiet ? 2 : 1;
    u32 rank = special ? 3 : has_power ? 2 : has_mantissa ? 1 : 0;
    return negative ? 1u << (5 - rank) : 1u << (6 + rank);
}
INLINE u32 class_of_f64(double a)
{
    u64 x = bits_f64(a), m = x & ((1ull << 52) - 1);
    int e = exponent_f64(a);
    return class_of_parts((u32)(x >> 63), e == 2047, m != 0, (m >> 51) != 0, e != 0);
}
INLINE u32 class_of_f16(u32 x)
{
    u32 e = x >> 10 & 31, m = x & 0x3ff;
    return class_of_parts(x >> 15 & 1, e == 31, m != 0, (m >> 9) != 0, e != 0);
}

/* 53 bits of 2 / pi for the reduction of an angle: those from bit 53 * part on, further ones for large angles. */
static const u32 TWO_OVER_PI[38] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0,
    0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4,
    0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
    0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab};
INLINE double two_over_pi_part(double angle, u32 part)
{
    int e = exponent_f64(angle), first = 53 * (int)(part & 31) + (e > 1077 ? e - 1077 : 0);
    u64 found = 0;
    for (int i = first; i < first + 53; i++)
        found = found << 1 | (i < 1201 ? TWO_OVER_PI[i / 32] >> (31 - i % 32) & 1 : 0);
    return ldexp((double)found, -53 - first + (e >= 1968 ? 128 : 0));
}
