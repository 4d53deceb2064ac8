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
    EACH_LANE row[l] = (u32)(pair(v[l], next[l]) >> shift) & mask;
}

/* Element e of an input register row, as float32. */
INLINE void input_row(const Wave *w, u32 index, int e, int type, int fnuz, float *row)
{
    u32 x[LANES];
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

/* The accumulators: `registers` rows of words. */
INLINE void addend_rows(const Wave *w, const Operand *addend, int registers, u32 *rows)
{
    for (int r = 0; r < registers; r++)
        if (addend->space == VECTOR)
            memcpy(rows + r * LANES, w->v[addend->index + (u32)r], sizeof(u32) * LANES);
        else
            spread(rows + r * LANES, scalar32(w, addend));
}

/* Where D's register r of lanes `first` and on is, and the first lanes of the block's A and B in every group. */
typedef struct {
    int row, block, source;
} Place;
INLINE Place mfma_place(const Instruction *I, int m, int r, int first)
{
    int cbsz = I->immediate & 15, abid = I->immediate >> 4, g = first / m;
    Place p = {.row = m == 32 ? 8 * (r % 16 / 4) + 4 * g + r % 4 : m == 16 ? 4 * g + r % 4 : r,
               .block = m == 32 ? r / 16 : m == 16 ? r / 4 : g};
    p.source = (p.block >> cbsz << cbsz) | abid;
    return p;
}

/* D[b] = C[b] + A[b] B[b] for `blocks` products of an m x k by a k x m matrix (LLVM: mfma MxMxK, blocks B).
 * A: lane l holds row l % m; B: column l % m; of block (l / m) % blocks, elements k = each * (l / m / blocks) + e.
 * C, D: a lane's column is l % m; m = 32: register r is row 8 (r % 16 / 4) + 4 (l / 32) + r % 4 of block r / 16;
 * m = 16: row 4 (l / 16) + r % 4 of block r / 4; m = 4: row r of block l / 4. EXEC is ignored.
 * cbsz (immediate, low 4 bits): of every 2^cbsz neighbouring blocks of A the one numbered abid (the bits above) is taken for all. */
#define MFMA_LOOP(MULTIPLY_ADD) \
    int registers = m * m * blocks / 64, groups = 64 / m / blocks, each = k / groups; \
    READ_INPUTS \
    addend_rows(w, &I->s[2], registers, (u32 *)c); \
    for (int r = 0; r < registers; r++) \
        for (int first = 0; first < 64; first += m) { /* m neighbouring lanes hold one row of D */ \
            Place p = mfma_place(I, m, r, first); \
            for (int group = 0; group < groups; group++) \
                for (int e = 0; e < each; e++) { \
                    int lane = (group * blocks + p.block) * m, source = (group * blocks + p.source) * m; \
                    for (int j = 0; j < m; j++) { MULTIPLY_ADD } \
                } \
        } \
    for (int r = 0; r < registers; r++) \
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof c[r]);

INLINE void mfma(Wave *w, const Instruction *I, int m, int k, int blocks, int type_a, int type_b)
{
    float a[32][64], b[32][64], c[64][64];
    int fnuz = k / (64 / m) < 32 && I->flags & FNUZ; /* other archs have instructions of 32 elements a lane */
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_row(w, I->s[0].index, e, type_a, fnuz, a[e]); \
        input_row(w, I->s[1].index, e, type_b, fnuz, b[e]); \
    }
    MFMA_LOOP(c[r][first + j] = fmaf(a[e][source + p.row], b[e][lane + j], c[r][first + j]);)
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
    addend_rows(w, &I->s[2], registers, c[0]);
    for (int r = 0; r < registers; r++)
        for (int first = 0; first < LANES; first += m) {
            int i = mfma_place(I, m, r, first).row;
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
    u32 a[16][64], b[16][64], c[64][64];
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_bits(w, I->s[0].index, e, 8, a[e]); \
        input_bits(w, I->s[1].index, e, 8, b[e]); \
    }
    MFMA_LOOP(c[r][first + j] += (u32)((i8)a[e][source + p.row] * (i8)b[e][lane + j]);)
