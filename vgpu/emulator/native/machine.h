/* Structures of the machine: instructions, waves, launches. Python mirrors the structures in native.py; sizes are
 * compared when the library is loaded. LANES (32 or 64) is a compile-time constant: one library per wavefront width. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;

#define INLINE static inline __attribute__((always_inline))
#define SLOW __attribute__((noinline, cold))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define EACH_LANE for (int l = 0; l < LANES; l++)
#define ACTIVE_LANES(exec) for (u64 left_ = (exec); left_; left_ &= left_ - 1)
#define LANE __builtin_ctzll(left_)
#if LANES == 64
#define FULL (~(u64)0)
#else
#define FULL 0xffffffffull
#endif

/* Scalar registers by number: s0 to s105, then the names below. */
enum { VCC_LO = 106, TTMP0 = 108, NULL_REGISTER = 124, M0 = 125, EXEC_LO = 126, SCALARS = 128 };
/* Vector registers: v0 to v255, a0 to a255, and rows that hold a VOPD partner's result until both have read. */
enum { AGPR0 = 256, SPARE0 = 512, VECTORS = 514 };
enum { NOWHERE, SCALAR, VECTOR, CONSTANT, STATUS };           /* Operand.space */
enum { STATUS_SCC, STATUS_VCCZ, STATUS_EXECZ };               /* Operand.index of STATUS */
enum { SEL_DWORD, SEL_BYTE0, SEL_BYTE1, SEL_BYTE2, SEL_BYTE3, SEL_WORD0, SEL_WORD1 };
enum { WRITE_ALL, WRITE_LOW_KEEP, WRITE_HIGH_KEEP };          /* Instruction.write of 16-bit results */
enum { IN_GLOBAL, IN_LDS, IN_SCRATCH };                       /* spaces of memory */
enum { LOAD, STORE, ATOMIC };                                 /* kinds of access */
enum { RUNNING, AT_BARRIER, ENDED, FAULT };                   /* Wave.state */
enum {
    FAULT_NONE, FAULT_GLOBAL_READ, FAULT_GLOBAL_WRITE, FAULT_LDS, FAULT_SCRATCH, FAULT_RESOURCE, FAULT_WATCHDOG,
    FAULT_MISALIGNED, FAULT_JUMP, FAULT_M0, FAULT_STOPPED, FAULT_PENDING, FAULT_RACE, FAULT_BARRIER, FAULT_UNSET_STORE,
    FAULT_UNSET_ADDRESS, FAULT_UNSET_BRANCH, FAULT_UNSET_EXEC, FAULT_ASSERT, FAULT_TRAP, FAULT_HOSTCALL,
    FAULT_DESCRIPTOR, FAULT_TRANSPOSED, FAULT_GLOBAL_RACE, FAULT_STALE, FAULT_RACES_FULL
};
enum { MODE_FP16_OVFL = 1 << 23 }; /* Wave.mode: half results beyond the largest number become it */

typedef struct {
    u8 space, words, neg, abs, sext, sel, half, plain; /* plain: the register's row or the constant, unchanged */
    u32 index;
    u64 value;      /* of a constant, in the operand's type */
    const u32 *row; /* the constant for every lane; 64-bit values have their high words in a second row */
} Operand;

struct Wave;
struct Instruction;
struct Launch;
typedef void (*Handler)(struct Wave *, const struct Instruction *);

typedef struct Instruction {
    Handler handler;
    Operand d, sd, s[5];
    u32 opcode, target; /* target: index of the instruction that a branch goes to */
    i64 offset;
    i32 offset0, offset1;
    u64 address; /* from the kernel's first byte, of the next instruction */
    u8 clamp, op_sel, op_sel_hi, neg_lo, neg_hi, write, plain_write;
    u8 dpp, bound_ctrl, fetch_inactive, row_mask, bank_mask, dst_sel, dst_unused, addressing;
    u32 immediate, flags;
    i8 dpp_lane[64]; /* the lane that each lane reads; -1: none */
} Instruction;

/* Effects of an instruction besides its result, for variants that check (effects.py). Registers are numbered in one file: scalars,
 * vectors from SCALARS on, then SCC. */
