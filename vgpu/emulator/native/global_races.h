/* The variant that looks for data races in global memory: two waves touch the same bytes, at least one writes, not both by atomics, and
 * nothing orders the two. Vector clocks, as in FastTrack: each execution of an instruction that accesses memory is an event of its wave.
 *
 * What orders: barriers, for the waves of a workgroup; and an atomic (or a load that bypasses the CU's caches) on an address that the other
 * wave has done an atomic on. Only what has been waited for counts: a release covers the accesses whose waits are over, an acquire what
 * follows its wait. `seen` is what is ordered before a wave's next access; `valid` the part that a load through the CU's caches also gets,
 * for which they have to be invalidated: after a barrier from gfx10 on (workgroups have two CUs), after an atomic everywhere.
 *
 * Exceptions: a store that leaves the bytes as they are; a load by one of several waves that load the same by the same instruction, of which
 * one stores then (layouts that replicate a tensor mask the other stores); and a load before a compare-and-swap of the same wave, which
 * compares what it got. So an atomic after a load does not race, and one before it is reported when the wave comes to a barrier or its end. */

enum { SYNCS = 1 << 16, QUEUE = 64, SUSPECTS = 16 * LANES, MOST_BYTES = 1 << 30 };
#define BY_ATOMIC (1u << 31)
#define REPLICATED (1u << 30)
#define PC_OF(event) ((event)->pc & 0xffffff)
enum { COHERENT = 1, INVALIDATES_GROUP = 2, INVALIDATES_DEVICE = 4, INVALIDATES_GL1 = 8 }; /* Effects.coherence */

typedef struct {
    u32 tid, clock, pc; /* tid: number of the wave in the launch, from 1; pc: BY_ATOMIC besides; REPLICATED: more waves have read by it */
} Event;
typedef struct {
    Event writer, readers[2];
    u32 loaded; /* 1 + the instruction by which the writer had read before */
} Cell;

/* What a wave had published when it did an atomic. */
typedef struct Snapshot {
    struct Snapshot *older;
    u32 tid, own, first, count, clocks[];
} Snapshot;
typedef struct Node {
    const Snapshot *snapshot;
    struct Node *next;
} Node;
typedef struct Sync {
    u64 address;
    Node *nodes;
    struct Sync *next;
} Sync;

typedef struct {
    u64 address;
    u32 lane, bytes, code, pc;
    Event other;
    const u8 *at;
    u8 before[16];
} Suspect;

typedef struct Party {
    u32 *seen, *valid, *group, *device, *incoming; /* group, device: valid after an invalidation; incoming: after the atomic's wait */
    u32 tid, clock, gl1, awaited[COUNTERS];
    u32 issued[COUNTERS], done[COUNTERS], queue[COUNTERS][QUEUE];
    const Snapshot *last;
    u32 last_own, stale_snapshot, suspects;
    u32 doubts;
    Suspect suspect[SUSPECTS], doubt[SUSPECTS]; /* stores that may change nothing; loads of what others' atomics wrote */
} Party;

typedef struct {
    Cell *cells;
    const u64 *first; /* of each range: a unit's cell, less the unit's number in the host's memory; ~0: not looked at */
    u64 unit;         /* bytes of a cell */
    u32 total, group_in_order; /* waves of the launch; gfx9: the accesses of a workgroup are in order without waits */
    /* the rest is the variant's */
    Party *parties;
    Sync **syncs;
    Snapshot *snapshots;
    u64 used;
    u32 begin, end, wide, pad; /* the group's waves; wide: a clock of another group is not zero */
    const Effects *effects;
} Races;

SLOW static void race_fault(Wave *w, const Suspect *s)
{
    if (w->state == FAULT)
        return;
    fault(w, s->code, s->lane, s->address, s->bytes);
    w->fault->instruction = s->pc;
    w->fault->other = PC_OF(&s->other);
    w->fault->other_wave = (s->other.tid - 1) % w->job->waves;
    w->fault->detail = (s->other.tid - 1) / w->job->waves;
}

INLINE void join(const Races *c, u32 *to, const u32 *from)
{
    for (u32 i = c->wide ? 0 : c->begin; i < c->end; i++)
        to[i] = from[i] > to[i] ? from[i] : to[i];
}
INLINE void join_snapshot(Races *c, u32 *to, const Snapshot *s)
{
    for (u32 i = 0; i < s->count; i++)
        to[s->first + i] = s->clocks[i] > to[s->first + i] ? s->clocks[i] : to[s->first + i];
    c->wide |= s->first != c->begin || s->count != c->end - c->begin;
}

