/* Matrix instructions. Inputs become float32, double or integers, products are added to the accumulator in order of k, each with one
 * rounding: the hardware's own order of additions is not published. */

enum { IN_F32, IN_F16, IN_BF16, IN_XF32, IN_FP8, IN_BF8, IN_FP6, IN_BF6, IN_FP4 };

/* 10 bits of mantissa: nearest, ties to even. */
INLINE float xf32_of_f32(float f)
{
    u32 x = bits_f32(f);
    return is_nan(f) ? f : as_f32((x + 0xfff + (x >> 13 & 1)) & 0xffffe000);
}

INLINE int element_bits(int type)
{
    return type == IN_F32 || type == IN_XF32 ? 32 : type == IN_F16 || type == IN_BF16 ? 16 : type <= IN_BF8 ? 8 : type == IN_FP4 ? 4 : 6;
}

/* Bits of element e of an input, of every lane. */
INLINE void input_bits(const Wave *w, u32 index, int e, int bits, u32 *row)
{
    int first = e * bits, shift = first % 32;
    const u32 *v = w->v[index + (u32)(first / 32)], *next = w->v[index + (u32)((first + bits - 1) / 32)];
    u32 mask = bits == 32 ? ~0u : (1u << bits) - 1;
    if (32 % bits == 0)
        EACH_LANE row[l] = v[l] >> shift & mask;
    else
        EACH_LANE row[l] = (u32)(pair(v[l], next[l]) >> shift) & mask;
}

INLINE void input_bytes(const Wave *w, u32 index, int e, int is_signed, u32 *row)
{
    input_bits(w, index, e, 8, row);
    if (is_signed)
        EACH_LANE row[l] = (u32)(i8)row[l];
}

/* 16 neighbouring lanes. Compilers split the operations for processors with shorter vectors. */
typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));

#ifdef __AVX512F__
/* Of the low halves of 16 words. Signalling NaNs become quiet, as in the sums later. */
INLINE void floats_of_halves(Words x, float *row)
{
#ifdef BUILTINS
    Shorts16 halves = __builtin_ia32_pmovdw512_mask((Ints16)x, (Shorts16){0}, (u16)-1);
    *(Floats *)row = __builtin_ia32_vcvtph2ps512_mask(halves, (Floats){0}, (u16)-1, 4);
#else
    _mm512_storeu_ps(row, _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x)));
#endif
}
#endif

/* Element e of an input register row, as float32. */
INLINE void input_row(const Wave *w, u32 index, int e, int type, int fnuz, float *row)
{
    u32 x[LANES];
#ifdef __AVX512F__
    if (type == IN_F16) {
        const u32 *v = w->v[index + (u32)e / 2];
        for (int l = 0; l < LANES; l += 16)
            floats_of_halves(*(const Words *)(v + l) >> 16 * (e % 2), row + l);
        return;
    }
#endif
    input_bits(w, index, e, element_bits(type), x);
    switch (type) {
    case IN_F32: memcpy(row, x, sizeof x); break;
    case IN_F16: EACH_LANE row[l] = f32_of_f16(x[l]); break;
    case IN_BF16: EACH_LANE row[l] = f32_of_bf16(x[l]); break;
    case IN_XF32: EACH_LANE row[l] = xf32_of_f32(as_f32(x[l])); break;
    case IN_FP8: EACH_LANE row[l] = f32_of_fp8(x[l], fnuz); break;
    case IN_BF8: EACH_LANE row[l] = f32_of_bf8(x[l], fnuz); break;
    case IN_FP6: EACH_LANE row[l] = f32_of_bits(x[l], 2, 3); break;
    case IN_BF6: EACH_LANE row[l] = f32_of_bits(x[l], 3, 2); break;
    default: EACH_LANE row[l] = f32_of_bits(x[l], 2, 1); break;
    }
}

