/* The checking variant: its state of each wave and workgroup. Hooks are in hooks.h and described in plain.h. */

#define SHADOWED 1 /* waves have shadows, whose accesses memory.h redirects */

enum { PENDING_LDS = 7 }; /* FaultReport.detail of FAULT_PENDING: the address is one of LDS, and no register */
enum { CHECK_WAITS = 1, CHECK_RACES = 2, CHECK_BARRIERS = 4, CHECK_UNSET = 8 }; /* Launch.checks */
/* A shadow's register or byte against its wave's: the same, stored in the shadow, or still the garbage of the start, complemented. */
enum { SAME, DIFFERS, GARBAGE };
enum { LOGGED = 4 * LANES, RECENT = 64 };

/* An access to LDS that a wave may not have waited for; `low` and `high` bound its addresses. */
typedef struct {
    u32 number, pc, count, kind, bytes, low, high;
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
    u32 pc, run_shadow, touched_unset, loading;
    u32 issued[COUNTERS], done[COUNTERS]; /* by kind: how many operations, how many of the oldest are known to be complete */
    u32 pending[REGISTERS][2];            /* the operation that writes each half of a register: kind in 3 bits, number; 0: none */
    u32 pending_pc[REGISTERS][2];
    u8 state[REGISTERS];                  /* SAME, DIFFERS, GARBAGE */
    u32 origin[REGISTERS];                /* 1 + the instruction that first read what the register's difference comes from */
    /* accesses of this instruction */
    u32 logged, shadow_logged, bytes, space, access;
    u64 address[LOGGED], returned[LOGGED];
    u8 lane[LOGGED];
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
    Cell *words, *bytes;
    u16 *split; /* by dword: the epoch of its last access of less than a dword */
    u32 epoch;
} Checker;

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

INLINE u32 first_lane(const Wave *w) { return EXEC ? (u32)__builtin_ctzll(EXEC) : 0; }
