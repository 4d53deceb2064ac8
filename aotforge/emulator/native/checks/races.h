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

SLOW static u32 narrow_access(Checker *c, u64 address, u64 bytes, u32 party, int kind)
{
    u32 found = 0;
    for (u64 a = address; a < address + bytes; a++) {
        u32 one = conflict(&c->words[a / 4], c->epoch, party, kind), two = conflict(&c->bytes[a], c->epoch, party, kind);
        found = found ? found : one ? one : two;
        record(&c->bytes[a], c->epoch, party, kind);
        c->split[a / 4] = (u16)c->epoch;
    }
    return found;
}

/* The other party of a race, or 0. */
INLINE u32 local_access(Checker *c, u64 address, u64 bytes, u32 party, int kind)
{
    if ((address | bytes) & 3)
        return narrow_access(c, address, bytes, party, kind);
    u32 found = 0;
    for (u64 i = address / 4; i < (address + bytes) / 4; i++) {
        u32 other = conflict(&c->words[i], c->epoch, party, kind);
        if (c->split[i] == c->epoch)
            for (int b = 0; b < 4 && !other; b++)
                other = conflict(&c->bytes[4 * i + (u64)b], c->epoch, party, kind);
        record(&c->words[i], c->epoch, party, kind);
        found = found ? found : other;
    }
    return found;
}

INLINE void watch_local(Wave *w, Watch *x, int kind, int lane, u64 address, u64 bytes)
{
    u32 party = VALID | (kind == ATOMIC ? BY_ATOMIC : 0) | w->number << 24 | x->pc;
    u32 other = local_access(x->checker, address, bytes, party, kind);
    if (!LIKELY(!other))
        fault_with(w, FAULT_RACE, (u32)lane, address, bytes, PARTY_WAVE(other), PARTY_PC(other), !!(other & CARRIED));
}

/* Keep the accesses of an instruction for the next barrier. */
INLINE void keep_recent(Watch *x, int kind)
{
    u32 number = x->issued[LOCAL];
    LocalAccess *kept = &x->recent[number % RECENT];
    u32 count = x->logged < 2 * LANES ? x->logged : 2 * LANES;
    kept->number = number, kept->pc = x->pc, kept->count = count, kept->kind = (u32)kind, kept->bytes = x->bytes;
    for (u32 i = 0; i < count; i++)
        kept->address[i] = (u32)x->address[i];
}

/* After a barrier: a new epoch, in which accesses that were not waited for go on. */
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
        u32 last = x->issued[LOCAL], oldest = last >= RECENT ? last - RECENT + 1 : 1;
        for (u32 n = x->carry_from + 1 > oldest ? x->carry_from + 1 : oldest; n <= last; n++) {
            const LocalAccess *kept = &x->recent[n % RECENT];
            u32 party = VALID | CARRIED | (kept->kind == ATOMIC ? BY_ATOMIC : 0) | i << 24 | kept->pc;
            for (u32 k = 0; k < (kept->number == n ? kept->count : 0); k++)
                local_access(c, kept->address[k], kept->bytes, party, (int)kept->kind);
        }
    }
}
