/* Loads, stores and atomics. Every access is checked: global ones against the launch's buffers, LDS and scratch against
 * their sizes. Sizes are compile-time constants where these are used. */

#ifndef SHADOWED /* no variant that redirects accesses or changes what an atomic returns */
INLINE u8 *reached(Wave *w, int space, int kind, u8 *at) { return (void)w, (void)space, (void)kind, at; }
INLINE u64 returned(Wave *w, u64 before) { return (void)w, before; }
#endif

/* global, shared and private_ are the only functions that access memory: each checks an access, then shows it to the variant's observer. */

INLINE u8 *host_pointer(const Range *r, u64 address) { return (u8 *)(uintptr_t)(address + r->to_host); }

SLOW static u8 *global_slow(Wave *w, u64 address, u64 bytes, int lane, int write)
{
    for (u32 i = 0; i < w->range_count; i++) {
        const Range *r = &w->ranges[i];
        if (address >= r->low && address < r->high && bytes <= r->high - address && (!write || r->writable)) {
            w->hint = i;
            return host_pointer(r, address);
        }
    }
    fault(w, write ? FAULT_GLOBAL_WRITE : FAULT_GLOBAL_READ, (u32)lane, address, bytes);
    return NULL;
}

INLINE u8 *global(Wave *w, const Instruction *I, u64 address, u64 bytes, int lane, int kind)
{
    const Range *r = &w->ranges[w->hint];
    int write = kind != LOAD;
    u8 *at = host_pointer(r, address);
    if (!LIKELY(address >= r->low && address < r->high && bytes <= r->high - address && (!write || r->writable)))
        at = global_slow(w, address, bytes, lane, write);
    if (!LIKELY(at != NULL))
        return at;
    observe(w, I, IN_GLOBAL, kind, lane, address, bytes);
    return reached(w, IN_GLOBAL, kind, at);
}

INLINE u8 *shared(Wave *w, const Instruction *I, u64 address, u64 bytes, int lane, int kind)
{
    if (LIKELY(address + bytes <= w->lds_bytes)) {
        observe(w, I, IN_LDS, kind, lane, address, bytes);
        return reached(w, IN_LDS, kind, w->lds + address);
    }
    fault(w, FAULT_LDS, (u32)lane, address, bytes);
    return NULL;
}

INLINE u8 *private_(Wave *w, const Instruction *I, u64 offset, u64 bytes, int lane, int kind)
{
    if (LIKELY(offset < w->scratch_bytes && bytes <= w->scratch_bytes - offset)) {
        observe(w, I, IN_SCRATCH, kind, lane, offset, bytes);
        return w->scratch + (u64)lane * w->scratch_bytes + offset;
    }
    fault(w, FAULT_SCRATCH, (u32)lane, offset, bytes);
    return NULL;
}

INLINE u64 flat_address(const Wave *w, const Instruction *I, int l)
{
    const Operand *va = &I->s[0], *sa = &I->s[2];
    if (sa->space == NOWHERE)
        return pair(w->v[va->index][l], w->v[va->index + 1][l]) + (u64)I->offset;
    return scalar64(w, sa) + (va->space == VECTOR ? w->v[va->index][l] : 0) + (u64)I->offset;
}

/* Whether one buffer has every address, as of most launches' accesses; then the access is shown to the observer, unless it wants it lane by
 * lane. Returns memory, and where in it the lanes' addresses are; or NULL. They are less than 2 GiB apart: in_runs adds to offsets. */
INLINE u8 *reach_all(Wave *w, const Instruction *I, const u64 *a, u64 exec, u64 bytes, int kind, u32 *offsets)
{
    u64 low = ~(u64)0, high = 0;
    if (LIKELY(exec == FULL))
        EACH_LANE low = a[l] < low ? a[l] : low, high = a[l] > high ? a[l] : high;
    else
        ACTIVE_LANES(exec) { low = a[LANE] < low ? a[LANE] : low, high = a[LANE] > high ? a[LANE] : high; }
    for (int again = 0; exec && again < 2; again++) {
        const Range *r = &w->ranges[w->hint];
        if (LIKELY(low >= r->low && high < r->high && bytes <= r->high - high && (kind == LOAD || r->writable))) {
            EACH_LANE offsets[l] = (u32)(a[l] - low);
            return high - low < 1u << 31 && observe_global(w, I, kind, a, exec, bytes) ? host_pointer(r, low) : NULL;
        }
        for (u32 i = 0; i < w->range_count; i++)
            if (low >= w->ranges[i].low && low < w->ranges[i].high) {
                w->hint = i;
                break;
            }
    }
    return NULL;
}

