/* The checking variant's hooks. Those of rare accesses are functions of their own: compiling them into every handler took half of its time. */

SLOW static void observe(Wave *w, const Instruction *I, int space, int kind, int lane, u64 address, u64 bytes)
{
    Watch *x = w->observer;
    (void)I;
    if (w == x->shadow) {
        watch_shadow(w, x, x->wave, space, kind, (u32)lane, address, bytes);
        return;
    }
    if (LIKELY(x->logged < LOGGED)) {
        x->address[x->logged] = address;
        x->lane[x->logged++] = (u8)lane;
    }
    if (space == IN_LDS)
        extend_bounds(x, (u32)address, (u32)(address + bytes));
    x->bytes = (u32)bytes;
    x->space = (u32)space;
    x->access = (u32)kind;
    if (x->checks & CHECK_UNSET)
        watch_bytes(w, x, space, kind, (u32)lane, address, bytes);
    if (space == IN_LDS && !LIKELY(x->to_lds <= x->done[LOADS]) && x->effects->memory != TO_LDS && x->checks & CHECK_WAITS)
        touches_loading(w, x, kind, lane, address, bytes);
    if (space == IN_LDS && x->checks & CHECK_RACES) {
        if (kind != LOAD)
            stores_between(w, x, x->low, x->high);
        watch_local(w, x, kind, lane, address, bytes);
    }
}

INLINE int observe_global(Wave *w, const Instruction *I, int kind, const u64 *addresses, u64 exec, u64 bytes)
{
    Watch *x = w->observer;
    (void)I;
    if (w == x->shadow)
        return 0;
    log_lanes(x, addresses, exec);
    x->bytes = (u32)bytes, x->space = IN_GLOBAL, x->access = (u32)kind;
    if (x->checks & CHECK_UNSET && w->ranges[w->hint].unset)
        watch_logged_bytes(w, x, IN_GLOBAL, kind, bytes);
    return 1;
}
INLINE int observe_local(Wave *w, const Instruction *I, int kind, const u32 (*addresses)[LANES], int count, u64 exec, u64 bytes)
{
    Watch *x = w->observer;
    (void)I;
    if (w == x->shadow || !LIKELY(x->to_lds <= x->done[LOADS]))
        return 0;
    log_rows(x, addresses, count, exec);
    x->bytes = (u32)bytes, x->space = IN_LDS, x->access = (u32)kind;
    for (int i = 0; i < count; i++) {
        u32 low = ~0u, high = 0;
        if (LIKELY(exec == FULL))
            EACH_LANE {
                low = addresses[i][l] < low ? addresses[i][l] : low;
                high = addresses[i][l] > high ? addresses[i][l] : high;
            }
        else
            ACTIVE_LANES(exec)
            {
                low = addresses[i][LANE] < low ? addresses[i][LANE] : low;
                high = addresses[i][LANE] > high ? addresses[i][LANE] : high;
            }
        if (exec)
            extend_bounds(x, low, high + (u32)bytes);
    }
    if (x->checks & CHECK_UNSET)
        watch_logged_bytes(w, x, IN_LDS, kind, bytes);
    if (x->checks & CHECK_RACES && exec)
        watch_logged_local(w, x, kind, bytes);
    return 1;
}

/* The memory of an access: a shadow's global stores and atomics get a sink. */
INLINE u8 *reached(Wave *w, int space, int kind, u8 *at)
{
    Watch *x = w->observer;
    return w == x->shadow && (kind == ATOMIC || (kind == STORE && space == IN_GLOBAL)) ? (u8 *)x->sink : at;
}

/* The old value that an atomic returns: the shadow gets its wave's. */
INLINE u64 returned(Wave *w, u64 before)
{
    Watch *x = w->observer;
    if (w == x->shadow)
        return x->returned[(x->shadow_logged - 1) % LOGGED];
    return x->returned[(x->logged - 1) % LOGGED] = before;
}

