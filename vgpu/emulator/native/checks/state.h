/* The checking variant: its state of each wave and workgroup. Hooks are in hooks.h and described in plain.h. */

#define SHADOWED 1 /* waves have shadows, whose accesses memory.h redirects */

enum { PENDING_LDS = 7 }; /* FaultReport.detail of FAULT_PENDING: the address is one of LDS, and no register */
enum { CHECK_WAITS = 1, CHECK_RACES = 2, CHECK_BARRIERS = 4, CHECK_UNSET = 8 }; /* Launch.checks */
/* A shadow's register or byte against its wave's: the same, stored in the shadow, or still the garbage of the start, complemented.
 * PENDING, of registers: an operation may still write it, see `pending`. */
enum { SAME, DIFFERS, GARBAGE, PENDING = 0x80 };
enum { LOGGED = 4 * LANES, RECENT = 64, DEFERRED = 512 };

/* An access to LDS that a wave may not have waited for; `low` and `high` bound its addresses. */
typedef struct {
    u32 number, pc, count, kind, bytes, low, high, wave;
    u32 address[2 * LANES];
} LocalAccess;

/* Who touched a dword or byte of LDS since the last barrier. A party: VALID, flags, wave, instruction. */
typedef struct {
    u32 writer, reader, other_reader;
    u16 write_epoch, read_epoch;
} Cell;
#define VALID (1u << 31)
#define CARRIED (1u << 30) /* from before the barrier, not waited for there */
#define BY_ATOMIC (1u << 29)
#define PARTY_WAVE(party) ((party) >> 24 & 31)
#define PARTY_PC(party) ((party) & 0xffffff)

/* A store to where another wave has been, and the bytes before it. */
typedef struct {
    u32 address, bytes, lane, other;
    u8 before[4];
} Suspect;

struct Checker;
typedef struct Watch {
    Wave *wave;
    Wave *shadow;
    struct Checker *checker;
    const Effects *effects; /* of the instruction that is executed */
    u64 checks;
    u32 pc, run_shadow, touched_unset, loading, settled; /* settled: no register differs */
    u32 issued[COUNTERS], done[COUNTERS]; /* by kind: how many operations, how many of the oldest are known to be complete */
    u32 pending[REGISTERS][2];            /* the operation that writes each half of a register: kind in 3 bits, number; 0: none */
    u32 pending_pc[REGISTERS][2];
    u8 state[REGISTERS + 8];              /* SAME, DIFFERS, GARBAGE; PENDING besides */
    u32 origin[REGISTERS];                /* 1 + the instruction that first read what the register's difference comes from */
    /* accesses of this instruction */
    u32 logged, shadow_logged, bytes, space, access;
    u32 low, high; /* bounds of those to LDS, in complete dwords */
    u64 address[LOGGED], returned[LOGGED];
    u8 lane[LOGGED];
    u32 rows, row[2][LANES]; /* rows > 0: the log is this many rows of addresses instead, of all lanes */
    u64 unset_data; /* lanes whose atomic operand differs */
    u32 barrier_pc, carry_from, carry_loads_from, signalled;
    u32 to_lds; /* the number of the newest load to LDS */
    u8 *scratch_state;
    FaultReport shadow_fault;
    u32 suspects;
    Suspect suspect[LOGGED];
    u64 sink[8]; /* where a shadow's global stores and atomics go */
    LocalAccess recent[RECENT], recent_to_lds[RECENT];
} Watch;

typedef struct Checker {
    Wave *shadows;
    Watch *watches;
    u8 *lds, *lds_state, *scratch, *scratch_state; /* the shadows' memory, and how it relates to the waves' */
    u32 *lds_origin;                               /* by dword */
    u32 same_low, same_high;                       /* bytes of LDS that are known to be the same */
    Cell *words, *bytes;
    u16 *split; /* by dword: the epoch of its last access of less than a dword */
    u16 *touched; /* by dword: the epoch of its last access */
    u32 *only;    /* by dword: the writer, while a store is the only access of this epoch; its cell is written when there is another */
    u32 epoch;
    u32 stored_low, stored_high; /* bounds what has been stored to LDS since the last barrier */
    u32 deferred;                /* loads that have been kept instead of recorded: see races.h */
    LocalAccess *loads;
} Checker;