/* The accumulators: `registers` rows of words, in place unless the result's registers are others that overlap them. */
INLINE const u32 *addend_rows(const Wave *w, const Instruction *I, int registers, u32 *rows)
{
    const Operand *o = &I->s[2];
    u32 count = (u32)registers, d = I->d.index;
    if (o->space == VECTOR && (o->index == d || o->index + count <= d || d + count <= o->index))
        return w->v[o->index];
    for (u32 r = 0; r < count; r++)
        if (o->space == VECTOR)
            memcpy(rows + r * LANES, w->v[o->index + r], sizeof(u32) * LANES);
        else
            spread(rows + r * LANES, scalar32(w, o));
    return rows;
}

INLINE Floats fused(Floats a, Floats b, Floats c)
{
#ifdef BUILTINS
    return __builtin_ia32_vfmaddps512_mask(a, b, c, (u16)-1, 4); /* 4: the current rounding */
#elif defined __AVX512F__
    return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
    float x[16], y[16], z[16];
    memcpy(x, &a, sizeof x), memcpy(y, &b, sizeof y), memcpy(z, &c, sizeof z);
    for (int i = 0; i < 16; i++)
        z[i] = fmaf(x[i], y[i], z[i]);
    memcpy(&c, z, sizeof c);
    return c;
#endif
}
INLINE Words multiplied(Words a, Words b, Words c) { return a * b + c; }

/* Register r of lanes `first` and on holds row `row` + r % 4 of a block of D; `row` is the same for r to r + 3. */
INLINE int mfma_row(int m, int r, int first)
{
    int g = first / m;
    return m == 32 ? 8 * (r % 16 / 4) + 4 * g : m == 16 ? 4 * g : 0;
}

/* D[b] = C[b] + A[b] B[b] for `blocks` products of an m x k by a k x m matrix (LLVM: mfma MxMxK, blocks B).
 * A: lane l holds row l % m; B: column l % m; of block (l / m) % blocks, elements k = each * (l / m / blocks) + e.
 * C, D: a lane's column is l % m; m = 32: register r is row 8 (r % 16 / 4) + 4 (l / 32) + r % 4 of block r / 16;
 * m = 16: row 4 (l / 16) + r % 4 of block r / 4; m = 4: row r of block l / 4. EXEC is ignored.
 * cbsz (immediate, low 4 bits): of every 2^cbsz neighbouring blocks of A the one numbered abid (the bits above) is taken for all.
 * VECTOR_: of 16 T. Four registers of all lanes are one block (m = 16) or 8 rows of it (m = 32): they are computed at once. */
#define MFMA_LOOP(T, VECTOR_, MULTIPLY_ADD) \
    int registers = m * m * blocks / 64, groups = 64 / m / blocks, each = k / groups, cbsz = I->immediate & 15; \
    READ_INPUTS \
    u32 copy[32 * LANES]; \
    const u32 *c = addend_rows(w, I, registers, copy); \
    u32 *d = w->v[I->d.index]; \
    for (int block = 0; m == 4 && block < 16; block++) { \
        int from = block >> cbsz << cbsz | I->immediate >> 4, at = 4 * block; \
        T sum[4][4]; \
        for (int i = 0; i < 4; i++) \
            memcpy(sum[i], c + at + i * LANES, sizeof sum[i]); \
        for (int e = 0; e < each; e++) \
            for (int i = 0; i < 4; i++) \
                for (int j = 0; j < 4; j++) { \
                    T x = a[e][from * m + i], y = b[e][block * m + j], z = sum[i][j]; \
                    sum[i][j] = MULTIPLY_ADD##_one(x, y, z); \
                } \
        for (int i = 0; i < 4; i++) \
            memcpy(d + at + i * LANES, sum[i], sizeof sum[i]); \
    } \
    for (int r = 0; m != 4 && r < registers; r += 4) { \
        int block = m == 32 ? r / 16 : r / 4, from = block >> cbsz << cbsz | I->immediate >> 4; \
        VECTOR_ sum[4][4]; \
        EACH_OF_16(sum[i][q] = *(const VECTOR_ *)(c + (r + i) * LANES + 16 * q)) \
        for (int group = 0; group < groups; group++) \
            for (int e = 0; e < each; e++) { \
                const T *x = a[e] + (group * blocks + from) * m + mfma_row(m, r, 0), *y = b[e] + (group * blocks + block) * m; \
                EACH_OF_16(sum[i][q] = MULTIPLY_ADD(x[mfma_row(m, 0, 16 * q) + i] - (VECTOR_){0}, \
                                                    *(const VECTOR_ *)(y + 16 * q % m), sum[i][q])) \
            } \
        EACH_OF_16(*(VECTOR_ *)(d + (r + i) * LANES + 16 * q) = sum[i][q]) \
    }
