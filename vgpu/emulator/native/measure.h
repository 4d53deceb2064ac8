/* The measuring variant: traffic through LDS and global memory, added up per instruction.
 *
 * LDS: `banks` banks of 4 bytes; bank = address / 4 % banks. An access is split into phases of as many lanes as all banks can serve
 * at once (4 bytes: `banks` lanes, 8 bytes: half as many, 12 and 16: a quarter). Within a phase a bank serves one word a cycle;
 * lanes that want the same word are served together, atomics excepted. A phase takes as many cycles as its busiest bank has words.
 * `swizzled` gives reads of 16 bytes the order of lanes that CDNA's 64-lane waves have (docs/virtual-gpu-tools.md).
 * Global memory: distinct segments of 64 bytes per execution, and, as a bitmap, in the complete launch. */

enum { SEGMENT = 64, MOST_ACCESSES = 1024 };

typedef struct {
    u64 lanes;      /* sum over executions of lanes that EXEC has on */
    u64 bytes;      /* as lanes request them */
    u64 segments;   /* of global memory, distinct within an execution */
    u64 lds_cycles; /* of the banks */
    u64 lds_phases; /* the cycles that these accesses take without conflicts */
} MeasureRow;

typedef struct {
    MeasureRow *rows; /* one per instruction */
    u8 *touched[2];   /* a bit per segment, ranges one after another: loaded; stored or updated */
    const u64 *first; /* of each range: its first segment's number in the bitmaps */
    u32 banks, swizzled;
} Measure;

typedef struct {
    u64 address;
    u32 range;
    u8 space, kind, lane, bytes, turn; /* turn: how many accesses the lane has made before in this execution */
} MeasuredAccess;

/* One for all sets of handlers of a library: each is compiled alone and includes this file. */
typedef struct {
    u32 count;
    MeasuredAccess at[MOST_ACCESSES];
} Measured;

__attribute__((weak, visibility("hidden"))) __thread Measured measured;

INLINE void observe(Wave *w, const Instruction *I, int space, int kind, int lane, u64 address, u64 bytes)
{
    (void)I;
    if (measured.count == MOST_ACCESSES || (measured.count && measured.at[0].space != space)) /* a load to LDS counts as a load */
        return;
    MeasuredAccess *a = &measured.at[measured.count], *before = a - 1;
    *a = (MeasuredAccess){address, w->hint, (u8)space, (u8)kind, (u8)lane, (u8)bytes,
                          measured.count && before->lane == lane ? before->turn + 1 : 0};
    measured.count++;
}

INLINE int observe_global(Wave *w, const Instruction *I, int kind, const u64 *addresses, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)exec, (void)bytes;
    return 0;
}
INLINE int observe_local(Wave *w, const Instruction *I, int kind, const u32 (*addresses)[LANES], int count, u64 exec, u64 bytes)
{
    (void)w, (void)I, (void)kind, (void)addresses, (void)count, (void)exec, (void)bytes;
    return 0;
}

/* Phases lie next to each other except for CDNA's reads of 16 bytes: eight lanes of each half-wave, four and four apart. */
static u32 phase_of(const Measure *m, const MeasuredAccess *a)
{
    static const u8 quads[8] = {0, 1, 2, 3, 1, 0, 3, 2}; /* of lanes 0 to 31 in fours: 0:3 goes with 20:23, 4:7 with 16:19, ... */
    u32 words = a->bytes > 8 ? 4 : a->bytes > 4 ? 2 : 1, lanes = m->banks / words;
    if (m->swizzled && words == 4 && a->kind == LOAD && lanes == 8)
        return quads[a->lane % 32 / 4] + 4 * (a->lane / 32);
    return a->lane / (lanes ? lanes : 1);
}