enum { REGISTER_SCC = SCALARS + VECTORS, REGISTERS };
enum { NOT_COUNTED, LOADS, STORES, LOCAL, SCALAR_LOADS, COUNTERS, NO_WAIT = 255 }; /* kinds of operations that are waited for */
enum { NO_MEMORY, MEMORY, TO_LDS };      /* Effects.memory; TO_LDS: loads that write LDS and no register */
enum { NO_ROLE, BARRIER, BARRIER_SIGNAL, BARRIER_WAIT };
typedef struct {
    u16 first;
    u8 count, halves; /* halves: 1 low, 2 high, 3 both */
} Span;
typedef struct {
    Span spans[10];   /* `reads` spans, then `writes` spans */
    u8 reads, writes, kind, in_order, waits, scalar;
    u8 partial;       /* leaves part of a destination as it was even when every lane is on */
    u8 memory, atomic, high, role, data_words;
    u16 data;         /* a store's or atomic's data */
    u8 wait[6];       /* outstanding operations allowed, by kind */
    u8 coherence;     /* of global memory: see global_races.h */
} Effects;

typedef struct {
    u64 low, high;
    u64 to_host; /* what an address of the kernel lacks to be the host's */
    u32 writable, pad;
    u8 *unset; /* for the checking variant: by byte, whether no instruction has stored it yet; NULL when all of it has a value */
} Range;

typedef struct {
    u32 code, lane, wave, group[3];
    u64 instruction, address, bytes;
    u64 other;       /* the instruction of the other party */
    u32 other_wave, detail;
} FaultReport;

typedef struct Wave {
    u32 s[SCALARS];
    u32 v[VECTORS][LANES] __attribute__((aligned(64)));
    u32 scc, state, number, pc;
    u64 executed;
    u8 *lds, *scratch;
    u32 lds_bytes, scratch_bytes;
    const Range *ranges;
    u32 range_count, hint;
    u64 code_base, scratch_base;
    FaultReport *fault;
    void *observer; /* the variant's, for this wave */
    const struct Launch *job; /* NULL for a single instruction */
    u32 mode, group[3];
} Wave;

/* What a lane has printed. */
typedef struct {
    void *user;
    u32 group[3], wave, lane, error; /* error: to the standard error stream */
    const char *text;
    u64 bytes;
} Printed;

typedef struct Launch {
    const Instruction *program;
    u64 *counts;              /* executions per instruction */
    u32 length, entry, waves, lds_bytes, scratch_bytes, vgprs;
    u32 grid[3], user_sgprs, user_values, user[32]; /* what follows the values in user SGPRs is unset */
    u32 ids_in_ttmp, id_x, id_y, id_z, wave_offset, range_count, item_ids; /* item_ids: VGPRs with work-item ids */
    u64 seed, schedule, limit, code_base, scratch_base;
    const Range *ranges;
    u64 *next;                /* the next workgroup to run, shared by threads */
    u32 *stop;                /* set when one workgroup failed, shared by threads */
    u64 executed;
    FaultReport fault;
    void (*trace)(Wave *, u32);
    void *observer;           /* the variant's, for the complete launch */
    const Effects *effects;   /* of each instruction */
    u64 checks;               /* which checks are on */
    i64 first_address;        /* of the first instruction, from the kernel's first byte */
    void *host_buffer;        /* of host calls (hostcall.h), or NULL */
    void (*print)(const Printed *);
    void *print_user;
    struct HostCalls *host;   /* the thread's */
} Launch;

#if LANES == 64
#define EXEC_OF(wave) (*(u64 *)&(wave)->s[EXEC_LO])
#else
#define EXEC_OF(wave) ((wave)->s[EXEC_LO]) /* EXEC_HI enables no lane */
#endif
#define EXEC EXEC_OF(w)
#define SCC (w->scc)
#define PC (w->pc)

SLOW static void fault(Wave *w, u32 code, u32 lane, u64 address, u64 bytes)
{
    if (w->state == FAULT)
        return;
    w->state = FAULT;
    *w->fault = (FaultReport){.code = code, .lane = lane, .wave = w->number, .instruction = w->pc - 1, .address = address, .bytes = bytes};
}

/* Go to an address, which has to be an instruction's: instructions are in the order of addresses, each with the address of its next one. */
SLOW static void jump(Wave *w, u64 to)
{
    const Launch *job = w->job;
    i64 address = (i64)(to - w->code_base);
    u32 low = 0, high = job ? job->length : 0;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if ((i64)job->program[middle].address > address)
            high = middle;
        else
            low = middle + 1;
    }
    if (job && low < job->length && address == (low ? (i64)job->program[low - 1].address : job->first_address))
        w->pc = low;
    else
        fault(w, FAULT_JUMP, 0, to, 1);
}
