/* exp2, log2, sine and cosine in double precision, rounded to float once: errors before that are some 2^-50, so results are the
 * nearest floats but for inputs next to a tie. Only IEEE operations, some of them fused: every host gives the same bits
 * (-ffp-contract=off).
 * Written without branches, so that lane loops vectorise. Coefficients are those of the Taylor series. */

/* x = n + r with |r| <= 1/2, 2^r by its series to the 12th power. Beyond +-200 floats are infinite or zero. */
INLINE float exp2_f32(float a)
{
    double x = a > 200.0f ? 200.0 : a < -200.0f ? -200.0 : (double)a;
    double shifted = x + 0x1.8p52, r = x - (shifted - 0x1.8p52); /* n is in the low bits of `shifted` */
    double p = 0x1.c3bd650fc2986p-36;
    p = fma(p, r, 0x1.e8cac7351bb25p-32);
    p = fma(p, r, 0x1.e4cf5158b8ecap-28);
    p = fma(p, r, 0x1.b5253d395e7c4p-24);
    p = fma(p, r, 0x1.62c0223a5c824p-20);
    p = fma(p, r, 0x1.ffcbfc588b0c7p-17);
    p = fma(p, r, 0x1.430912f86c787p-13);
    p = fma(p, r, 0x1.5d87fe78a6731p-10);
    p = fma(p, r, 0x1.3b2ab6fba4e77p-7);
    p = fma(p, r, 0x1.c6b08d704a0c0p-5);
    p = fma(p, r, 0x1.ebfbdff82c58fp-3);
    p = fma(p, r, 0x1.62e42fefa39efp-1);
    p = fma(p, r, 1.0);
    return (float)(p * as_f64((bits_f64(shifted) + 1023) << 52));
}

/* a = 2^e m with m in [sqrt(1/2), sqrt(2)), log2(m) = 2/ln(2) artanh(s) with s = (m - 1) / (m + 1). Denormals are not expected.
 * Of zero: -infinity; of negative numbers: the NaN that hardware makes, 0xffc00000. */
INLINE float log2_f32(float a)
{
    i32 above = (i32)(bits_f32(a) - 0x3f3504f3), e = above >> 23;
    double m = as_f32(bits_f32(a) - ((u32)e << 23)), s = (m - 1.0) / (m + 1.0), q = s * s;
    double p = 0x1.1964ec6fc9491p-3;
    p = fma(p, q, 0x1.3703c1f4d0ffep-3);
    p = fma(p, q, 0x1.5b9ac9b743f0dp-3);
    p = fma(p, q, 0x1.89f3b1694cffep-3);
    p = fma(p, q, 0x1.c68f568d31760p-3);
    p = fma(p, q, 0x1.0c9a84994022dp-2);
    p = fma(p, q, 0x1.484b13d7c02a9p-2);
    p = fma(p, q, 0x1.a61762a7aded9p-2);
    p = fma(p, q, 0x1.2776c50ef9bfep-1);
    p = fma(p, q, 0x1.ec709dc3a03fdp-1);
    p = fma(p, q, 0x1.71547652b82fep+1);
    float number = (float)((double)e + p * s);
    u32 x = bits_f32(a), top = x & 0x7fffffff, usual = -(u32)(x - 1 < 0x7f7fffff); /* positive and finite: all bits */
    u32 special = top == 0 ? 0xff800000 : x == 0x7f800000 ? x : 0xffc00000;
    special = top > 0x7f800000 ? x | 0x400000 : special;
    return as_f32((bits_f32(number) & usual) | (special & ~usual));
}

/* sin(2 pi r) for |r| <= 1/4. */
INLINE double quarter_sin(double r)
{
    double q = r * r, p = 0x1.2877020d52cf0p-10;
    p = fma(p, q, -0x1.8a404211f9547p-7);
    p = fma(p, q, 0x1.aaec32af93359p-4);
    p = fma(p, q, -0x1.6fadb9f155744p-1);
    p = fma(p, q, 0x1.e8f434d018d63p+1);
    p = fma(p, q, -0x1.e3074fde8871fp+3);
    p = fma(p, q, 0x1.50783487ee782p+5);
    p = fma(p, q, -0x1.32d2cce62bd86p+6);
    p = fma(p, q, 0x1.466bc6775aae2p+6);
    p = fma(p, q, -0x1.4abbce625be53p+5);
    p = fma(p, q, 0x1.921fb54442d18p+2);
    return p * r;
}

/* Of turns: an input of 1 is one turn. Full turns are subtracted exactly; of infinity: NaN. */
INLINE float turns_sin(float a)
{
    double r = (double)a - rint((double)a), over = (r < 0 ? -0.5 : 0.5) - r;
    return a == 0 ? a : (float)quarter_sin(fabs(r) > 0.25 ? over : r);
}
INLINE float turns_cos(float a)
{
    double r = (double)a - rint((double)a);
    return (float)quarter_sin(0.25 - fabs(r));
}