static void measure_lds(const Measure *m, MeasureRow *row)
{
    u64 words[256];
    for (u32 turn = 0, seen = 0; seen < measured.count; turn++)
        for (u32 phase = 0; phase < 8; phase++) { /* 64 lanes of 16 bytes on 32 banks */
            u32 count = 0, any = 0;
            u8 load[64] = {0}, most = 0;
            for (u32 i = 0; i < measured.count; i++) {
                const MeasuredAccess *a = &measured.at[i];
                if (a->turn != turn || phase_of(m, a) != phase)
                    continue;
                any = 1, seen++;
                for (u64 word = a->address / 4; word <= (a->address + a->bytes - 1) / 4; word++) {
                    u32 j = 0;
                    while (a->kind != ATOMIC && j < count && words[j] != word)
                        j++;
                    if (a->kind != ATOMIC && j < count)
                        continue;
                    if (count < 256)
                        words[count++] = word;
                    u8 now = ++load[word % m->banks];
                    most = now > most ? now : most;
                }
            }
            row->lds_cycles += most;
            row->lds_phases += any;
        }
}

/* Cycles of one access of `bytes` by the active lanes, for tests; *phases without conflicts. */
__attribute__((weak)) u64 lds_cycles(u32 banks, u32 swizzled, u32 kind, u32 bytes, const u64 *addresses, u64 active, u64 *phases)
{
    const Measure m = {.banks = banks, .swizzled = swizzled};
    MeasureRow row = {0};
    measured.count = 0;
    for (u32 lane = 0; lane < 64; lane++)
        if (active >> lane & 1)
            measured.at[measured.count++] = (MeasuredAccess){addresses[lane], 0, IN_LDS, (u8)kind, (u8)lane, (u8)bytes, 0};
    measure_lds(&m, &row);
    *phases = row.lds_phases;
    return row.lds_cycles;
}

static void measure_global(const Measure *m, MeasureRow *row, const Wave *w)
{
    static __thread u64 table[4096], stamp[4096], now;
    now++;
    for (u32 i = 0; i < measured.count; i++) {
        const MeasuredAccess *a = &measured.at[i];
        for (u64 s = a->address / SEGMENT; s <= (a->address + a->bytes - 1) / SEGMENT; s++) {
            u32 slot = (u32)(s * 0x9e3779b97f4a7c15ull >> 52);
            while (stamp[slot] == now && table[slot] != s)
                slot = (slot + 1) % 4096;
            if (stamp[slot] == now)
                continue;
            stamp[slot] = now, table[slot] = s;
            row->segments++;
            u64 bit = m->first[a->range] + s - w->ranges[a->range].low / SEGMENT;
            u8 *byte = &m->touched[a->kind != LOAD][bit / 8], mask = (u8)(1 << bit % 8);
            if (!(*byte & mask))
                __atomic_fetch_or(byte, mask, __ATOMIC_RELAXED);
        }
    }
}

INLINE int begin_instruction(Launch *job, Wave *w, const Instruction *I)
{
    const Measure *m = job->observer;
    m->rows[I - job->program].lanes += (u64)__builtin_popcountll(EXEC & FULL);
    measured.count = 0;
    return 1;
}

INLINE void end_instruction(Launch *job, Wave *w, const Instruction *I)
{
    const Measure *m = job->observer;
    MeasureRow *row = &m->rows[I - job->program];
    if (LIKELY(!measured.count) || w->state == FAULT)
        return;
    for (u32 i = 0; i < measured.count; i++)
        row->bytes += measured.at[i].bytes;
    if (measured.at[0].space == IN_LDS)
        measure_lds(m, row);
    else if (measured.at[0].space == IN_GLOBAL)
        measure_global(m, row, w);
}

INLINE int begin_launch(Launch *job, Wave *waves) { return (void)waves, job->observer != NULL; }
INLINE void end_launch(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void begin_group(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void end_group(Launch *job, Wave *waves) { (void)job, (void)waves; }
INLINE void barrier_released(Launch *job, Wave *waves) { (void)job, (void)waves; }