/* For i and q up to 3, in registers. */
#define EACH_OF_16(STATEMENT) \
    _Pragma("GCC unroll 4") for (int q = 0; q < 4; q++) \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) \
            STATEMENT;

#define fused_one fmaf
#define multiplied_one(a, b, c) ((a) * (b) + (c))

INLINE void mfma(Wave *w, const Instruction *I, int m, int k, int blocks, int type_a, int type_b)
{
    float a[32][64], b[32][64];
    int fnuz = k / (64 / m) < 32 && I->flags & FNUZ; /* other archs have instructions of 32 elements a lane */
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_row(w, I->s[0].index, e, type_a, fnuz, a[e]); \
        input_row(w, I->s[1].index, e, type_b, fnuz, b[e]); \
    }
    MFMA_LOOP(float, Floats, fused)
#undef READ_INPUTS
}

/* ---- products of 32 elements a lane, with formats of A and B in `flags`, 4 bits each ---- */

/* Which k element e of the lanes of a group is. Of 8 bits a lane has 16 neighbours in each half of the matrix, of less all 32 of a block. */
INLINE int chosen_k(int type, int group, int e, int k)
{
    return element_bits(type) == 8 ? e / 16 * (k / 2) + 16 * group + e % 16 : 32 * group + e;
}

INLINE void chosen_input(const Wave *w, u32 index, int type, int m, float (*rows)[32])
{
    float x[LANES];
    for (int e = 0; e < 32; e++) {
        input_row(w, index, e, type, 0, x);
        for (int l = 0; l < LANES; l++)
            rows[chosen_k(type, l / m, e, 2048 / m)][l % m] = x[l];
    }
}

/* A lane has the power of two of a row (column) for 32 k in one byte of a register; op_sel and op_sel_hi have the byte's number. */
INLINE void block_scales(const Wave *w, const Instruction *I, int n, int m, double (*rows)[32])
{
    u32 byte = (I->op_sel >> n & 1) | (I->op_sel_hi >> n & 1) << 1;
    for (int l = 0; l < LANES; l++)
        rows[l / m][l % m] = scale_of_bits(w->v[I->s[3 + n].index][l] >> (8 * byte) & 255);
}

INLINE void mfma_of_formats(Wave *w, const Instruction *I, int m, int scaled)
{
    static const u8 types[] = {IN_FP8, IN_BF8, IN_FP6, IN_BF6, IN_FP4};
    float a[128][32], b[128][32];
    double scale_a[4][32], scale_b[4][32];
    u32 c[16][64];
    int registers = m * m / 64;
    chosen_input(w, I->s[0].index, types[I->flags & 15], m, a);
    chosen_input(w, I->s[1].index, types[I->flags >> 4 & 15], m, b);
    if (scaled) {
        block_scales(w, I, 0, m, scale_a);
        block_scales(w, I, 1, m, scale_b);
    }
    memmove(c, addend_rows(w, I, registers, c[0]), sizeof(u32) * LANES * (size_t)registers);
    for (int r = 0; r < registers; r++)
        for (int first = 0; first < LANES; first += m) {
            int i = mfma_row(m, r, first) + r % 4;
            for (int k = 0; k < 2048 / m; k++)
                for (int j = 0; j < m; j++) {
                    float product = a[k][i] * b[k][j]; /* of few bits: exact, and so is the scaled one */
                    if (scaled)
                        product = (float)(product * scale_a[k / 32][i] * scale_b[k / 32][j]);
                    c[r][first + j] = bits_f32(as_f32(c[r][first + j]) + product);
                }
        }
    for (int r = 0; r < registers; r++)
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof c[r]);
}

/* The same on signed bytes; sums wrap. */
INLINE void mfma_i8(Wave *w, const Instruction *I, int m, int k, int blocks)
{
    u32 a[16][64], b[16][64];
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_bytes(w, I->s[0].index, e, 1, a[e]); \
        input_bytes(w, I->s[1].index, e, 1, b[e]); \
    }
    MFMA_LOOP(u32, Words, multiplied)
