/* Instructions that move data between lanes, and atomics: called by name from the instruction table. */

static void read_first_lane(Wave *w, const Instruction *I)
{
    int l = EXEC ? __builtin_ctzll(EXEC) : 0;
    put_scalar32(w, &I->d, I->s[0].space == VECTOR ? w->v[I->s[0].index][l] : scalar32(w, &I->s[0]));
}

static void read_lane(Wave *w, const Instruction *I)
{
    put_scalar32(w, &I->d, w->v[I->s[0].index][scalar32(w, &I->s[1]) & (LANES - 1)]);
}

static void write_lane(Wave *w, const Instruction *I)
{
    w->v[I->d.index][scalar32(w, &I->s[1]) & (LANES - 1)] = scalar32(w, &I->s[0]);
}

/* s0: byte address of the lane to read, s1: data. Lanes that are off give zero. */
static void backward_permute(Wave *w, const Instruction *I)
{
    const u32 *address = w->v[I->s[0].index], *data = w->v[I->s[1].index];
    u32 r[LANES];
    u64 exec = EXEC;
    EACH_LANE
    {
        u32 from = ((address[l] + (u32)I->offset) >> 2) & (LANES - 1);
        r[l] = exec >> from & 1 ? data[from] : 0;
    }
    put_row(w, I, r, 1);
}

/* s0: byte address of the lane to write, s1: data. The highest lane wins; lanes that are not written get zero. */
static void forward_permute(Wave *w, const Instruction *I)
{
    const u32 *address = w->v[I->s[0].index], *data = w->v[I->s[1].index];
    u32 r[LANES] = {0};
    ACTIVE_LANES(EXEC) { r[((address[LANE] + (u32)I->offset) >> 2) & (LANES - 1)] = data[LANE]; }
    put_row(w, I, r, 1);
}

/* Each lane reads lane select(l % 16) of its own row of 16, or of the row's neighbour. op_sel: fetch inactive, bound_ctrl. */
/* hwreg(HW_REG_MODE, 23, 1), the only field that the binder accepts. */
INLINE void set_mode(Wave *w, const Instruction *I, u32 value)
{
    (void)I;
    w->mode = value & 1 ? w->mode | MODE_FP16_OVFL : w->mode & ~(u32)MODE_FP16_OVFL;
}

INLINE void permute_rows(Wave *w, const Instruction *I, int other_row)
{
    const u32 *data = w->v[I->s[0].index], *old = w->v[I->d.index];
    u64 select = pair(scalar32(w, &I->s[1]), scalar32(w, &I->s[2])), exec = EXEC;
    u32 r[LANES];
    EACH_LANE
    {
        int from = ((l & ~15) ^ (other_row ? 16 : 0)) + (int)(select >> (4 * (l & 15)) & 15);
        r[l] = (exec >> from & 1) || (I->op_sel & 1) ? data[from] : I->op_sel & 2 ? 0 : old[l];
    }
    put_row(w, I, r, 1);
}

static void swap_registers(Wave *w, const Instruction *I)
{
    u32 *a = w->v[I->d.index], *b = w->v[I->s[0].index], x[LANES], y[LANES];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    blend(a, y, EXEC);
    blend(b, x, EXEC);
}

static void swap_halves(Wave *w, const Instruction *I)
{
    u32 *a = w->v[I->d.index], *b = w->v[I->s[0].index], i = 16 * I->d.half, j = 16 * I->s[0].half;
    ACTIVE_LANES(EXEC)
    {
        u32 x = a[LANE] >> i & 0xffff, y = b[LANE] >> j & 0xffff;
        a[LANE] = (a[LANE] & ~(0xffffu << i)) | y << i;
        b[LANE] = (b[LANE] & ~(0xffffu << j)) | x << j;
    }
}

/* Each lane reads the lane that its pattern names; lanes that are off give zero. */
static void swizzle(Wave *w, const Instruction *I)
{
    const u32 *data = w->v[I->s[0].index];
    u32 r[LANES];
    u64 exec = EXEC;
    EACH_LANE r[l] = exec >> I->dpp_lane[l] & 1 ? data[I->dpp_lane[l]] : 0;
    put_row(w, I, r, 1);
}

/* Odd rows of `width` lanes of the destination are exchanged with even rows of the source. */
INLINE void swap_rows(Wave *w, const Instruction *I, int width)
{
    u32 *a = w->v[I->d.index], *b = w->v[I->s[0].index];
    for (int row = 0; row < LANES; row += 2 * width)
        for (int l = row; l < row + width; l++) {
            u32 x = a[l + width];
            a[l + width] = b[l];
            b[l] = x;
        }
}

