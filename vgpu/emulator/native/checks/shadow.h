/* Shadow execution finds uninitialised data. Every wave has a shadow whose registers, LDS and scratch start with the complement of the
 * wave's garbage. Values that depend on no garbage are the same in both: such a register has the state SAME, and no value in the shadow.
 * The shadow executes only instructions that have a source, or keep part of a destination, that may differ; results are then compared bit
 * by bit. Where the shadow would do something else - another branch, other lanes, another address, other data to global memory - garbage
 * decides what the kernel does.
 *
 * The shadow's global stores and atomics have no effect; its loads from global memory return what the wave has loaded. */

extern Handler const handlers[]; /* a shadow's instructions are the plain ones, whatever hooks the program has */

/* Bring the shadow's register up to date. */
static void fetch(Wave *w, Watch *x, u32 r)
{
    Wave *t = x->shadow;
    u8 state = x->state[r] & (u8)~PENDING;
    if (state == DIFFERS)
        return;
    u32 flip = state == GARBAGE ? ~0u : 0;
    if (r == REGISTER_SCC)
        t->scc = w->scc ^ (flip & 1);
    else if (r < SCALARS)
        t->s[r] = w->s[r] ^ flip;
    else {
        u32 *to = t->v[r - SCALARS];
        const u32 *from = w->v[r - SCALARS];
        EACH_LANE to[l] = from[l] ^ flip;
    }
    if (state == GARBAGE)
        set_state(x, r, DIFFERS);
}

/* Destinations count as sources where part of them is kept. */
INLINE u32 sources(const Wave *w, const Effects *e)
{
    return e->partial || (!e->scalar && EXEC != FULL) ? (u32)e->reads + e->writes : e->reads;
}

INLINE void fetch_sources(Wave *w, Watch *x, const Effects *e, u32 count)
{
    for (u32 i = 0; i < count; i++)
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++)
            fetch(w, x, r);
}

/* Whether an instruction overwrites one of its sources. */
INLINE int overwrites_source(const Effects *e)
{
    int found = 0;
    for (u32 i = 0; i < e->reads; i++)
        for (u32 j = e->reads; j < (u32)e->reads + e->writes; j++) {
            const Span *a = &e->spans[i], *b = &e->spans[j];
            found |= a->first < b->first + b->count && b->first < a->first + a->count;
        }
    return found;
}

/* A load may turn out to read memory that differs: then `follow` runs the shadow, whose sources are brought up to date before they change. */
INLINE void prepare_shadow(Wave *w, Watch *x, const Effects *e)
{
    u32 count = sources(w, e);
    u64 differs = 0;
    for (u32 i = 0; !x->settled && i < count; i++)
        differs |= span_states(x, &e->spans[i]) & NOT_SAME;
    x->run_shadow = differs != 0;
    if (LIKELY(!differs) && !(e->memory && (e->writes || e->memory == TO_LDS)))
        return;
    if (differs || count != e->reads || overwrites_source(e))
        fetch_sources(w, x, e, count);
    EXEC_OF(x->shadow) = EXEC;
    x->shadow->mode = w->mode;
    x->unset_data = 0;
    for (u32 i = 0; differs && e->atomic && i < e->data_words; i++) {
        const u32 *a = w->v[e->data - SCALARS + i], *b = x->shadow->v[e->data - SCALARS + i];
        EACH_LANE x->unset_data |= (u64)(a[l] != b[l]) << l;
    }
}

/* ---- memory of the shadow ---- */

/* NULL for global memory that is all set; the range is the one that the access was found in. */
INLINE u8 *state_of(Wave *w, Watch *x, int space, u64 address, u32 lane)
{
    const Range *r = &w->ranges[w->hint];
    if (space == IN_GLOBAL)
        return r->unset && address >= r->low && address < r->high ? r->unset + (address - r->low) : NULL;
    return space == IN_LDS ? x->checker->lds_state + address : x->scratch_state + (u64)lane * w->scratch_bytes + address;
}
INLINE u8 *bytes_of(Wave *w, int space, u64 address, u32 lane)
{
    return space == IN_LDS ? w->lds + address : w->scratch + (u64)lane * w->scratch_bytes + address;
}