/* The newest event of which it and all before are complete. */
INLINE u32 published(const Party *p)
{
    u32 most = p->clock;
    for (int k = LOADS; k < COUNTERS; k++)
        if (p->issued[k] != p->done[k] && p->queue[k][p->done[k] % QUEUE] - 1 < most)
            most = p->queue[k][p->done[k] % QUEUE] - 1;
    return most;
}

static void *arena(Wave *w, Races *c, size_t bytes)
{
    void *made = c->used + bytes < MOST_BYTES ? malloc(bytes) : NULL;
    c->used += bytes;
    if (!made)
        fault(w, FAULT_RACES_FULL, 0, 0, 0);
    return made;
}

static const Snapshot *snapshot(Wave *w, Races *c, Party *p)
{
    u32 own = published(p), first = c->wide ? 0 : c->begin, count = c->end - first;
    if (p->last && p->last_own == own && !p->stale_snapshot)
        return p->last;
    Snapshot *s = arena(w, c, sizeof *s + sizeof(u32) * count);
    if (!s)
        return NULL;
    *s = (Snapshot){.older = c->snapshots, .tid = p->tid, .own = own, .first = first, .count = count};
    c->snapshots = s;
    memcpy(s->clocks, p->seen + first, sizeof(u32) * count);
    s->clocks[p->tid - 1 - first] = own;
    p->last = s, p->last_own = own, p->stale_snapshot = 0;
    return s;
}

/* Acquire and release through one address. */
static void synchronise(Wave *w, Races *c, Party *p, u64 address, int acquires, int releases)
{
    Sync **place = &c->syncs[(address >> 2) * 0x9e3779b97f4a7c15ull >> 48], *s = *place;
    while (s && s->address != address)
        s = s->next;
    if (!s && releases) {
        s = arena(w, c, sizeof *s);
        if (!s)
            return;
        *s = (Sync){.address = address, .next = *place};
        *place = s;
    }
    Node *mine = NULL;
    for (Node *n = s ? s->nodes : NULL; n; n = n->next) {
        if (n->snapshot->tid == p->tid)
            mine = n;
        else if (acquires && n->snapshot->own > p->incoming[n->snapshot->tid - 1])
            join_snapshot(c, p->incoming, n->snapshot);
    }
    if (!releases)
        return;
    const Snapshot *now = snapshot(w, c, p);
    if (now && !mine) {
        mine = arena(w, c, sizeof *mine);
        if (mine)
            mine->next = s->nodes, s->nodes = mine;
    }
    if (now && mine)
        mine->snapshot = now;
}

INLINE int before(const Event *e, const Party *p, const u32 *clocks) { return !e->tid || e->tid == p->tid || e->clock <= clocks[e->tid - 1]; }

