/* Programs from a file and launches on the process's own memory, for hosts that are not Python. Plain C types: the virtual HIP (C++) and
 * the interpreter's text both include this. vgpu/hip/blob.py writes the file and mirrors ServeFile. */
#ifndef AOTFORGE_SERVE_ABI_H
#define AOTFORGE_SERVE_ABI_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SERVE_MAGIC "AOTSERV1"
/* ServeParameter.source: an explicit argument, or a hidden one in the order of HIDDEN of arguments.py, or one that is not provided. */
enum { SERVE_EXPLICIT, SERVE_BLOCK_COUNT, SERVE_GROUP_SIZE = 4, SERVE_GRID_DIMS = 13, SERVE_DYNAMIC_LDS, SERVE_HIDDEN_NONE, SERVE_HOSTCALL, SERVE_ABSENT };
#define SERVE_ABSENT_TAG 0x5A7E0000u /* with its offset the high half of an address that no buffer has */

enum { SERVE_NONE = 0xffffffff, SERVE_FAULT_BYTES = 512, SERVE_UNSET = 2 };

typedef struct {
    uint32_t offset, size; /* in the kernarg segment */
    uint32_t source;
} ServeParameter;

typedef struct {
    char magic[8];
    uint64_t sizes[4];   /* size_of(0) to size_of(3) of the interpreter that the file is for */
    uint64_t bytes;      /* of the file; the offsets below count from its start */
    uint64_t launch_at;  /* a Launch without pointers */
    uint64_t program_at; /* Launch.length instructions; Operand.row is the row's number from 1, 0: none */
    uint64_t effects_at; /* as many Effects */
    uint64_t rows_at;    /* constant rows, 2 * LANES words each */
    uint64_t parameters_at;
    uint64_t image_at, image_bytes, kernel_at; /* the loaded image and the kernel's place in it; no bytes when nothing reads them */
    uint32_t row_count, parameter_count, threads, kernarg_bytes;
    uint32_t fixed_lds, effect_bytes;                   /* LDS of a workgroup before the dynamic part; size of an Effects */
    uint32_t kernarg_sgpr;                              /* the first of two user SGPRs that hold the segment's address, or SERVE_NONE */
    uint32_t preload_sgpr, preload_count, preload_first; /* dwords of the segment that user SGPRs hold, or SERVE_NONE */
    char kernel[256], arch[32], digest[72];             /* zero-terminated; SHA-256 of the image in hexadecimal */
} ServeFile;

typedef struct {
    uint64_t low, high;
    uint32_t writable, pad;
    uint8_t *unset; /* by byte, whether no instruction has stored it yet (SERVE_UNSET), for an interpreter that checks; or NULL */
} ServeRange;

/* What a lane has printed: Printed of machine.h. */
typedef struct {
    void *user;
    uint32_t group[3], wave, lane, error;
    const char *text;
    uint64_t bytes;
} ServePrinted;

typedef struct {
    const void *kernarg;
    uint32_t grid[3], lds_bytes; /* dynamic LDS, on top of the kernel's own */
    const ServeRange *ranges;
    uint64_t range_count, seed, schedule, limit; /* schedule 0: waves one after another between barriers */
    uint64_t checks;                             /* which ones, for an interpreter that checks */
    uint64_t *next;                              /* the next workgroup, shared by the threads of a launch */
    uint32_t *stop;                              /* set when one has failed, shared as well */
    void *host_buffer;                           /* of host calls, or NULL; then one thread has to do the launch */
    void (*print)(const ServePrinted *);
    uint64_t executed;                           /* out: wave-instructions */
    uint64_t fault_bytes;                        /* out: how many of `fault` are a FaultReport */
    uint32_t fault_code, pad;
    unsigned char fault[SERVE_FAULT_BYTES];
} ServeLaunch;

/* The buffer of host calls: its size, and how zeroed memory becomes one that the kernel finds at `address`. */
uint64_t host_buffer_bytes(void);
void host_buffer_start(void *memory, uint64_t address);
/* NULL when the file is damaged or for another interpreter. The file's memory must stay valid until serve_close. */
void *serve_open(const void *file, uint64_t bytes);
void serve_close(void *program);
/* One thread's share of a launch. 0, 1 after a fault, -1 without memory. */
int serve_run(const void *program, ServeLaunch *launch);

#ifdef __cplusplus
}
#endif
#endif