#define EACH_BYTE 0x0101010101010101ull
#define NOT_SAME (EACH_BYTE * (u8)~PENDING)
/* Bits of the states of registers, in any of 8 bytes. Up to 7 states behind them are read. */
INLINE u64 span_states(const Watch *x, const Span *span)
{
    const u8 *bytes = &x->state[span->first];
    u64 found = 0, some;
    u32 count = span->count;
    for (; count > 8; count -= 8, bytes += 8) {
        memcpy(&some, bytes, 8);
        found |= some;
    }
    memcpy(&some, bytes, 8);
    return found | (some & (~(u64)0 >> (64 - 8 * count)));
}
INLINE void set_state(Watch *x, u32 r, u8 state) { x->state[r] = (u8)((x->state[r] & PENDING) | state); }

/* Bits of the states of all registers of an instruction, in any of 8 bytes: usually none, and then waits and shadow have nothing to do. */
INLINE u64 states_of(const Watch *x, const Effects *e)
{
    enum { USUAL = 4 }; /* spans, of 8 registers and less: no branches for them. Further ones of an instruction have a count of 0 */
    static const u64 masks[16] = {0, 0xff, 0xffff, 0xffffff, ~0u, ~0ull >> 24, ~0ull >> 16, ~0ull >> 8, ~0ull};
    u32 total = (u32)e->reads + e->writes, most = 0;
    u64 found = 0, some;
    for (u32 i = 0; i < USUAL; i++) {
        u32 r = e->spans[i].first, count = e->spans[i].count;
        memcpy(&some, &x->state[r], 8);
        found |= some & masks[count & 15];
        most = count > most ? count : most;
    }
    if (LIKELY(most <= 8 && total <= USUAL))
        return found;
    for (u32 i = 0; i < total; i++)
        found |= span_states(x, &e->spans[i]);
    return found;
}

/* A fault with another party. Only a wave's first fault counts. */
SLOW static void fault_with(Wave *w, u32 code, u32 lane, u64 address, u64 bytes, u32 other_wave, u64 other, u32 detail)
{
    if (w->state == FAULT)
        return;
    fault(w, code, lane, address, bytes);
    w->fault->instruction = ((Watch *)w->observer)->pc;
    w->fault->other = other;
    w->fault->other_wave = other_wave;
    w->fault->detail = detail;
}

/* Log an access of the active lanes. */
INLINE void log_lanes(Watch *x, const u64 *addresses, u64 exec)
{
    x->logged = 0;
    if (LIKELY(exec == FULL)) {
        memcpy(x->address, addresses, sizeof(u64) * LANES);
        EACH_LANE x->lane[l] = (u8)l;
        x->logged = LANES;
    } else
        ACTIVE_LANES(exec) { x->address[x->logged] = addresses[LANE], x->lane[x->logged++] = (u8)LANE; }
}

/* The same for LDS, `count` accesses of each lane. */
INLINE void log_rows(Watch *x, const u32 (*addresses)[LANES], int count, u64 exec)
{
    x->logged = 0;
    if (LIKELY(exec == FULL)) {
        memcpy(x->row, addresses, sizeof(u32) * LANES * (u32)count);
        x->rows = (u32)count, x->logged = LANES * (u32)count;
    } else
        ACTIVE_LANES(exec)
            for (int i = 0; i < count; i++)
                x->address[x->logged] = addresses[i][LANE], x->lane[x->logged++] = (u8)LANE;
}
INLINE u64 logged_address(const Watch *x, u32 k) { return x->rows ? x->row[k % x->rows][k / x->rows] : x->address[k]; }
INLINE u32 logged_lane(const Watch *x, u32 k) { return x->rows ? k / x->rows : x->lane[k]; }

INLINE u32 first_lane(const Wave *w) { return EXEC ? (u32)__builtin_ctzll(EXEC) : 0; }