/* The same for LDS, with `count` accesses of each lane. */
INLINE int reach_all_local(Wave *w, const Instruction *I, const u32 (*a)[LANES], int count, u64 exec, u64 bytes, int kind)
{
    u64 high = 0;
    for (int i = 0; i < count; i++) {
        u32 most = 0;
        if (LIKELY(exec == FULL))
            EACH_LANE most = a[i][l] > most ? a[i][l] : most;
        else
            ACTIVE_LANES(exec) { most = a[i][LANE] > most ? a[i][LANE] : most; }
        high = most > high ? most : high;
    }
    return LIKELY(high + bytes <= w->lds_bytes) && observe_local(w, I, kind, a, count, exec, bytes);
}

/* s0: address, s1: data of stores, s2: scalar base or nothing. */
INLINE void global_access(Wave *w, const Instruction *I, int direction, int bytes, int words, int extend)
{
    u32 *row = w->v[direction == STORE ? I->s[1].index : I->d.index];
    const u32 *low = w->v[I->s[0].space == VECTOR ? I->s[0].index : 0];
    u64 base = (u64)I->offset + (I->s[2].space == NOWHERE ? 0 : scalar64(w, &I->s[2]));
    u64 a[LANES], exec = EXEC, size = (u64)(bytes * words); /* a load may overwrite the registers that hold its addresses */
    if (I->s[2].space == NOWHERE)
        EACH_LANE a[l] = base + pair(low[l], low[l + LANES]);
    else if (I->s[0].space == VECTOR)
        EACH_LANE a[l] = base + low[l];
    else
        EACH_LANE a[l] = base;
    u32 offsets[LANES];
    u8 *memory = reach_all(w, I, a, exec, size, direction, offsets);
    if (LIKELY(memory != NULL)) {
        move_lanes(memory, offsets, row, exec, direction, bytes, words, extend);
        return;
    }
    ACTIVE_LANES(exec)
    {
        int l = LANE;
        u8 *at = global(w, I, a[l], size, l, direction);
        if (!at)
            return;
        move_lane(at, row, l, direction, bytes, words, extend);
    }
}

/* LDS addresses have 32 bits: compilers fold an offset into an instruction whatever the sign of the rest (LLVM: isDSOffsetLegal). */
INLINE u64 local_address(u32 base, u64 offset) { return (u32)(base + offset); }

/* Loads from global memory to LDS: lane l's bytes go to M0 plus the offset, which counts for both addresses, plus l times the size. */
INLINE void global_to_lds(Wave *w, const Instruction *I, int bytes)
{
    ACTIVE_LANES(EXEC)
    {
        int l = LANE;
        u8 *from = global(w, I, flat_address(w, I, l), (u64)bytes, l, LOAD);
        u8 *to = from ? shared(w, I, local_address(w->s[M0], (u64)I->offset + (u64)(bytes * l)), (u64)bytes, l, STORE) : NULL;
        if (!to)
            return;
        memcpy(to, from, (size_t)bytes);
    }
}

INLINE void scratch_access(Wave *w, const Instruction *I, int direction, int bytes, int words, int extend)
{
    u32 *row = w->v[direction == STORE ? I->s[1].index : I->d.index], addresses[LANES];
    const Operand *va = &I->s[0], *sa = &I->s[2];
    if (va->space == VECTOR)
        memcpy(addresses, w->v[va->index], sizeof addresses);
    ACTIVE_LANES(EXEC)
    {
        int l = LANE;
        u64 offset = (u64)I->offset + (va->space == VECTOR ? addresses[l] : 0) + (sa->space == NOWHERE ? 0 : scalar32(w, sa));
        u8 *at = private_(w, I, offset, (u64)(bytes * words), l, direction);
        if (!at)
            return;
        move_lane(at, row, l, direction, bytes, words, extend);
    }
}

