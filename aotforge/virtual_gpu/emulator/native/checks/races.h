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
        u32 other = conflict(&c->words[a / 4], c->epoch, party, kind);
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
        u32 other = conflict(&c->words[i], c->epoch, party, kind);
        if (!LIKELY(c->split[i] != c->epoch))
            for (int b = 0; b < 4 && !other; b++)
                other = conflict(&c->bytes[4 * i + (u64)b], c->epoch, party, kind);
        if (!LIKELY(!other) && !(party & CARRIED))
            conflicting(w, x, kind, lane, 4 * i, 4, other);
        record(&c->words[i], c->epoch, party, kind);
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

/* Keep the accesses of an instruction for the next barrier. The log of a load to LDS has an access to global memory before each of them. */
INLINE void keep_recent(Watch *x, int kind, int to_lds)
{
    u32 number = x->issued[to_lds ? LOADS : LOCAL], step = to_lds ? 2 : 1;
    LocalAccess *kept = to_lds ? &x->recent_to_lds[number % RECENT] : &x->recent[number % RECENT];
    u32 count = x->logged / step < 2 * LANES ? x->logged / step : 2 * LANES;
    kept->number = number, kept->pc = x->pc, kept->count = count, kept->kind = (u32)kind, kept->bytes = x->bytes;
    kept->low = ~0u, kept->high = 0;
    for (u32 i = 0; i < count; i++) {
        u32 address = kept->address[i] = (u32)x->address[step * i + step - 1];
        kept->low = address < kept->low ? address : kept->low;
        kept->high = address + x->bytes > kept->high ? address + x->bytes : kept->high;
    }
    if (to_lds)
        x->to_lds = number;
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
        c->epoch = 1;
    }
    for (u32 i = 0; i < job->waves; i++) {
        Watch *x = waves[i].observer;
        carry(&waves[i], x->recent, x->carry_from + 1, x->issued[LOCAL]);
        carry(&waves[i], x->recent_to_lds, x->carry_loads_from + 1, x->to_lds);
    }
}