SLOW static void touch(Wave *w, const Races *c, Party *p, Cell *cell, int kind, int coherent, u32 bytes, Suspect at)
{
    Event me = {p->tid, p->clock, at.pc | (kind == ATOMIC || coherent ? BY_ATOMIC : 0)};
    const Event *wrote = &cell->writer;
    int quiet = (me.pc & wrote->pc & BY_ATOMIC) != 0;
    at.code = FAULT_GLOBAL_RACE;
    if (kind == LOAD) {
        int replica = wrote->tid > c->begin && wrote->tid <= c->end && cell->loaded == at.pc + 1;
        if (!quiet && !replica && !before(wrote, p, coherent ? p->seen : p->valid)) {
            at.code = before(wrote, p, p->seen) ? FAULT_STALE : FAULT_GLOBAL_RACE, at.other = *wrote;
            if (!(wrote->pc & BY_ATOMIC) || p->doubts == SUSPECTS)
                race_fault(w, &at);
            else
                p->doubt[p->doubts++] = at;
        }
        Event *slot = cell->readers;
        while (slot < cell->readers + 2 && !before(slot, p, p->seen))
            if (PC_OF(slot) == at.pc && slot->tid > c->begin) {
                slot->pc |= REPLICATED;
                break;
            } else
                slot++;
        if (slot < cell->readers + 2 && !(slot->pc & REPLICATED && !before(slot, p, p->seen)))
            *slot = me;
        return;
    }
    u32 loaded = 0, compares = kind == ATOMIC && 4 * (u32)c->effects->data_words == 2 * bytes;
    for (int i = 0; i < 2; i++)
        if (cell->readers[i].tid == p->tid || (cell->readers[i].pc & REPLICATED && cell->readers[i].tid > c->begin))
            loaded = PC_OF(&cell->readers[i]) + 1;
    const Event *other = !quiet && !before(wrote, p, p->seen) ? wrote : NULL;
    for (int i = 0; i < 2 && !other && kind == STORE; i++) {
        const Event *read = &cell->readers[i];
        int replica = read->tid > c->begin && PC_OF(read) + 1 == loaded;
        if (!(me.pc & read->pc & BY_ATOMIC) && !replica && !before(read, p, p->seen))
            other = read;
    }
    for (u32 i = 0; compares && i < p->doubts; i++)
        if (p->doubt[i].at == at.at)
            p->doubt[i--] = p->doubt[--p->doubts];
    if (other)
        at.other = *other;
    if (other && kind == ATOMIC)
        race_fault(w, &at);
    else if (other && p->suspects < SUSPECTS) {
        memcpy(at.before, at.at, at.bytes);
        p->suspect[p->suspects++] = at;
    }
    *cell = (Cell){.writer = me, .loaded = loaded};
}

SLOW static void observe(Wave *w, const Instruction *I, int space, int kind, int lane, u64 address, u64 bytes)
{
    Races *c = w->job->observer;
    Party *p = w->observer;
    u64 first = c->first[w->hint], host = address + w->ranges[w->hint].to_host;
    (void)I;
    if (space != IN_GLOBAL || first == ~(u64)0 || w->state == FAULT)
        return;
    int coherent = c->effects->coherence & COHERENT;
    if (kind == ATOMIC || coherent) {
        synchronise(w, c, p, host, kind != STORE, kind != LOAD);
        if (c->effects->kind < COUNTERS)
            p->awaited[c->effects->kind] = p->issued[c->effects->kind] + 1;
    }
    for (u64 a = host / c->unit; a <= (host + bytes - 1) / c->unit; a++)
        touch(w, c, p, &c->cells[first + a], kind, coherent, (u32)bytes,
              (Suspect){.address = address - host + a * c->unit, .lane = (u32)lane, .bytes = (u32)c->unit, .pc = w->pc - 1,
                        .at = (const u8 *)(uintptr_t)(a * c->unit)});
}
INLINE int observe_global(Wave *w, const Instruction *I, int kind, const u64 *addresses, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)exec, (void)bytes;
    return 0;
}
INLINE int observe_local(Wave *w, const Instruction *I, int kind, const u32 (*addresses)[LANES], int count, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)count, (void)exec, (void)bytes;
    return 1;
}

INLINE int begin_instruction(Launch *job, Wave *w, const Instruction *I)
{
    Races *c = job->observer;
    Party *p = w->observer;
    (void)I;
    c->effects = &job->effects[w->pc - 1];
    p->clock += c->effects->kind != NOT_COUNTED;
    return 1;
}

/* Atomics whose waits are over order what follows. */
INLINE void wait_over(Races *c, Party *p, const Effects *e)
{
    int waiting = 0, over = 1;
    for (int k = LOADS; k < COUNTERS; k++) {
        u32 left = e->wait[k];
        if (left != NO_WAIT && p->issued[k] - p->done[k] > left && (!left || k == LOADS || k == LOCAL))
            p->done[k] = p->issued[k] - left;
        waiting |= p->awaited[k] != 0;
        over &= p->done[k] >= p->awaited[k];
    }
    if (!waiting || !over)
        return;
    memset(p->awaited, 0, sizeof p->awaited);
    join(c, p->seen, p->incoming);
    join(c, p->device, p->incoming);
    p->gl1 = 0, p->stale_snapshot = 1;
}