/* Resources of untyped buffers: base address, stride and swizzling (word 1 from bit 16 on), size, and word 3. Supported: stride 0, no
 * swizzling; or the private segment's, known by its tag. Instruction.addressing has the generation, by which word 3 differs:
 * gfx9 has formats in bits 12 to 18 and no more; gfx10 a format there, RESOURCE_LEVEL (24), which has to be set, and OOB_SELECT (28, 29);
 * gfx11 and later a format of 6 bits, and OOB_SELECT. Bits 0 to 11 (components), 21 and 22 (swizzling), 26 and 27 (caches) change nothing. */
enum { OFFEN = 1, IDXEN = 2, RULES = 2, RULES_GFX10 = 1, ADD_TID = 1 << 23, STRUCTURED = 0, INDEX_ONLY, NO_CHECK, RAW };
static const struct {
    u32 clear, set, format; /* bits that have to be clear, set, and not all clear */
} resource_words[] = {{0xf7000000, 0, 0x78000}, {0xc2180000, 1 << 24, 0x7f000}, {0xc0000000, 0, 0x3f000}};

INLINE int valid_resource(Wave *w, const Instruction *I, const u32 *r)
{
    u32 rules = I->addressing >> RULES, word = r[3];
    u64 base = pair(r[0], r[1]) & 0xffffffffffffull;
    if (r[1] >> 16 || I->addressing & IDXEN || word & ADD_TID)
        fault(w, FAULT_RESOURCE, 0, base, r[1]);
    else if (word & resource_words[rules].clear || ~word & resource_words[rules].set || !(word & resource_words[rules].format))
        fault(w, FAULT_DESCRIPTOR, 0, base, word);
    else
        return 1;
    return 0;
}

/* Whether bytes from an offset on are in range. With OOB_SELECT "structured" the offset has to be less than the stride, which is 0. */
INLINE int in_range(const Instruction *I, const u32 *r, u64 offset, u64 bytes)
{
    u32 rules = I->addressing >> RULES, select = rules ? r[3] >> 28 & 3 : RAW;
    if (LIKELY(select == RAW))
        return offset + (rules == RULES_GFX10 ? 1 : bytes) <= r[2];
    return select != STRUCTURED && r[2];
}

/* s0: offset, s1: data of stores, s2: four words of resource, s3: scalar offset. Out of range: loads give 0, stores do nothing. */
INLINE void buffer_access(Wave *w, const Instruction *I, int direction, int bytes, int words, int extend)
{
    const u32 *r = &w->s[I->s[2].index];
    u32 *row = w->v[direction == STORE ? I->s[1].index : I->d.index], offsets[LANES];
    u64 base = pair(r[0], r[1]) & 0xffffffffffffull;
    u32 soffset = scalar32(w, &I->s[3]);
    /* the private segment interleaves lanes, so its base and scalar offset count every lane's bytes */
    u64 private_segment = r[3] & ADD_TID, frame = base + soffset - w->scratch_base;
    if (private_segment && (frame % LANES || I->addressing & IDXEN))
        fault(w, FAULT_RESOURCE, 0, base, r[1]);
    if (w->state == FAULT || (!private_segment && !valid_resource(w, I, r)))
        return;
    if (I->addressing & OFFEN)
        memcpy(offsets, w->v[I->s[0].index], sizeof offsets);
    ACTIVE_LANES(EXEC)
    {
        int l = LANE;
        u32 offset = (u32)I->offset + (I->addressing & OFFEN ? offsets[l] : 0);
        for (int j = 0; j < words; j++) {
            u64 o = (u64)offset + (u64)(bytes * j);
            u8 *at;
            if (private_segment)
                at = private_(w, I, frame / LANES + o, (u64)bytes, l, direction);
            else if (!in_range(I, r, o + soffset, (u64)bytes)) {
                if (direction == LOAD) {
                    u32 old = row[j * LANES + l];
                    row[j * LANES + l] = is_low(extend) ? old & 0xffff0000 : is_high(extend) ? old & 0xffff : 0;
                }
                continue;
            } else
                at = global(w, I, base + soffset + o, (u64)bytes, l, direction);
            if (!at)
                return;
            move_lane(at, row + j * LANES, l, direction, bytes, 1, extend);
        }
    }
}