/* Two words of two pairs: op_sel selects the word of each source. */
static void pack_move(Wave *w, const Instruction *I)
{
    u32 a[2 * LANES], b[2 * LANES], r[2 * LANES];
    const u32 *p = source(w, I, 0, 0, 1, a), *q = source(w, I, 1, 0, 1, b);
    memcpy(r, p + (I->op_sel & 1 ? LANES : 0), sizeof(u32) * LANES);
    memcpy(r + LANES, q + (I->op_sel & 2 ? LANES : 0), sizeof(u32) * LANES);
    put_row(w, I, r, 2);
}

/* gfx950: 16 neighbouring lanes load 8 bytes each, rows of 16 elements of 4, 8 or 16 bits, and get a column of the tile each. All lanes
 * have to be on: what those that are off contribute is not defined. */
INLINE void lds_load_transposed(Wave *w, const Instruction *I, int bits)
{
    u64 loaded[LANES];
    u32 r[2 * LANES] = {0};
    if (EXEC != FULL) {
        fault(w, FAULT_TRANSPOSED, (u32)__builtin_ctzll(~EXEC), 0, 0);
        return;
    }
    EACH_LANE
    {
        u8 *at = shared(w, I, local_address(w->v[I->s[0].index][l], (u64)I->offset), 8, l, LOAD);
        if (!at)
            return;
        memcpy(&loaded[l], at, 8);
    }
    EACH_LANE
    {
        int group = l & ~15, i = l & 15, each = 64 / bits; /* elements of a lane */
        u64 column = 0;
        for (int j = 0; j < each; j++)
            column |= (loaded[group + 16 / each * j + i / each] >> (i % each * bits) & ((1u << bits) - 1)) << (bits * j);
        r[l] = (u32)column;
        r[l + LANES] = (u32)(column >> 32);
    }
    put_row(w, I, r, 2);
}

/* ---- atomics. `now` is memory's value, `with` the operand; both words for 64 bits ---- */

enum {
    ADD, SUB, RSUB, SWAP, CMPSWAP, AND, OR, XOR, UMIN, UMAX, SMIN, SMAX, INC, DEC, SUB_CLAMP, COND_SUB,
    ADD_F32, MIN_F32, MAX_F32, MIN_NUM_F32, MAX_NUM_F32, ADD_PK_F16, ADD_PK_BF16,
    ADD_F64, MIN_F64, MAX_F64, MIN_NUM_F64, MAX_NUM_F64
};

INLINE u32 atomic_word(int operation, u32 now, u32 with, u32 compare)
{
    switch (operation) {
    case ADD: return now + with;
    case SUB: return now - with;
    case SWAP: return with;
    case CMPSWAP: return now == compare ? with : now;
    case AND: return now & with;
    case OR: return now | with;
    case XOR: return now ^ with;
    case UMIN: return now < with ? now : with;
    case UMAX: return now > with ? now : with;
    case SMIN: return (i32)now < (i32)with ? now : with;
    case SMAX: return (i32)now > (i32)with ? now : with;
    case RSUB: return with - now;
    case INC: return now >= with ? 0 : now + 1;
    case DEC: return now == 0 || now > with ? with : now - 1;
    case SUB_CLAMP: return now >= with ? now - with : 0;
    case COND_SUB: return now >= with ? now - with : now;
    case ADD_F32: return bits_f32(as_f32(now) + as_f32(with));
    case MAX_NUM_F32: return bits_f32(max_num_f32(as_f32(now), as_f32(with)));
    case MIN_NUM_F32: return bits_f32(min_num_f32(as_f32(now), as_f32(with)));
    case MAX_F32: return bits_f32(max_f32(as_f32(now), as_f32(with)));
    case MIN_F32: return bits_f32(min_f32(as_f32(now), as_f32(with)));
    case ADD_PK_F16:
        return f16_of_f32(f32_of_f16(now & 0xffff) + f32_of_f16(with & 0xffff)) |
               f16_of_f32(f32_of_f16(now >> 16) + f32_of_f16(with >> 16)) << 16;
    default:
        return bf16_of_f32(f32_of_bf16(now & 0xffff) + f32_of_bf16(with & 0xffff)) |
               bf16_of_f32(f32_of_bf16(now >> 16) + f32_of_bf16(with >> 16)) << 16;
    }
}

INLINE u64 atomic_pair(int operation, u64 now, u64 with, u64 compare)
{
    switch (operation) {
    case ADD: return now + with;
    case SWAP: return with;
    case CMPSWAP: return now == compare ? with : now;
    case SUB: return now - with;
    case AND: return now & with;
    case OR: return now | with;
    case UMIN: return now < with ? now : with;
    case UMAX: return now > with ? now : with;
    case SMIN: return (i64)now < (i64)with ? now : with;
    case SMAX: return (i64)now > (i64)with ? now : with;
    case RSUB: return with - now;
    case INC: return now >= with ? 0 : now + 1;
    case DEC: return now == 0 || now > with ? with : now - 1;
    case ADD_F64: return bits_f64(as_f64(now) + as_f64(with));
    case MAX_F64: return bits_f64(max_f64(as_f64(now), as_f64(with)));
    case MIN_F64: return bits_f64(min_f64(as_f64(now), as_f64(with)));
    case MAX_NUM_F64: return bits_f64(max_num_f64(as_f64(now), as_f64(with)));
    case MIN_NUM_F64: return bits_f64(min_num_f64(as_f64(now), as_f64(with)));
    default: return now ^ with;
    }
}

