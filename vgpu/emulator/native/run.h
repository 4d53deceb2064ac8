/* Running workgroups: start state, schedules, barriers, the watchdog. */

static u64 draw(u64 *state) /* splitmix64 */
{
    u64 z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void fill(void *at, size_t bytes, u64 *state)
{
    enum { STREAMS = 16 }; /* side by side, for vector units */
    u64 x[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        x[i] = draw(state) | 1;
    for (size_t done = 0; done < bytes; done += sizeof x) {
        for (int i = 0; i < STREAMS; i++)
            x[i] ^= x[i] << 13, x[i] ^= x[i] >> 7, x[i] ^= x[i] << 17;
        memcpy((u8 *)at + done, x, bytes - done < sizeof x ? bytes - done : sizeof x);
    }
}

/* Run until the wave ends, waits at a barrier, fails, or has done `quota` instructions. */
static void run_wave(Launch *job, Wave *w, u64 quota)
{
    u64 done = 0;
    while (w->state == RUNNING && done < quota) {
        u32 pc = w->pc++;
        const Instruction *I = &job->program[pc];
        job->counts[pc]++;
        done++;
        if (LIKELY(begin_instruction(job, w, I))) {
            I->handler(w, I);
            end_instruction(job, w, I);
        }
        if (job->trace)
            job->trace(w, pc);
        if (w->state == RUNNING && w->pc >= job->length) {
            fault(w, FAULT_JUMP, 0, w->pc, 0);
            w->fault->instruction = pc;
        }
    }
    w->executed += done;
}

static void start_wave(const Launch *job, Wave *w, u32 number, const u32 *group, u64 *random)
{
    fill(w->s, sizeof w->s, random);
    fill(w->v, sizeof(u32) * LANES * job->vgprs, random);
    fill(w->v[AGPR0], sizeof(u32) * LANES * job->vgprs, random);
    w->scc = (u32)draw(random) & 1;
    w->state = RUNNING;
    w->number = number;
    w->pc = job->entry;
    w->executed = 0;
    w->job = job;
    w->mode = 0;
    memcpy(w->group, group, sizeof w->group);
    w->code_base = job->code_base;
    w->scratch_base = job->scratch_base + (u64)number * 64 * job->scratch_bytes;
    memcpy(w->s, job->user, sizeof(u32) * job->user_values);
    u32 next = job->user_sgprs;
    if (job->ids_in_ttmp) {
        w->s[TTMP0 + 9] = group[0];
        w->s[TTMP0 + 7] = (group[1] & 0xffff) | group[2] << 16;
        w->s[TTMP0 + 8] = number << 25;
    } else {
        if (job->id_x)
            w->s[next++] = group[0];
        if (job->id_y)
            w->s[next++] = group[1];
        if (job->id_z)
            w->s[next++] = group[2];
        if (job->wave_offset)
            w->s[next++] = (u32)(number * 64 * job->scratch_bytes);
    }
    EACH_LANE
    {
        w->v[0][l] = number * LANES + (u32)l; /* work-item id x; y and z are zero, packed or in v1, v2 where the kernel needs them */
        for (u32 i = 1; i < job->item_ids; i++)
            w->v[i][l] = 0;
    }
    EXEC = FULL;
}

/* Waves of one workgroup, between barriers one after another, or in a seeded random order in slices of random length. */
static void run_group(Launch *job, Wave *waves, u64 *random)
{
    for (;;) {
        u32 ready = 0, waiting = 0;
        u64 spent = 0;
        for (u32 i = 0; i < job->waves; i++) {
            ready += waves[i].state == RUNNING;
            waiting += waves[i].state == AT_BARRIER;
            spent += waves[i].executed;
            if (waves[i].state == FAULT)
                return;
        }
        if (__atomic_load_n(job->stop, __ATOMIC_RELAXED))
            return;
        if (!ready && !waiting)
            return;
        if (!ready) {
            barrier_released(job, waves);
            for (u32 i = 0; i < job->waves; i++)
                if (waves[i].state == AT_BARRIER)
                    waves[i].state = RUNNING;
            continue;
        }
        u32 pick = 0;
        u64 left = spent < job->limit ? job->limit - spent : 0, slice = left;
        if (job->schedule) {
            for (u32 skip = (u32)(draw(random) % ready);; pick++)
                if (waves[pick].state == RUNNING && skip-- == 0)
                    break;
            u64 length = 1 + draw(random) % (draw(random) % 4 ? 40 : 2000);
            slice = length < left ? length : left;
        } else
            while (waves[pick].state != RUNNING)
                pick++;
        if (!left) {
            fault(&waves[pick], FAULT_WATCHDOG, 0, 0, spent);
            waves[pick].fault->instruction = waves[pick].pc;
            return;
        }
        run_wave(job, &waves[pick], slice);
    }
}

/* Take workgroups from `next` until none is left or one has failed. Returns 0, or 1 after a fault, -1 without memory. */
int run(Launch *job)
{
    u64 total = (u64)job->grid[0] * job->grid[1] * job->grid[2];
    Wave *waves = aligned_alloc(64, sizeof(Wave) * job->waves);
    u8 *lds = malloc((size_t)job->lds_bytes + 64), *scratch = malloc((size_t)job->scratch_bytes * 64 * job->waves + 64);
    job->host = job->host_buffer ? calloc(1, sizeof *job->host) : NULL;
    int result = waves && lds && scratch && (job->host || !job->host_buffer) && begin_launch(job, waves) ? 0 : -1;
    while (!result) {
        u64 number = __atomic_fetch_add(job->next, 1, __ATOMIC_RELAXED), random = job->seed + number * 0x632be59bd9b4e019ull;
        if (number >= total || __atomic_load_n(job->stop, __ATOMIC_RELAXED))
            break;
        u64 plane = (u64)job->grid[0] * job->grid[1];
        u32 group[3] = {(u32)(number % job->grid[0]), (u32)(number % plane / job->grid[0]), (u32)(number / plane)};
        fill(lds, job->lds_bytes, &random);
        fill(scratch, (size_t)job->scratch_bytes * 64 * job->waves, &random);
        for (u32 i = 0; i < job->waves; i++) {
            Wave *w = &waves[i];
            start_wave(job, w, i, group, &random);
            w->lds = lds;
            w->lds_bytes = job->lds_bytes;
            w->scratch = scratch + (size_t)i * 64 * job->scratch_bytes;
            w->scratch_bytes = job->scratch_bytes;
            w->ranges = job->ranges;
            w->range_count = job->range_count;
            w->hint = 0;
            w->fault = &job->fault;
        }
        begin_group(job, waves);
        run_group(job, waves, &random);
        end_group(job, waves);
        for (u32 i = 0; i < job->waves; i++) {
            job->executed += waves[i].executed;
            if (waves[i].state == FAULT) {
                memcpy(job->fault.group, group, sizeof group);
                __atomic_store_n(job->stop, 1, __ATOMIC_RELAXED);
                result = 1;
            }
        }
    }
    if (result >= 0)
        end_launch(job, waves);
    for (u32 i = 0; job->host && i < HOST_MESSAGES; i++)
        free(job->host->messages[i].words);
    free(job->host);
    free(waves);
    free(lds);
    free(scratch);
    return result;
}

/* One instruction on registers that the caller has filled: what tests of single instructions use. */
void step(Wave *w, const Instruction *I) { I->handler(w, I); }

u64 host_buffer_bytes(void) { return sizeof(HostBuffer); }

/* Make zeroed memory the buffer of host calls, which the kernel finds at `address`: all packets are free, and the signal has a mailbox, so that
 * kernels send an interrupt. */
void host_buffer_start(void *memory, u64 address)
{
    HostBuffer *b = memory;
    b->headers = address + offsetof(HostBuffer, header);
    b->payloads = address + offsetof(HostBuffer, payload);
    b->doorbell = address + offsetof(HostBuffer, signal);
    b->signal[2] = address + offsetof(HostBuffer, mailbox);
    b->index_mask = HOST_PACKETS - 1;
    for (u64 i = 0; i < HOST_PACKETS; i++) {
        b->header[i].next = b->free_stack;
        b->free_stack = HOST_PACKETS | i;
    }
}

u64 size_of(int what) { return what == 0 ? sizeof(Instruction) : what == 1 ? sizeof(Wave) : what == 2 ? sizeof(Launch) : LANES; }