INLINE int begin_instruction(Launch *job, Wave *w, const Instruction *I)
{
    Watch *x = w->observer;
    const Effects *e = &job->effects[w->pc - 1];
    (void)I;
    x->pc = w->pc - 1;
    x->effects = e;
    x->logged = x->rows = x->touched_unset = 0;
    x->low = ~0u, x->high = 0;
    x->space = IN_GLOBAL;
    u64 states = states_of(x, e);
    x->settled = !(states & NOT_SAME);
    x->run_shadow = 0;
    if (LIKELY(!states && !e->memory))
        return 1;
    if (states & EACH_BYTE * PENDING && x->checks & CHECK_WAITS && touches_pending(w, x, e))
        return 0;
    if (x->checks & CHECK_UNSET && !(x->settled && !e->memory))
        prepare_shadow(w, x, e);
    return 1;
}

INLINE void end_instruction(Launch *job, Wave *w, const Instruction *I)
{
    Watch *x = w->observer;
    const Effects *e = x->effects;
    (void)job;
    if (!LIKELY(w->state != FAULT)) {
        explain_with_shadow(w, x, I);
        return;
    }
    if (!LIKELY(!x->suspects))
        stores_done(w, x);
    if (e->waits)
        wait_for(x, e);
    if (e->kind) {
        issue(x, e);
        if ((e->kind == LOCAL && x->checks & CHECK_RACES) || e->memory == TO_LDS)
            keep_recent(x, (int)x->access, e->memory == TO_LDS);
    }
    if (e->role)
        arrive(w, x, e);
    if (x->checks & CHECK_UNSET && !LIKELY(x->settled && !x->touched_unset))
        compare_shadow(w, x, I, e);
}

INLINE void barrier_released(Launch *job, Wave *waves)
{
    if (job->checks & CHECK_BARRIERS)
        compare_barriers(job, waves);
    next_epoch(job, waves, job->observer);
}

INLINE void begin_group(Launch *job, Wave *waves)
{
    Checker *c = job->observer;
    memset(c->lds_state, GARBAGE, job->lds_bytes);
    c->same_low = c->same_high = 0;
    memset(c->lds_origin, 0, (size_t)job->lds_bytes / 4 * 4 + 4);
    memset(c->scratch_state, GARBAGE, (size_t)job->scratch_bytes * 64 * job->waves);
    for (u32 i = 0; i < job->waves; i++)
        start_watch(job, &waves[i], &c->watches[i], c);
    next_epoch(job, waves, c);
}

INLINE void end_group(Launch *job, Wave *waves) { (void)job, (void)waves; }

INLINE void end_launch(Launch *job, Wave *waves)
{
    Checker *c = job->observer;
    (void)waves;
    if (!c)
        return;
    void *parts[] = {c->shadows, c->watches, c->lds, c->lds_state, c->scratch, c->scratch_state, c->lds_origin, c->words, c->bytes, c->split, c->touched, c->only, c->loads, c};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
    job->observer = NULL;
}

INLINE int begin_launch(Launch *job, Wave *waves)
{
    size_t lds = job->lds_bytes, scratch = (size_t)job->scratch_bytes * 64 * job->waves;
    Checker *c = job->observer = calloc(1, sizeof(Checker));
    (void)waves;
    if (!c)
        return 0;
    c->shadows = aligned_alloc(64, sizeof(Wave) * job->waves);
    c->watches = calloc(job->waves, sizeof(Watch));
    c->lds = malloc(lds + 64), c->lds_state = malloc(lds + 64);
    c->scratch = malloc(scratch + 64), c->scratch_state = malloc(scratch + 64);
    c->lds_origin = calloc(lds / 4 + 1, sizeof(u32));
    c->words = calloc(lds / 4 + 1, sizeof(Cell)), c->bytes = calloc(lds + 4, sizeof(Cell));
    c->split = calloc(lds / 4 + 1, sizeof(u16));
    c->touched = calloc(lds / 4 + 4, sizeof(u16)), c->only = calloc(lds / 4 + 1, sizeof(u32));
    c->loads = malloc(sizeof(LocalAccess) * DEFERRED);
    int complete = c->loads && c->shadows && c->watches && c->lds && c->lds_state && c->scratch && c->scratch_state && c->lds_origin && c->words &&
                c->bytes && c->split && c->touched && c->only;
    if (!complete)
        end_launch(job, waves);
    return complete;
}
