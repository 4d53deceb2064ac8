/* Data races in LDS: two waves touch the same byte between the same two barriers, at least one writes, and not both by atomics. An
 * access that its wave has not waited for at a barrier also counts after it. Whatever order the waves run in, the same pairs are found.
 *
 * A cell remembers the last writer and the first two readers: with another reader than oneself there is always one among two. Dwords have a
 * cell, and bytes where an access was narrower than a dword since the last barrier. */

INLINE u32 conflict(const Cell *cell, u32 epoch, u32 party, int kind)
{
    u32 me = PARTY_WAVE(party);
    if (cell->write_epoch == epoch && PARTY_WAVE(cell->writer) != me && !(kind == ATOMIC && cell->writer & BY_ATOMIC))
        return cell->writer;
    if (kind == LOAD || cell->read_epoch != epoch)
        return 0;
    return PARTY_WAVE(cell->reader) != me ? cell->reader : cell->other_reader;
}

INLINE void record(Cell *cell, u32 epoch, u32 party, int kind)
{
    if (kind != LOAD) {
        cell->writer = party;
        cell->write_epoch = (u16)epoch;
    } else if (cell->read_epoch != epoch) {
        cell->reader = party;
        cell->other_reader = 0;
        cell->read_epoch = (u16)epoch;
    } else if (!cell->other_reader && PARTY_WAVE(cell->reader) != PARTY_WAVE(party))
        cell->other_reader = party;
}

/* The cell of a dword that is accessed. */
INLINE Cell *opened(Checker *c, u64 word)
{
    Cell *cell = &c->words[word];
    if (c->touched[word] == c->epoch && c->only[word])
        record(cell, c->epoch, c->only[word], STORE);
    c->touched[word] = (u16)c->epoch, c->only[word] = 0;
    return cell;
}

/* Record a store of one to four dwords if it is their first access since the last barrier. */
INLINE int first_store(Checker *c, u64 word, u32 count, u32 party)
{
    const u64 each = 0x0001000100010001ull, kept = ~(u64)0 >> (64 - 16 * count), epochs = each * c->epoch & kept;
    u64 last, other;
    memcpy(&last, &c->touched[word], sizeof last);
    other = (last ^ epochs) | ~kept;
    if (!LIKELY(!((other - each) & ~other & 0x8000 * each))) /* 16 of the bits are zero */
        return 0;
    last = (last & ~kept) | epochs;
    memcpy(&c->touched[word], &last, sizeof last);
    for (u32 i = 0; i < count; i++)
        c->only[word + i] = party;
    return 1;
}

INLINE void extend_bounds(Watch *x, u32 low, u32 high)
{
    x->low = low / 4 * 4 < x->low ? low / 4 * 4 : x->low;
    x->high = (high + 3) / 4 * 4 > x->high ? (high + 3) / 4 * 4 : x->high;
}

/* A conflict is a race, unless it is a store that turns out to leave the bytes as they are: see stores_done. */
SLOW static void conflicting(Wave *w, Watch *x, int kind, int lane, u64 address, u64 bytes, u32 other)
{
    if (kind != STORE)
        fault_with(w, FAULT_RACE, (u32)lane, address, bytes, PARTY_WAVE(other), PARTY_PC(other), !!(other & CARRIED));
    else if (x->suspects < LOGGED) {
        Suspect *one = &x->suspect[x->suspects++];
        *one = (Suspect){.address = (u32)address, .bytes = (u32)bytes, .lane = (u32)lane, .other = other};
        memcpy(one->before, w->lds + address, bytes);
    }
}

SLOW static void narrow_access(Wave *w, Watch *x, u64 address, u64 bytes, u32 party, int kind, int lane)
{
    Checker *c = x->checker;
    for (u64 a = address; a < address + bytes; a++) {
        u32 other = conflict(opened(c, a / 4), c->epoch, party, kind);
        if (!other)
            other = conflict(&c->bytes[a], c->epoch, party, kind);
        if (other && !(party & CARRIED))
            conflicting(w, x, kind, lane, a, 1, other);
        record(&c->bytes[a], c->epoch, party, kind);
        c->split[a / 4] = (u16)c->epoch;
    }
}