/* One lane's atomic on `at`; waves of other workgroups may run on other cores. Returns the value before. */
INLINE u64 atomic_lane(u8 *at, int operation, int words, u64 with, u64 compare)
{
    if (words == 2) {
        u64 now = __atomic_load_n((u64 *)(void *)at, __ATOMIC_SEQ_CST), next;
        do
            next = atomic_pair(operation, now, with, compare);
        while (!__atomic_compare_exchange_n((u64 *)(void *)at, &now, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
        return now;
    }
    u32 now = __atomic_load_n((u32 *)(void *)at, __ATOMIC_SEQ_CST), next;
    do
        next = atomic_word(operation, now, (u32)with, (u32)compare);
    while (!__atomic_compare_exchange_n((u32 *)(void *)at, &now, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return now;
}

enum { RETURNS = 1 }; /* Instruction.flags */
enum { NOT_LDS, OF_LDS, COMPARES_FIRST };

/* s0: address, s1: data (then the value to compare with), s2: scalar base or nothing. `lds`: addresses are LDS bytes; there
 * the new value and the one to compare with are in s1 and s2, or before gfx11 in s2 and s1. */
INLINE void atomic_access(Wave *w, const Instruction *I, int operation, int words, int lds)
{
    u32 r[2 * LANES] = {0};
    int compares = operation == CMPSWAP;
    const u32 *first = w->v[I->s[1].index], *second = first + words * LANES;
    if (lds && compares)
        second = w->v[I->s[2].index];
    if (lds == COMPARES_FIRST)
        second = first, first = w->v[I->s[2].index];
    u64 exec = EXEC;
    ACTIVE_LANES(exec)
    {
        int l = LANE;
        u64 a = lds ? local_address(w->v[I->s[0].index][l], (u64)I->offset) : flat_address(w, I, l), bytes = 4 * (u64)words;
        u8 *at = lds ? shared(w, I, a, bytes, l, ATOMIC) : global(w, I, a, bytes, l, ATOMIC);
        if (at && a % bytes)
            fault(w, FAULT_MISALIGNED, (u32)l, a, bytes);
        if (!at || a % bytes)
            return;
        u64 with = words == 2 ? pair(first[l], first[l + LANES]) : first[l];
        u64 compare = !compares ? 0 : words == 2 ? pair(second[l], second[l + LANES]) : second[l];
        u64 before = returned(w, atomic_lane(at, operation, words, with, compare));
        r[l] = (u32)before;
        r[l + LANES] = (u32)(before >> 32);
    }
    if (I->flags & RETURNS)
        for (int j = 0; j < words; j++)
            blend(w->v[I->d.index + (u32)j], r + j * LANES, exec);
}

/* Atomics on an untyped buffer: s0 offset, s1 data (with RETURNS replaced by the old value), s2 resource, s3 scalar offset. Lanes
 * that are out of range do nothing and return zero. */
INLINE void buffer_atomic(Wave *w, const Instruction *I, int operation, int words)
{
    const u32 *r = &w->s[I->s[2].index];
    u32 old[2 * LANES] = {0}, *data = w->v[I->s[1].index];
    u64 base = pair(r[0], r[1]) & 0xffffffffffffull, exec = EXEC, bytes = 4 * (u64)words;
    u32 soffset = scalar32(w, &I->s[3]);
    if (!valid_resource(w, I, r))
        return;
    ACTIVE_LANES(exec)
    {
        int l = LANE;
        u64 offset = (u32)I->offset + (I->addressing & OFFEN ? w->v[I->s[0].index][l] : 0), a = base + soffset + (u32)offset;
        if (!in_range(I, r, (u32)offset + (u64)soffset, bytes))
            continue;
        u8 *at = global(w, I, a, bytes, l, ATOMIC);
        if (at && a % bytes)
            fault(w, FAULT_MISALIGNED, (u32)l, a, bytes);
        if (!at || a % bytes)
            return;
        const u32 *second = data + words * LANES;
        u64 with = words == 2 ? pair(data[l], data[l + LANES]) : data[l];
        u64 compare = operation != CMPSWAP ? 0 : words == 2 ? pair(second[l], second[l + LANES]) : second[l];
        u64 before = returned(w, atomic_lane(at, operation, words, with, compare));
        old[l] = (u32)before;
        old[l + LANES] = (u32)(before >> 32);
    }
    if (I->flags & RETURNS)
        for (int j = 0; j < words; j++)
            blend(data + j * LANES, old + j * LANES, exec);
}
