/* Wait counters. A counted operation gets the next number of its kind; waiting until at most n are outstanding completes all but the
 * last n of kinds that complete in order, and for scalar loads, which do not, everything when n is 0 and nothing otherwise. Kinds that share a
 * counter (LDS and scalar loads before gfx12) cannot complete each other. A register is pending until its operation is complete, each half for itself where loads
 * of 16 bits leave the other half alone. */

enum { NUMBER_BITS = 29, NUMBER = (1 << NUMBER_BITS) - 1 };

INLINE int is_pending(const Watch *x, u32 operation)
{
    return operation && (operation & NUMBER) > x->done[operation >> NUMBER_BITS];
}

/* An operation may overwrite what an earlier one of the same kind still writes when the kind completes in order. */
INLINE int touches_pending(Wave *w, Watch *x, const Effects *e)
{
    if (!x->loading)
        return 0;
    for (u32 i = 0; i < (u32)e->reads + e->writes; i++) {
        if (LIKELY(!(span_states(x, &e->spans[i]) & EACH_BYTE * PENDING)))
            continue;
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++) {
            if (!is_pending(x, x->pending[r][0]) && !is_pending(x, x->pending[r][1]))
                x->state[r] &= (u8)~PENDING;
            for (u32 half = 0; half < 2; half++) {
                u32 operation = x->pending[r][half];
                if (LIKELY(!is_pending(x, operation)) || !(e->spans[i].halves >> half & 1))
                    continue;
                if (i >= e->reads && e->in_order && operation >> NUMBER_BITS == e->kind)
                    continue;
                fault_with(w, FAULT_PENDING, first_lane(w), r, i < e->reads, w->number, x->pending_pc[r][half], operation >> NUMBER_BITS);
                return 1;
            }
        }
    }
    return 0;
}

INLINE void wait_for(Watch *x, const Effects *e)
{
    for (u32 kind = LOADS; kind < COUNTERS; kind++) {
        u32 most = e->wait[kind];
        if (most == NO_WAIT || (kind == SCALAR_LOADS && most))
            continue;
        if (x->issued[kind] - x->done[kind] > most)
            x->done[kind] = x->issued[kind] - most;
    }
    x->loading = 0;
    for (u32 kind = LOADS; kind < COUNTERS; kind++)
        x->loading |= x->issued[kind] != x->done[kind];
}

INLINE void issue(Watch *x, const Effects *e)
{
    u32 operation = (u32)e->kind << NUMBER_BITS | (++x->issued[e->kind] & NUMBER);
    for (u32 i = e->reads; i < (u32)e->reads + e->writes; i++)
        for (u32 r = e->spans[i].first, end = r + e->spans[i].count; r < end; r++) {
            x->state[r] |= PENDING;
            for (u32 half = 0; half < 2; half++)
                if (e->spans[i].halves >> half & 1)
                    x->pending[r][half] = operation, x->pending_pc[r][half] = x->pc;
        }
    x->loading = 1;
}