INLINE void end_instruction(Launch *job, Wave *w, const Instruction *I)
{
    Races *c = job->observer;
    Party *p = w->observer;
    const Effects *e = c->effects;
    (void)I;
    for (u32 i = 0; i < p->suspects; i++)
        if (memcmp(p->suspect[i].before, p->suspect[i].at, p->suspect[i].bytes))
            race_fault(w, &p->suspect[i]);
    p->suspects = 0;
    if (p->doubts && (w->state == AT_BARRIER || w->state == ENDED))
        race_fault(w, &p->doubt[0]);
    if (e->kind != NOT_COUNTED && e->memory) {
        p->queue[e->kind][p->issued[e->kind]++ % QUEUE] = p->clock;
        if (p->issued[e->kind] - p->done[e->kind] > QUEUE - 1) /* counters are smaller: hardware has waited */
            p->done[e->kind] = p->issued[e->kind] - (QUEUE - 1);
    }
    if (e->waits)
        wait_over(c, p, e);
    p->gl1 |= e->coherence & INVALIDATES_GL1;
    if (e->coherence & (INVALIDATES_GROUP | INVALIDATES_DEVICE))
        join(c, p->valid, p->group);
    if (e->coherence & INVALIDATES_DEVICE || (e->coherence & INVALIDATES_GROUP && p->gl1))
        join(c, p->valid, p->device);
}

INLINE void barrier_released(Launch *job, Wave *waves)
{
    Races *c = job->observer;
    Party *all = &c->parties[job->waves]; /* what the waves have seen and published together */
    for (u32 i = 0; i < job->waves; i++) {
        Party *p = &c->parties[i];
        u32 own = waves[i].state == ENDED || c->group_in_order ? p->clock : published(p);
        p->seen[p->tid - 1] = p->valid[p->tid - 1] = own;
        join(c, all->seen, p->seen);
        join(c, all->valid, p->valid);
    }
    for (u32 i = 0; i < job->waves; i++) {
        Party *p = &c->parties[i];
        join(c, p->seen, all->seen);
        join(c, c->group_in_order ? p->valid : p->group, all->valid);
        join(c, p->device, all->seen);
        p->stale_snapshot = 1;
    }
}

INLINE void begin_group(Launch *job, Wave *waves)
{
    Races *c = job->observer;
    const u32 *g = waves[0].group;
    c->begin = (u32)((g[2] * (u64)job->grid[1] + g[1]) * job->grid[0] + g[0]) * job->waves;
    for (u32 i = 0; i <= job->waves; i++) {
        Party *p = &c->parties[i];
        u32 *clocks[] = {p->seen, p->valid, p->group, p->device, p->incoming};
        for (int k = 0; k < 5; k++) /* of the group before, or of all */
            memset(clocks[k] + (c->wide ? 0 : c->end - (c->end ? job->waves : 0)), 0, sizeof(u32) * (c->wide ? c->end : job->waves));
        memset(&p->tid, 0, offsetof(Party, suspect) - offsetof(Party, tid));
        p->tid = c->begin + i + 1;
        if (i < job->waves)
            waves[i].observer = p;
    }
    c->end = c->begin + job->waves, c->wide = 0;
}
INLINE void end_group(Launch *job, Wave *waves) { (void)job, (void)waves; }

INLINE void end_launch(Launch *job, Wave *waves)
{
    Races *c = job->observer;
    (void)waves;
    for (u32 i = 0; c->parties && i <= job->waves; i++)
        free(c->parties[i].seen);
    free(c->parties);
    for (u32 i = 0; c->syncs && i < SYNCS; i++)
        for (Sync *s = c->syncs[i], *next; s; s = next) {
            next = s->next;
            for (Node *n = s->nodes, *after; n; n = after)
                after = n->next, free(n);
            free(s);
        }
    for (Snapshot *s = c->snapshots, *next; s; s = next)
        next = s->older, free(s);
    free(c->syncs);
    c->parties = NULL, c->syncs = NULL;
}

INLINE int begin_launch(Launch *job, Wave *waves)
{
    Races *c = job->observer;
    (void)waves;
    c->parties = calloc(job->waves + 1, sizeof(Party));
    c->syncs = calloc(SYNCS, sizeof(Sync *));
    for (u32 i = 0; c->parties && i <= job->waves; i++) {
        u32 *clocks = calloc((size_t)c->total * 5, sizeof(u32));
        Party *p = &c->parties[i];
        if (!clocks)
            return 0;
        p->seen = clocks, p->valid = clocks + c->total, p->group = clocks + 2 * (size_t)c->total;
        p->device = clocks + 3 * (size_t)c->total, p->incoming = clocks + 4 * (size_t)c->total;
    }
    return c->parties && c->syncs;
}
