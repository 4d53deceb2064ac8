/* Moving elements between memory and the lanes of register rows, 16 lanes at a time where that can be. */

enum { ZERO_EXTEND, SIGN_EXTEND, D16_LOW, D16_HIGH, D16_LOW_SIGNED, D16_HIGH_SIGNED }; /* how less than a word is loaded; D16_HIGH also: stored */

INLINE int is_low(int extend) { return extend == D16_LOW || extend == D16_LOW_SIGNED; }
INLINE int is_high(int extend) { return extend == D16_HIGH || extend == D16_HIGH_SIGNED; }

/* Move `words` elements of `bytes` between memory and a lane of a register row. */
INLINE void move_lane(u8 *at, u32 *row, int l, int direction, int bytes, int words, int extend)
{
    if (direction == STORE) {
        for (int j = 0; j < words; j++) {
            u32 x = row[j * LANES + l] >> (extend == D16_HIGH ? 16 : 0);
            memcpy(at + bytes * j, &x, (size_t)bytes);
        }
    } else {
        for (int j = 0; j < words; j++) {
            u32 x = 0, old = row[j * LANES + l];
            memcpy(&x, at + bytes * j, (size_t)bytes);
            if (extend == SIGN_EXTEND)
                x = bytes == 1 ? (u32)(i32)(i8)x : bytes == 2 ? (u32)(i32)(i16)x : x;
            if (extend == D16_LOW_SIGNED || extend == D16_HIGH_SIGNED)
                x = (u16)(i16)(i8)x;
            row[j * LANES + l] = is_low(extend) ? (old & 0xffff0000) | x : is_high(extend) ? (old & 0xffff) | x << 16 : x;
        }
    }
}

/* Four lanes with four words each, to or from four rows: a transposition in vector registers. */
typedef u32 Quad __attribute__((vector_size(16), aligned(1), may_alias));
#ifdef __clang__
#define MIXED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIXED(a, b, ...) __builtin_shuffle(a, b, (Quad){__VA_ARGS__})
#endif
INLINE void transpose(Quad *q)
{
    Quad a = MIXED(q[0], q[1], 0, 4, 1, 5), b = MIXED(q[2], q[3], 0, 4, 1, 5);
    Quad c = MIXED(q[0], q[1], 2, 6, 3, 7), d = MIXED(q[2], q[3], 2, 6, 3, 7);
    q[0] = MIXED(a, b, 0, 1, 4, 5), q[1] = MIXED(a, b, 2, 3, 6, 7);
    q[2] = MIXED(c, d, 0, 1, 4, 5), q[3] = MIXED(c, d, 2, 3, 6, 7);
}
INLINE void move_four(u8 *memory, const u32 *offsets, u32 *row, int direction)
{
    Quad q[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
        q[i] = direction == LOAD ? *(const Quad *)(memory + offsets[i]) : *(const Quad *)(row + i * LANES);
    transpose(q);
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
        *(Quad *)(direction == LOAD ? row + i * LANES : (u32 *)(void *)(memory + offsets[i])) = q[i];
}

/* 16 neighbouring lanes. Compilers split the operations for processors with shorter vectors. */
typedef u32 Words __attribute__((vector_size(64), aligned(4), may_alias));
typedef i32 SignedWords __attribute__((vector_size(64)));
typedef u16 Shorts __attribute__((vector_size(32)));
typedef u8 Bytes __attribute__((vector_size(16)));

/* Whether the elements of every 16 neighbouring lanes are neighbours in memory, as in most accesses. */
INLINE int in_runs(const u32 *offsets, u32 size)
{
    const Words steps = (Words){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * size;
    Words wrong = {0};
    for (int l = 0; l < LANES; l += 16)
        wrong |= (*(const Words *)(offsets + l) - offsets[l]) ^ steps;
    return !nonzero16((const u32 *)&wrong);
}

/* 16 elements of one, two or four bytes. */
INLINE void move_run(u8 *at, u32 *row, int direction, int bytes, int extend)
{
    Words x = *(const Words *)row, old = x;
    Shorts shorts;
    Bytes narrow;
    if (direction == STORE) {
        x = extend == D16_HIGH ? x >> 16 : x;
        shorts = __builtin_convertvector(x, Shorts), narrow = __builtin_convertvector(x, Bytes);
        memcpy(at, bytes == 4 ? (void *)&x : bytes == 2 ? (void *)&shorts : (void *)&narrow, 16 * (size_t)bytes);
        return;
    }
    memcpy(bytes == 4 ? (void *)&x : bytes == 2 ? (void *)&shorts : (void *)&narrow, at, 16 * (size_t)bytes);
    x = bytes == 4 ? x : bytes == 2 ? __builtin_convertvector(shorts, Words) : __builtin_convertvector(narrow, Words);
    if (extend == SIGN_EXTEND || extend == D16_LOW_SIGNED || extend == D16_HIGH_SIGNED)
        x = (Words)((SignedWords)(x << (32 - 8 * bytes)) >> (32 - 8 * bytes));
    if (is_low(extend))
        x = (old & 0xffff0000) | (x & 0xffff);
    if (is_high(extend))
        x = (old & 0xffff) | x << 16;
    *(Words *)row = x;
}

/* Active lanes, each with `words` elements at its offset in memory. Of stores to one place the highest lane's wins. */
INLINE void move_lanes(u8 *memory, const u32 *offsets, u32 *row, u64 exec, int direction, int bytes, int words, int extend)
{
    if (!LIKELY(exec == FULL))
        ACTIVE_LANES(exec) { move_lane(memory + offsets[LANE], row, LANE, direction, bytes, words, extend); }
    else if (bytes * words == 16)
        for (int l = 0; l < LANES; l += 4)
            move_four(memory, offsets + l, row + l, direction);
    else if (words == 1 && LIKELY(in_runs(offsets, (u32)bytes)))
        for (int l = 0; l < LANES; l += 16)
            move_run(memory + offsets[l], row + l, direction, bytes, extend);
    else
        EACH_LANE move_lane(memory + offsets[l], row, l, direction, bytes, words, extend);
}