INLINE void watch_bytes(Wave *w, Watch *x, int space, int kind, u32 lane, u64 address, u64 bytes)
{
    u8 *state = state_of(w, x, space, address, lane);
    if (!state)
        return;
    if (kind == STORE)
        memset(state, SAME, bytes);
    else
        for (u64 i = 0; i < bytes; i++)
            if (!LIKELY(state[i] == SAME) && !x->touched_unset)
                x->touched_unset = x->logged; /* 1 + its place in the log */
}

/* Whether all LDS from the lowest to the highest byte of this access is the same: of tiles, as a rule. */
INLINE int all_same(const Wave *w, const Watch *x)
{
    Checker *c = x->checker;
    u32 low = x->low, high = x->high < w->lds_bytes ? x->high : w->lds_bytes;
    if (LIKELY(low >= c->same_low && high <= c->same_high))
        return 1;
    if (memchr(&c->lds_state[low], GARBAGE, high - low) || memchr(&c->lds_state[low], DIFFERS, high - low))
        return 0;
    int joined = low <= c->same_high && high >= c->same_low;
    c->same_low = joined && c->same_low < low ? c->same_low : low;
    c->same_high = joined && c->same_high > high ? c->same_high : high;
    return 1;
}

/* watch_bytes of all accesses in the log, which are in one buffer or in LDS. */
INLINE void watch_logged_bytes(Wave *w, Watch *x, int space, int kind, u64 bytes)
{
    const Range *r = &w->ranges[w->hint];
    u8 *states = space == IN_LDS ? x->checker->lds_state : r->unset;
    u64 first = space == IN_LDS ? 0 : r->low, found = 0;
    u32 count = x->logged;
    if (space == IN_LDS && kind == LOAD && count && LIKELY(all_same(w, x)))
        return;
    for (u32 k = 0; k < count; k++) {
        u8 *state = states + (logged_address(x, k) - first);
        if (kind == STORE)
            memset(state, SAME, bytes);
        for (u64 i = 0; kind != STORE && i < bytes; i += 8) {
            u64 some = 0;
            memcpy(&some, state + i, bytes - i < 8 ? bytes - i : 8);
            found |= some;
        }
    }
    for (u32 k = 0; found && k < count && !x->touched_unset; k++)
        for (u64 i = 0; i < bytes; i++)
            if (states[logged_address(x, k) - first + i] != SAME)
                x->touched_unset = k + 1; /* 1 + its place in the log */
}

/* The shadow does the access that its wave has logged; the bytes that it loads are brought up to date. */
SLOW static void watch_shadow(Wave *t, Watch *x, Wave *w, int space, int kind, u32 lane, u64 address, u64 bytes)
{
    u32 k = x->shadow_logged++;
    if (k >= x->logged || logged_address(x, k) != address || logged_lane(x, k) != lane) {
        fault(t, FAULT_UNSET_ADDRESS, lane, address, bytes);
        return;
    }
    if (space == IN_GLOBAL || kind != LOAD)
        return;
    u8 *state = state_of(w, x, space, address, lane), *to = bytes_of(t, space, address, lane);
    const u8 *from = bytes_of(w, space, address, lane);
    for (u64 i = 0; i < bytes; i++)
        if (state[i] != DIFFERS) {
            to[i] = state[i] == GARBAGE ? (u8)~from[i] : from[i];
            state[i] = state[i] == GARBAGE ? DIFFERS : SAME;
        }
}

/* ---- after an instruction ---- */

/* 1 + the instruction that first read what differs in a source; this one when it is the first. */
static u32 origin_of(Watch *x, const Effects *e)
{
    for (u32 i = 0; i < e->reads; i++)
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++)
            if (x->state[r] & (u8)~PENDING && x->origin[r])
                return x->origin[r];
    u32 stored = x->space == IN_LDS && e->memory != TO_LDS && x->touched_unset ? x->checker->lds_origin[logged_address(x, x->touched_unset - 1) / 4] : 0;
    return stored ? stored : x->pc + 1;
}