#undef READ_INPUTS
}

/* 16x16x4 doubles: lane l holds A's row and B's column l % 16 of k = l / 16; D's pair r is row 4 r + l / 16 of column l % 16. */
INLINE void mfma_f64(Wave *w, const Instruction *I)
{
    const u32 *a = w->v[I->s[0].index], *b = w->v[I->s[1].index];
    double x[64], y[64], d[4][64];
    EACH_LANE x[l] = as_f64(pair(a[l], a[l + LANES]));
    EACH_LANE y[l] = as_f64(pair(b[l], b[l + LANES]));
    for (int r = 0; r < 4; r++) {
        const u32 *c = I->s[2].space == VECTOR ? w->v[I->s[2].index + 2 * (u32)r] : NULL;
        EACH_LANE d[r][l] = as_f64(c ? pair(c[l], c[l + LANES]) : scalar64(w, &I->s[2]));
        for (int row = 0; row < 4; row++)
            for (int k = 0; k < 4; k++)
                for (int j = 0; j < 16; j++)
                    d[r][16 * row + j] = fma(x[16 * k + 4 * r + row], y[16 * k + j], d[r][16 * row + j]);
    }
    for (int r = 0; r < 4; r++) {
        u32 *row = w->v[I->d.index + 2 * (u32)r];
        EACH_LANE row[l] = (u32)bits_f64(d[r][l]);
        EACH_LANE row[l + LANES] = (u32)(bits_f64(d[r][l]) >> 32);
    }
}

/* 16x16x16, 32 lanes. gfx11: lane l and lane l + 16 hold all of row (column) l % 16; D's register r is row 2 r + l / 16.
 * gfx12: lane l holds elements k = 8 (l / 16) + e; D's register r is row r + 8 (l / 16). */
#define WMMA_LOOP(T, VECTOR_, MULTIPLY_ADD) \
    int gfx12 = I->flags & 1, each = gfx12 ? 8 : 16; \
    READ_INPUTS \
    u32 copy[8 * LANES], *d = w->v[I->d.index]; \
    const u32 *c = addend_rows(w, I, 8, copy); \
    VECTOR_ sum[4][4]; \
    EACH_OF_16(sum[i][q] = *(const VECTOR_ *)(c + (4 * (q % 2) + i) * LANES + 16 * (q / 2))) \
    for (int n = 0; n < 16; n++) { \
        int from = gfx12 ? 16 * (n / 8) : 0, half = gfx12 ? 8 : 1, step = gfx12 ? 1 : 2; \
        const T *x = a[gfx12 ? n % 8 : n] + from; \
        const VECTOR_ y = *(const VECTOR_ *)(b[gfx12 ? n % 8 : n] + from); \
        EACH_OF_16(sum[i][q] = MULTIPLY_ADD(x[half * (q / 2) + step * (4 * (q % 2) + i)] - (VECTOR_){0}, y, sum[i][q])) \
    } \
    EACH_OF_16(*(VECTOR_ *)(d + (4 * (q % 2) + i) * LANES + 16 * (q / 2)) = sum[i][q])

INLINE void wmma(Wave *w, const Instruction *I, int type_a, int type_b)
{
    float a[16][LANES], b[16][LANES];
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_row(w, I->s[0].index, e, type_a, 0, a[e]); \
        input_row(w, I->s[1].index, e, type_b, 0, b[e]); \
    }
    WMMA_LOOP(float, Floats, fused)
#undef READ_INPUTS
}

/* Bytes that neg_lo marks as signed, for A and for B; sums wrap. */
INLINE void wmma_i8(Wave *w, const Instruction *I)
{
    u32 a[16][LANES], b[16][LANES];
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_bytes(w, I->s[0].index, e, I->neg_lo & 1, a[e]); \
        input_bytes(w, I->s[1].index, e, I->neg_lo >> 1 & 1, b[e]); \
    }
    WMMA_LOOP(u32, Words, multiplied)
#undef READ_INPUTS
}