INLINE void lds_access(Wave *w, const Instruction *I, int direction, int bytes, int words, int extend)
{
    u32 *row = w->v[direction == STORE ? I->s[1].index : I->d.index];
    const u32 *base = w->v[I->s[0].index];
    u32 a[1][LANES]; /* a load may overwrite the register that holds its addresses */
    u64 exec = EXEC, size = (u64)(bytes * words);
    EACH_LANE a[0][l] = (u32)local_address(base[l], (u64)I->offset);
    if (LIKELY(reach_all_local(w, I, a, 1, exec, size, direction))) {
        move_lanes(w->lds, a[0], row, exec, direction, bytes, words, extend);
        return;
    }
    ACTIVE_LANES(exec)
    {
        int l = LANE;
        u8 *at = shared(w, I, a[0][l], size, l, direction);
        if (!at)
            return;
        move_lane(at, row, l, direction, bytes, words, extend);
    }
}

/* Two elements of `words` words at offsets in units of an element, or of 64 elements. */
INLINE void lds_access2(Wave *w, const Instruction *I, int direction, int words, int unit)
{
    u32 a[2][LANES], *second = w->v[direction == STORE ? I->s[2].index : I->d.index + (u32)words];
    u32 *first = w->v[direction == STORE ? I->s[1].index : I->d.index];
    const u32 *base = w->v[I->s[0].index];
    u64 exec = EXEC, bytes = 4 * (u64)words, o0 = (u64)I->offset0 * bytes * (u64)unit, o1 = (u64)I->offset1 * bytes * (u64)unit;
    EACH_LANE a[0][l] = (u32)local_address(base[l], o0);
    EACH_LANE a[1][l] = (u32)local_address(base[l], o1);
    if (LIKELY(reach_all_local(w, I, a, 2, exec, bytes, direction))) {
        if (direction == LOAD) {
            move_lanes(w->lds, a[0], first, exec, LOAD, 4, words, ZERO_EXTEND);
            move_lanes(w->lds, a[1], second, exec, LOAD, 4, words, ZERO_EXTEND);
        } else
            ACTIVE_LANES(exec)
            {
                move_lane(w->lds + a[0][LANE], first, LANE, STORE, 4, words, ZERO_EXTEND);
                move_lane(w->lds + a[1][LANE], second, LANE, STORE, 4, words, ZERO_EXTEND);
            }
        return;
    }
    ACTIVE_LANES(exec)
    {
        int l = LANE;
        u8 *x = shared(w, I, a[0][l], bytes, l, direction), *y = shared(w, I, a[1][l], bytes, l, direction);
        if (!x || !y)
            return;
        move_lane(x, first, l, direction, 4, words, ZERO_EXTEND);
        move_lane(y, second, l, direction, 4, words, ZERO_EXTEND);
    }
}

/* Scalar loads: a pair (or a buffer resource) and an offset; the address loses its two low bits. */
INLINE void scalar_load(Wave *w, const Instruction *I, int words, int buffer)
{
    u64 base = scalar64(w, &I->s[0]), offset = (u64)I->offset;
    if (I->s[1].space != NOWHERE)
        offset += scalar32(w, &I->s[1]);
    if (buffer) {
        const u32 *r = &w->s[I->s[0].index];
        base &= 0xffffffffffffull;
        if (!valid_resource(w, I, r))
            return;
        if (offset + 4 * (u64)words > r[2]) {
            fault(w, FAULT_RESOURCE, 0, base, r[1]);
            return;
        }
    }
    u8 *at = global(w, I, (base + offset) & ~3ull, 4 * (u64)words, 0, LOAD);
    if (at)
        memcpy(&w->s[I->d.index], at, 4 * (size_t)words);
}

/* Less than a word, at an address of its own alignment. */
INLINE void scalar_load_small(Wave *w, const Instruction *I, int bytes, int sign)
{
    u64 offset = (u64)I->offset + (I->s[1].space == NOWHERE ? 0 : scalar32(w, &I->s[1]));
    u8 *at = global(w, I, (scalar64(w, &I->s[0]) + offset) & ~((u64)bytes - 1), (u64)bytes, 0, LOAD);
    u32 x = 0;
    if (!at)
        return;
    memcpy(&x, at, (size_t)bytes);
    if (sign)
        x = bytes == 1 ? (u32)(i32)(i8)x : (u32)(i32)(i16)x;
    put_scalar32(w, &I->d, x);
}