SLOW static void unset(Wave *w, Watch *x, u32 code, u32 lane, u64 address, u64 bytes)
{
    fault_with(w, code, lane, address, bytes, w->number, origin_of(x, x->effects) - 1, x->space);
}

/* Data of global stores and of atomics has to be the same in both; that of other stores may differ, and is remembered. */
static void compare_stores(Wave *w, Watch *x, const Effects *e)
{
    u32 words = x->bytes < 4 ? 1 : x->bytes / 4, mask = x->bytes == 1 ? 0xff : x->bytes == 2 ? 0xffff : ~0u, part = 0;
    for (u32 k = 0; k < x->logged; k++) {
        u32 lane = logged_lane(x, k);
        u64 address = logged_address(x, k);
        part = k && logged_lane(x, k - 1) == lane ? part + 1 : 0; /* buffer stores are logged dword by dword */
        if (e->atomic) {
            if (x->unset_data >> lane & 1)
                unset(w, x, FAULT_UNSET_STORE, lane, address, x->bytes);
        } else if (x->space == IN_GLOBAL)
            for (u32 i = 0; i < words; i++) {
                u32 row = e->data - SCALARS + part * words + i;
                if ((w->v[row][lane] ^ x->shadow->v[row][lane]) >> (e->high ? 16 : 0) & mask)
                    unset(w, x, FAULT_UNSET_STORE, lane, address, x->bytes);
            }
        else {
            u8 *state = state_of(w, x, (int)x->space, address, lane);
            const u8 *a = bytes_of(w, (int)x->space, address, lane), *b = bytes_of(x->shadow, (int)x->space, address, lane);
            for (u64 i = 0; i < x->bytes; i++) {
                state[i] = a[i] == b[i] ? SAME : DIFFERS;
                if (state[i] && x->space == IN_LDS)
                    x->checker->same_low = x->checker->same_high = 0, x->checker->lds_origin[(address + i) / 4] = origin_of(x, e);
            }
        }
    }
}

/* The buffer with an address, if some of its bytes may be ones that no instruction has stored. */
static const Range *unset_range(const Wave *w, u64 address)
{
    for (u32 i = 0; i < w->range_count; i++)
        if (w->ranges[i].unset && address >= w->ranges[i].low && address < w->ranges[i].high)
            return &w->ranges[i];
    return NULL;
}

/* A load to LDS: its log has a global access, then one of LDS, for every lane. */
static void compare_to_lds(Wave *w, Watch *x, const Effects *e)
{
    for (u32 k = 1; k < x->logged; k += 2) {
        u64 from = x->address[k - 1], to = x->address[k];
        const Range *found = unset_range(w, from);
        for (u64 i = 0; i < x->bytes; i++) {
            u8 *shadow = x->shadow->lds + to + i;
            if (found && found->unset[from - found->low + i])
                *shadow = (u8)~w->lds[to + i];
            int differs = x->checker->lds_state[to + i] = *shadow == w->lds[to + i] ? SAME : DIFFERS;
            if (differs)
                x->checker->same_low = x->checker->same_high = 0, x->checker->lds_origin[(to + i) / 4] = origin_of(x, e);
        }
    }
}

/* A load of global bytes that no instruction has stored: the shadow gets their complement. */
static void complement_unset(Wave *w, Watch *x, const Effects *e)
{
    u32 words = x->bytes < 4 ? 1 : x->bytes / 4, part = 0, first = e->spans[e->reads].first;
    for (u32 k = 0; k < x->logged && e->writes; k++) {
        const Range *found = unset_range(w, x->address[k]);
        part = k && x->lane[k - 1] == x->lane[k] ? part + 1 : 0;
        for (u32 b = 0; found && b < x->bytes; b++)
            if (found->unset[x->address[k] - found->low + b]) {
                u32 r = first + part * words + b / 4, flip = 0xffu << 8 * (b % 4) << (e->high ? 16 : 0);
                if (r < SCALARS)
                    x->shadow->s[r] ^= flip;
                else
                    x->shadow->v[r - SCALARS][x->lane[k]] ^= flip;
            }
    }
}