#undef READ_INPUTS
}

/* 16x16x4 doubles: lane l holds A's row and B's column l % 16 of k = l / 16; D's pair r is row 4 r + l / 16 of column l % 16. */
INLINE void mfma_f64(Wave *w, const Instruction *I)
{
    const u32 *a = w->v[I->s[0].index], *b = w->v[I->s[1].index];
    u32 c[8][64];
    if (I->s[2].space == VECTOR)
        addend_rows(w, &I->s[2], 8, c[0]);
    else
        for (int r = 0; r < 8; r++)
            spread(c[r], (u32)(scalar64(w, &I->s[2]) >> (r % 2 ? 32 : 0)));
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < 64; l++) {
            double sum = as_f64(pair(c[2 * r][l], c[2 * r + 1][l]));
            for (int k = 0; k < 4; k++) {
                int i = 16 * k + 4 * r + l / 16, j = 16 * k + l % 16;
                sum = fma(as_f64(pair(a[i], a[i + LANES])), as_f64(pair(b[j], b[j + LANES])), sum);
            }
            c[2 * r][l] = (u32)bits_f64(sum);
            c[2 * r + 1][l] = (u32)(bits_f64(sum) >> 32);
        }
    for (int r = 0; r < 8; r++)
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof c[r]);
}

/* 16x16x16, 32 lanes. gfx11: lane l and lane l + 16 hold all of row (column) l % 16; D's register r is row 2 r + l / 16.
 * gfx12: lane l holds elements k = 8 (l / 16) + e; D's register r is row r + 8 (l / 16). */
#define WMMA_LOOP(ZERO, MULTIPLY_ADD) \
    u32 c[8][LANES]; \
    int gfx12 = I->flags & 1, each = gfx12 ? 8 : 16; \
    READ_INPUTS \
    addend_rows(w, &I->s[2], 8, c[0]); \
    for (int r = 0; r < 8; r++) \
        for (int l = 0; l < 32; l++) { \
            int row = gfx12 ? r + 8 * (l / 16) : 2 * r + l / 16, column = l % 16; \
            ZERO \
            for (int k = 0; k < 16; k++) { \
                int e = gfx12 ? k % 8 : k, from = gfx12 ? 16 * (k / 8) : 0; \
                MULTIPLY_ADD \
            }

#define WMMA_STORE \
    for (int r = 0; r < 8; r++) \
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof(u32) * 32);

INLINE void wmma(Wave *w, const Instruction *I, int type_a, int type_b)
{
    float a[16][LANES], b[16][LANES];
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_row(w, I->s[0].index, e, type_a, 0, a[e]); \
        input_row(w, I->s[1].index, e, type_b, 0, b[e]); \
    }
    WMMA_LOOP(float sum = as_f32(c[r][l]);, sum = fmaf(a[e][from + row], b[e][from + column], sum);)
            c[r][l] = bits_f32(sum);
        }
    WMMA_STORE
#undef READ_INPUTS
}

/* Bytes that neg_lo marks as signed, for A and for B; sums wrap. */
INLINE void wmma_i8(Wave *w, const Instruction *I)
{
    u32 a[16][LANES], b[16][LANES];
    int signed_a = I->neg_lo & 1, signed_b = I->neg_lo >> 1 & 1;
#define READ_INPUTS \
    for (int e = 0; e < each; e++) { \
        input_bits(w, I->s[0].index, e, 8, a[e]); \
        input_bits(w, I->s[1].index, e, 8, b[e]); \
    }
    WMMA_LOOP(u32 sum = c[r][l];
              , u32 x = a[e][from + row]; u32 y = b[e][from + column];
              sum += (signed_a ? (u32)(i8)x : x) * (signed_b ? (u32)(i8)y : y);)
            c[r][l] = sum;
        }
    WMMA_STORE
#undef READ_INPUTS
}