INLINE void local_access(Wave *w, Watch *x, u64 address, u64 bytes, u32 party, int kind, int lane)
{
    Checker *c = x->checker;
    if ((address | bytes) & 3) {
        narrow_access(w, x, address, bytes, party, kind, lane);
        return;
    }
    for (u64 i = address / 4; i < (address + bytes) / 4; i++) {
        Cell *cell = opened(c, i);
        u32 other = conflict(cell, c->epoch, party, kind);
        if (!LIKELY(c->split[i] != c->epoch))
            for (int b = 0; b < 4 && !other; b++)
                other = conflict(&c->bytes[4 * i + (u64)b], c->epoch, party, kind);
        if (!LIKELY(!other) && !(party & CARRIED))
            conflicting(w, x, kind, lane, 4 * i, 4, other);
        record(cell, c->epoch, party, kind);
    }
}

INLINE void watch_local(Wave *w, Watch *x, int kind, int lane, u64 address, u64 bytes)
{
    u32 party = VALID | (kind == ATOMIC ? BY_ATOMIC : 0) | w->number << 24 | x->pc;
    local_access(w, x, address, bytes, party, kind, lane);
}

/* Waves that hold the same values of a tensor store them to the same place: in any order, the bytes are the same. */
SLOW static void stores_done(Wave *w, Watch *x)
{
    for (u32 i = 0; i < x->suspects; i++) {
        const Suspect *one = &x->suspect[i];
        if (memcmp(one->before, w->lds + one->address, one->bytes))
            fault_with(w, FAULT_RACE, one->lane, one->address, one->bytes, PARTY_WAVE(one->other), PARTY_PC(one->other),
                       !!(one->other & CARRIED));
    }
    x->suspects = 0;
}

/* Keep the accesses of an instruction. The log of a load to LDS has an access to global memory before each of them. */
INLINE void keep(const Watch *x, LocalAccess *kept, u32 number, int kind, int to_lds)
{
    u32 step = to_lds ? 2 : 1, count = x->logged / step < 2 * LANES ? x->logged / step : 2 * LANES;
    kept->number = number, kept->pc = x->pc, kept->count = count, kept->kind = (u32)kind, kept->bytes = x->bytes;
    kept->low = x->low, kept->high = x->high, kept->wave = x->wave->number;
    if (LIKELY(x->rows == 1))
        memcpy(kept->address, x->row, sizeof x->row[0]);
    else if (x->rows)
        memcpy(kept->address, x->row, sizeof x->row);
    else
        for (u32 i = 0; i < count; i++)
            kept->address[i] = (u32)x->address[step * i + step - 1];
}

/* For the next barrier. */
INLINE void keep_recent(Watch *x, int kind, int to_lds)
{
    u32 number = x->issued[to_lds ? LOADS : LOCAL];
    keep(x, to_lds ? &x->recent_to_lds[number % RECENT] : &x->recent[number % RECENT], number, kind, to_lds);
    if (to_lds)
        x->to_lds = number;
}

/* Loads race with stores only: they are kept, and recorded when a store since the same barrier comes near. So most are never recorded. */
SLOW static void record_deferred(Wave *w, Watch *x, u32 low, u32 high)
{
    Checker *c = x->checker;
    u32 left = 0;
    for (u32 i = 0; i < c->deferred; i++) {
        const LocalAccess *kept = &c->loads[i];
        if (kept->high <= low || kept->low >= high) {
            if (left != i)
                c->loads[left] = *kept;
            left++;
            continue;
        }
        for (u32 k = 0; k < kept->count; k++)
            local_access(w, x, kept->address[k], kept->bytes, VALID | kept->wave << 24 | kept->pc, LOAD, 0);
    }
    c->deferred = left;
}