static void compare_register(Wave *w, Watch *x, u32 r, u64 lanes, u32 origin)
{
    Wave *t = x->shadow;
    u64 differs = 0;
    if (r == REGISTER_SCC)
        differs = t->scc != w->scc;
    else if (r < SCALARS)
        differs = t->s[r] != w->s[r];
    else if (memcmp(t->v[r - SCALARS], w->v[r - SCALARS], sizeof(u32) * LANES)) {
        set_state(x, r, DIFFERS);
        EACH_LANE differs |= (u64)(t->v[r - SCALARS][l] != w->v[r - SCALARS][l]) << l;
        if (differs & lanes)
            x->origin[r] = origin;
        return;
    }
    set_state(x, r, differs ? DIFFERS : SAME);
    x->origin[r] = differs ? origin : 0;
}

SLOW static void follow(Wave *w, Watch *x, const Instruction *I, const Effects *e)
{
    Wave *t = x->shadow;
    u64 lanes = EXEC_OF(t);
    u32 origin = origin_of(x, e);
    if (!x->run_shadow && !overwrites_source(e))
        fetch_sources(w, x, e, e->reads);
    x->shadow_logged = 0;
    t->state = RUNNING;
    t->pc = x->pc + 1;
    handlers[I->opcode](t, I);
    if (t->state == FAULT)
        return unset(w, x, FAULT_UNSET_ADDRESS, x->shadow_fault.lane, x->shadow_fault.address, x->shadow_fault.bytes);
    if (x->shadow_logged != x->logged)
        return unset(w, x, FAULT_UNSET_ADDRESS, first_lane(w), 0, 0);
    if (t->pc != w->pc)
        return unset(w, x, FAULT_UNSET_BRANCH, first_lane(w), 0, 0);
    u64 other = EXEC_OF(t);
    if (other != EXEC)
        return unset(w, x, FAULT_UNSET_EXEC, (u32)__builtin_ctzll(other ^ EXEC), 0, 0);
    if (e->memory && e->data_words)
        compare_stores(w, x, e);
    if (e->memory == TO_LDS)
        compare_to_lds(w, x, e);
    int loaded = e->memory && x->space == IN_GLOBAL;
    for (u32 i = e->reads; loaded && !e->partial && i < (u32)e->reads + e->writes; i++)
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++)
            if (r >= SCALARS)
                blend(t->v[r - SCALARS], w->v[r - SCALARS], lanes);
    if (loaded && x->touched_unset)
        complement_unset(w, x, e);
    for (u32 i = e->reads; i < (u32)e->reads + e->writes; i++)
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++)
            compare_register(w, x, r, lanes, origin);
}

INLINE void compare_shadow(Wave *w, Watch *x, const Instruction *I, const Effects *e)
{
    if (e->atomic && x->touched_unset) /* whatever its result is */
        return unset(w, x, FAULT_UNSET_STORE, logged_lane(x, x->touched_unset - 1), logged_address(x, x->touched_unset - 1), x->bytes);
    if (!LIKELY(!(x->run_shadow | x->touched_unset))) {
        follow(w, x, I, e);
        return;
    }
    for (u32 i = e->reads; i < (u32)e->reads + e->writes; i++)
        if (!LIKELY(!(span_states(x, &e->spans[i]) & NOT_SAME)))
            for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++)
                set_state(x, r, SAME);
}

/* An access out of bounds: when the shadow's address differs, the address is garbage. */
SLOW static void explain_with_shadow(Wave *w, Watch *x, const Instruction *I)
{
    FaultReport *found = w->fault;
    if (!x->run_shadow || found->code < FAULT_GLOBAL_READ || found->code > FAULT_SCRATCH)
        return;
    x->shadow->state = RUNNING;
    x->shadow_logged = 0;
    handlers[I->opcode](x->shadow, I);
    if (x->shadow->state == FAULT && (x->shadow_fault.address != found->address || x->shadow_fault.lane != found->lane)) {
        found->other = origin_of(x, x->effects) - 1;
        found->detail = found->code;
        found->code = FAULT_UNSET_ADDRESS;
    }
}
