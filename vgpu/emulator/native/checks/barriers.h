/* Divergent barriers: all waves of a workgroup wait at the same instruction, none has ended. And what a wave knows when it starts. */

enum { DIFFERENT_BARRIER, WAVE_ENDED, NOT_SIGNALLED, SIGNALLED_TWICE }; /* FaultReport.detail */

INLINE void arrive(Wave *w, Watch *x, const Effects *e)
{
    int check = !!(x->checks & CHECK_BARRIERS);
    if (e->role != BARRIER_WAIT) /* what is not complete now is not ordered by this barrier, nor what a wave does after its signal */
        x->carry_from = x->done[LOCAL], x->carry_loads_from = x->done[LOADS];
    if (e->role == BARRIER_SIGNAL) {
        if (check && x->signalled)
            fault_with(w, FAULT_BARRIER, 0, 0, 0, w->number, x->barrier_pc, SIGNALLED_TWICE);
        x->signalled = 1;
    } else if (e->role == BARRIER_WAIT) {
        if (check && !x->signalled)
            fault_with(w, FAULT_BARRIER, 0, 0, 0, w->number, x->pc, NOT_SIGNALLED);
        x->signalled = 0;
    }
    x->barrier_pc = x->pc;
}

static void compare_barriers(Launch *job, Wave *waves)
{
    Wave *first = NULL;
    for (u32 i = 0; i < job->waves && !first; i++)
        first = waves[i].state == AT_BARRIER ? &waves[i] : NULL;
    Watch *x = first->observer;
    for (u32 i = 0; i < job->waves; i++) {
        const Watch *y = waves[i].observer;
        if (waves[i].state == ENDED)
            fault_with(first, FAULT_BARRIER, 0, 0, 0, i, y->pc, WAVE_ENDED);
        else if (y->barrier_pc != x->barrier_pc)
            fault_with(first, FAULT_BARRIER, 0, 0, 0, i, y->barrier_pc, DIFFERENT_BARRIER);
    }
}

/* Registers that have a value when a wave starts, as start_wave (run.h) gives it. */
static void start_watch(Launch *job, Wave *w, Watch *x, Checker *c)
{
    Wave *t = &c->shadows[w->number];
    memset(x, 0, offsetof(Watch, suspect));
    memset(x->state, GARBAGE, sizeof x->state);
    memset(x->state, SAME, job->user_values);
    if (!job->ids_in_ttmp)
        memset(&x->state[job->user_sgprs], SAME, !!job->id_x + !!job->id_y + !!job->id_z + !!job->wave_offset);
    memset(&x->state[EXEC_LO], SAME, LANES / 32);
    if (job->ids_in_ttmp)
        memset(&x->state[TTMP0 + 7], SAME, 3);
    memset(&x->state[SCALARS], SAME, job->item_ids);
    x->checks = job->waves > 1 ? job->checks : job->checks & ~(u64)CHECK_RACES;
    x->shadow = t;
    x->wave = w;
    x->checker = c;
    x->scratch_state = c->scratch_state + (size_t)w->number * 64 * job->scratch_bytes;
    w->observer = x;
    t->number = w->number;
    t->lds = c->lds, t->lds_bytes = w->lds_bytes;
    t->scratch = c->scratch + (size_t)w->number * 64 * job->scratch_bytes, t->scratch_bytes = w->scratch_bytes;
    t->ranges = w->ranges, t->range_count = w->range_count, t->hint = 0;
    t->job = job;
    t->mode = w->mode;
    t->code_base = w->code_base, t->scratch_base = w->scratch_base;
    t->fault = &x->shadow_fault;
    t->observer = x;
}