/* Before a store or atomic in these bounds is recorded. */
INLINE void stores_between(Wave *w, Watch *x, u32 low, u32 high)
{
    Checker *c = x->checker;
    c->stored_low = low < c->stored_low ? low : c->stored_low;
    c->stored_high = high > c->stored_high ? high : c->stored_high;
    if (c->deferred)
        record_deferred(w, x, low, high);
}

/* Not inlined: it is compiled once for all handlers. */
__attribute__((noinline)) static void watch_logged_local(Wave *w, Watch *x, int kind, u64 bytes)
{
    Checker *c = x->checker;
    if (LIKELY(kind == LOAD && (x->high <= c->stored_low || x->low >= c->stored_high))) {
        if (!LIKELY(c->deferred < DEFERRED))
            record_deferred(w, x, 0, ~0u);
        keep(x, &c->loads[c->deferred++], 0, LOAD, 0);
        return;
    }
    if (kind != LOAD)
        stores_between(w, x, x->low, x->high);
    u32 party = VALID | w->number << 24 | x->pc, count = x->logged;
    for (u32 k = 0; k < count; k++) {
        u64 address = logged_address(x, k);
        int first = kind == STORE && !((address | bytes) & 3) && first_store(c, address / 4, (u32)bytes / 4, party);
        if (!LIKELY(first))
            watch_local(w, x, kind, (int)logged_lane(x, k), address, bytes);
    }
}

/* An access to bytes that a load to LDS of the same wave may still write. */
SLOW static void touches_loading(Wave *w, Watch *x, int kind, int lane, u64 address, u64 bytes)
{
    u32 last = x->to_lds, oldest = last >= RECENT ? last - RECENT + 1 : 1;
    for (u32 n = x->done[LOADS] + 1 > oldest ? x->done[LOADS] + 1 : oldest; n <= last; n++) {
        const LocalAccess *kept = &x->recent_to_lds[n % RECENT];
        if (kept->number != n || address >= kept->high || address + bytes <= kept->low)
            continue;
        for (u32 k = 0; k < kept->count; k++)
            if (address < kept->address[k] + kept->bytes && kept->address[k] < address + bytes)
                fault_with(w, FAULT_PENDING, (u32)lane, address, kind == LOAD, w->number, kept->pc, PENDING_LDS);
    }
}

/* A wave's accesses from number `first` to `last`, which continue after a barrier. */
static void carry(Wave *w, const LocalAccess *recent, u32 first, u32 last)
{
    u32 oldest = last >= RECENT ? last - RECENT + 1 : 1;
    for (u32 n = first > oldest ? first : oldest; n <= last; n++) {
        const LocalAccess *kept = &recent[n % RECENT];
        if (kept->number == n && kept->kind != LOAD)
            stores_between(w, w->observer, kept->low, kept->high);
        u32 party = VALID | CARRIED | (kept->kind == ATOMIC ? BY_ATOMIC : 0) | w->number << 24 | kept->pc;
        for (u32 k = 0; k < (kept->number == n ? kept->count : 0); k++)
            local_access(w, w->observer, kept->address[k], kept->bytes, party, (int)kept->kind, 0);
    }
}

/* After a barrier: a new epoch, in which accesses that were not waited for continue. */
static void next_epoch(Launch *job, Wave *waves, Checker *c)
{
    if (++c->epoch == 0x10000) {
        memset(c->words, 0, sizeof(Cell) * (job->lds_bytes / 4 + 1));
        memset(c->bytes, 0, sizeof(Cell) * (job->lds_bytes + 4));
        memset(c->split, 0, sizeof(u16) * (job->lds_bytes / 4 + 1));
        memset(c->touched, 0, sizeof(u16) * (job->lds_bytes / 4 + 4));
        c->epoch = 1;
    }
    c->deferred = c->stored_high = 0, c->stored_low = ~0u;
    for (u32 i = 0; i < job->waves; i++) {
        Watch *x = waves[i].observer;
        carry(&waves[i], x->recent, x->carry_from + 1, x->issued[LOCAL]);
        carry(&waves[i], x->recent_to_lds, x->carry_loads_from + 1, x->to_lds);
    }
}
