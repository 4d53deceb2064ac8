/* Matrix instructions. Inputs become float32, products are added to the accumulator in order of k, each with one rounding
 * (fmaf): the hardware's own order of additions is not published. */

enum { IN_F32, IN_F16, IN_BF16 };

/* Element e of an input register row, as float32. */
INLINE void input_row(const Wave *w, u32 index, int e, int type, float *row)
{
    const u32 *v = w->v[index + (u32)(type == IN_F32 ? e : e / 2)];
    if (type == IN_F32)
        memcpy(row, v, sizeof(float) * LANES);
    else if (type == IN_F16)
        EACH_LANE row[l] = f32_of_f16(v[l] >> (16 * (e & 1)) & 0xffff);
    else
        EACH_LANE row[l] = f32_of_bf16(v[l] >> (16 * (e & 1)) & 0xffff);
}

/* D[b] = C[b] + A[b] B[b] for `blocks` products of an m x k by a k x m matrix (LLVM: mfma MxMxK, blocks B).
 * A: lane l holds row l % m; B: column l % m; of block (l / m) % blocks, elements k = each * (l / m / blocks) + e.
 * C, D: a lane's column is l % m; m = 32: register r is row 8 (r % 16 / 4) + 4 (l / 32) + r % 4 of block r / 16;
 * m = 16: row 4 (l / 16) + r % 4 of block r / 4; m = 4: row r of block l / 4. EXEC is ignored.
 * cbsz (immediate, low 4 bits): of every 2^cbsz neighbouring blocks of A the one numbered abid (the bits above) is taken for all. */
INLINE void mfma(Wave *w, const Instruction *I, int m, int k, int blocks, int type)
{
    float a[16][64], b[16][64], c[64][64];
    int cbsz = I->immediate & 15, abid = I->immediate >> 4;
    int registers = m * m * blocks / 64, groups = 64 / m / blocks, each = k / groups;
    for (int e = 0; e < each; e++) {
        input_row(w, I->s[0].index, e, type, a[e]);
        input_row(w, I->s[1].index, e, type, b[e]);
    }
    const Operand *addend = &I->s[2];
    for (int r = 0; r < registers; r++)
        if (addend->space == VECTOR)
            memcpy(c[r], w->v[addend->index + (u32)r], sizeof c[r]);
        else
            for (int l = 0; l < 64; l++)
                c[r][l] = as_f32(scalar32(w, addend));
    for (int r = 0; r < registers; r++)
        for (int first = 0; first < 64; first += m) { /* m neighbouring lanes hold one row of D */
            int g = first / m, row = m == 32 ? 8 * (r % 16 / 4) + 4 * g + r % 4 : m == 16 ? 4 * g + r % 4 : r;
            int block = m == 32 ? r / 16 : m == 16 ? r / 4 : g;
            for (int group = 0; group < groups; group++) {
                int lane = (group * blocks + block) * m; /* of the block's first row or column */
                int source = (group * blocks + ((block >> cbsz << cbsz) | abid)) * m;
                for (int e = 0; e < each; e++) {
                    float x = a[e][source + row];
                    for (int j = 0; j < m; j++)
                        c[r][first + j] = fmaf(x, b[e][lane + j], c[r][first + j]);
                }
            }
        }
    for (int r = 0; r < registers; r++)
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof c[r]);
}

/* 16x16x16 with a float32 accumulator, 32 lanes. gfx11: lane l and lane l + 16 hold all of row (column) l % 16; D's register r is row
 * 2 r + l / 16. gfx12: lane l holds elements k = 8 (l / 16) + e; D's register r is row r + 8 (l / 16). */
INLINE void wmma(Wave *w, const Instruction *I, int type, int gfx12)
{
    float a[16][LANES], b[16][LANES], c[8][LANES];
    int each = gfx12 ? 8 : 16;
    for (int e = 0; e < each; e++) {
        input_row(w, I->s[0].index, e, type, a[e]);
        input_row(w, I->s[1].index, e, type, b[e]);
    }
    for (int r = 0; r < 8; r++)
        for (int l = 0; l < 32; l++) {
            const Operand *addend = &I->s[2];
            float sum = as_f32(addend->space == VECTOR ? w->v[addend->index + (u32)r][l] : scalar32(w, addend));
            int row = gfx12 ? r + 8 * (l / 16) : 2 * r + l / 16, column = l % 16;
            for (int k = 0; k < 16; k++) {
                int e = gfx12 ? k % 8 : k, from = gfx12 ? 16 * (k / 8) : 0;
                sum = fmaf(a[e][from + row], b[e][from + column], sum);
            }
            c[r][l] = sum;
        }
    for (int r = 0; r < 8; r++)
        memcpy(w->v[I->d.index + (u32)r], c[r], sizeof(u32) * 32);
}
