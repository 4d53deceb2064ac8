/* malloc for compile workers: addresses that depend on nothing but the order and sizes of requests.
 *
 * LLVM lets addresses decide in places where its own order leaves a choice. glibc's addresses depend on its version, its tunables
 * and on whatever else the process did before, so workers use this instead (LD_PRELOAD). Freestanding: system calls and
 * atomics only, so one library serves every glibc; the two weak references below are resolved where they exist.
 *
 * Address space: one reservation, at a fixed address where that is free and aligned to a heap in any case. In it, heap after heap of
 * HEAP bytes: heap 0 for everything, and another one from each heap_begin on. A heap is
 *     slot 0            its Heap and the table of large pages
 *     slot 1 + c        blocks of size class c, back to back, handed out ascending; freed ones last in, first out
 *     slot LARGE_SLOT   larger blocks, in pages: first fit among freed spans of a size, merged with their neighbours
 * A block's heap, class and size follow from its address: there are no headers. */

#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) || !defined(__linux__)
#error "compile workers run on x86-64 Linux"
#endif

typedef uint32_t u32;
typedef uint64_t u64;

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define SLOW static __attribute__((noinline, cold))
#define LIKELY(x) __builtin_expect(!!(x), 1)

enum { CLASSES = 40, BINS = 24, RANGES = 8, HEAPS = 16, NONE = 0 };
#define SLOT ((u64)1 << 32)
#define LARGE_SLOT (CLASSES + 1)
#define HEAP ((u64)1 << 38)
#define WANTED_BASE ((u64)0x100000000000)
#define PAGE ((u64)4096)
#define LARGE_PAGES ((u32)1 << 23) /* 32 GiB */
#define SMALL_MOST ((u64)32768)
#define GIVE_BACK ((u32)256) /* freed spans of this many pages go back to the system */
#define LOWEST_STEP ((u64)65536)
#define HIGHEST_STEP ((u64)1 << 20)

typedef struct Block { struct Block *next; } Block;
typedef struct { Block *freed; char *next, *ready, *end; u64 size; u64 pad[3]; } Class;
/* The first and last page of a span state its length and whether it is free; `next` and `previous` link free spans (0: none). */
typedef struct { u32 length, is_free, next, previous; } Page;
typedef struct {
    Class classes[CLASSES];
    u32 bins[BINS]; /* free spans by the logarithm of their length */
    u32 top, high, ready; /* pages from `top` on are no span's, from `high` on were never one's; below `ready` they can be used */
    char *large;
    Page *pages;
} Heap;

extern int *__errno_location(void) __attribute__((weak));
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
static void *handle; /* is for this library in __register_atfork */

static char *base;
static Heap *first, *job; /* heap 0; the heap of the requests that heap_begin named */
static u32 heaps, range_count;
static struct { u64 low, size; } ranges[RANGES];
static u32 locked;

/* ---- the system ---- */

enum { SYS_WRITE = 1, SYS_MMAP = 9, SYS_MPROTECT = 10, SYS_MUNMAP = 11, SYS_YIELD = 24, SYS_MADVISE = 28, SYS_EXIT = 231 };
enum { NO_MEMORY = 12, INVALID = 22 };

static long call(long number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
    register long r10 __asm__("r10") = (long)d, r8 __asm__("r8") = (long)e, r9 __asm__("r9") = (long)f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}

static int allow(void *at, u64 size) { return call(SYS_MPROTECT, (u64)at, size, 3, 0, 0, 0) == 0; }

SLOW void stop(const char *text, u64 length)
{
    call(SYS_WRITE, 2, (u64)text, length, 0, 0, 0);
    call(SYS_EXIT, 14, 0, 0, 0, 0, 0);
    __builtin_trap();
}
#define STOP(text) stop(text "\n", sizeof(text))

SLOW void *fail(int number)
{
    if (__errno_location)
        *__errno_location() = number;
    return NULL;
}

static void zero(void *at, u64 size) /* blocks are multiples of 16 bytes */
{
    typedef long long two __attribute__((vector_size(16)));
    if (LIKELY(size <= 512)) {
        for (u64 i = 0; i < size; i += 16)
            *(two *)((char *)at + i) = (two){0, 0};
        return;
    }
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(0) : "memory");
}
static void copy(void *to, const void *from, u64 size)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

/* ---- one lock: contention is rare, as a job is one thread until LLD links ---- */

SLOW void wait_for_lock(void)
{
    do
        call(SYS_YIELD, 0, 0, 0, 0, 0, 0);
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE));
}
INLINE void lock(void)
{
    if (!LIKELY(!__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE)))
        wait_for_lock();
}
static void unlock(void) { __atomic_store_n(&locked, 0, __ATOMIC_RELEASE); }

/* ---- heaps ---- */

SLOW void reserve(void)
{
    u64 size = HEAPS * HEAP, flags = 0x4022; /* private, anonymous, no swap reserved */
    long at = call(SYS_MMAP, WANTED_BASE, size, 0, flags | 0x100000 /* fixed, never over something */, (u64)-1, 0);
    if ((u64)at != WANTED_BASE) {
        if (at > 0)
            call(SYS_MUNMAP, (u64)at, size, 0, 0, 0, 0);
        at = call(SYS_MMAP, 0, size + HEAP, 0, flags, (u64)-1, 0);
        if (at < 0 && at > -4096)
            STOP("aotforge's allocator cannot reserve address space; lift the limit of `ulimit -v`");
        u64 aligned = ((u64)at + HEAP - 1) & ~(HEAP - 1);
        if (aligned != (u64)at)
            call(SYS_MUNMAP, (u64)at, aligned - (u64)at, 0, 0, 0, 0);
        call(SYS_MUNMAP, aligned + size, (u64)at + HEAP - aligned, 0, 0, 0, 0);
        at = (long)aligned;
    }
    base = (char *)at;
}

static u64 class_size(u32 c)
{
    u32 power = 7 + (c - 8) / 4, part = (c - 8) % 4;
    return c < 8 ? 16 * ((u64)c + 1) : ((u64)1 << power) + (((u64)part + 1) << (power - 2));
}

/* The next heap, or NULL when there is no more. */
SLOW Heap *new_heap(void)
{
    u64 table = (sizeof(Heap) + PAGE - 1) & ~(PAGE - 1);
    char *at = base + heaps * HEAP;
    Heap *h = (Heap *)at;
    if (heaps == HEAPS || !allow(at, table + LARGE_PAGES * sizeof(Page)))
        return NULL;
    for (u32 c = 0; c < CLASSES; c++) {
        Class *k = &h->classes[c];
        k->next = k->ready = at + (1 + c) * SLOT;
        k->end = k->next + SLOT;
        k->size = class_size(c);
    }
    h->pages = (Page *)(at + table);
    h->large = at + LARGE_SLOT * SLOT;
    h->top = h->high = h->ready = 1; /* page 0 is never used, so that 0 can mean none */
    heaps++;
    return h;
}

static void child(void) { unlock(); }
static void prepare(void) { lock(); }

SLOW void start(void)
{
    reserve();
    first = new_heap();
    if (!first)
        STOP("aotforge's allocator cannot get memory");
}

__attribute__((constructor)) static void loaded(void)
{
    if (__register_atfork)
        __register_atfork(prepare, unlock, child, &handle);
}

/* ---- small blocks ---- */

INLINE u32 class_of(u64 size)
{
    if (LIKELY(size <= 128))
        return size ? (u32)((size - 1) >> 4) : 0;
    u32 power = 63 - (u32)__builtin_clzll(size - 1);
    return 8 + (power - 7) * 4 + (u32)((size - 1) >> (power - 2) & 3);
}

SLOW void *extend(Class *k)
{
    char *slot = k->end - SLOT;
    u64 used = (u64)(k->ready - slot), step = used < LOWEST_STEP ? LOWEST_STEP : used > HIGHEST_STEP ? HIGHEST_STEP : used;
    if (step > (u64)(k->end - k->ready) || !allow(k->ready, step))
        return NULL;
    k->ready += step;
    char *block = k->next;
    k->next += k->size;
    return block;
}

INLINE void *small(Heap *h, u32 c)
{
    Class *k = &h->classes[c];
    Block *block = k->freed;
    if (LIKELY(block)) {
        k->freed = block->next;
        return block;
    }
    char *next = k->next;
    if (LIKELY(next + k->size <= k->ready)) {
        k->next = next + k->size;
        return next;
    }
    return extend(k);
}

/* ---- large blocks ---- */

static u32 bin_of(u32 length) { return 31 - (u32)__builtin_clz(length); }
static u64 pages_of(u64 size) { return size / PAGE + (size % PAGE != 0); } /* no size overflows this */

static void mark(Heap *h, u32 at, u32 length, u32 is_free)
{
    h->pages[at].length = h->pages[at + length - 1].length = length;
    h->pages[at].is_free = h->pages[at + length - 1].is_free = is_free;
}

static void link(Heap *h, u32 at, u32 length)
{
    u32 *bin = &h->bins[bin_of(length)];
    mark(h, at, length, 1);
    h->pages[at].previous = NONE;
    h->pages[at].next = *bin;
    if (*bin)
        h->pages[*bin].previous = at;
    *bin = at;
}

static void unlink(Heap *h, u32 at)
{
    Page *p = &h->pages[at];
    if (p->previous)
        h->pages[p->previous].next = p->next;
    else
        h->bins[bin_of(p->length)] = p->next;
    if (p->next)
        h->pages[p->next].previous = p->previous;
}

/* Pages that are no span's any more: merged with free neighbours, and with the unused rest. */
static void release(Heap *h, u32 at, u32 length)
{
    if (at > 1 && h->pages[at - 1].is_free) {
        u32 before = h->pages[at - 1].length;
        unlink(h, at - before);
        at -= before, length += before;
    }
    if (at + length < h->top && h->pages[at + length].is_free) {
        unlink(h, at + length);
        length += h->pages[at + length].length;
    }
    if (at + length == h->top)
        h->top = at;
    else
        link(h, at, length);
}

/* Makes space for `length` pages from `top` on. */
static int reach(Heap *h, u32 end)
{
    if (end <= h->ready)
        return 1;
    u32 step = (u32)(HIGHEST_STEP / PAGE), to = end > LARGE_PAGES - step ? LARGE_PAGES : (end + step - 1) & ~(step - 1);
    if (!allow(h->large + h->ready * PAGE, (to - h->ready) * PAGE))
        return 0;
    h->ready = to;
    return 1;
}

static u32 find(Heap *h, u32 length)
{
    for (u32 at = h->bins[bin_of(length)]; at; at = h->pages[at].next)
        if (h->pages[at].length >= length)
            return at;
    for (u32 bin = bin_of(length) + 1; bin < BINS; bin++)
        if (h->bins[bin])
            return h->bins[bin];
    return NONE;
}

/* A span of pages whose first one is a multiple of `align` (a power of two). `*fresh`: it is zero. */
static char *large(Heap *h, u64 size, u32 align, int *fresh)
{
    u64 wanted = pages_of(size) + (align - 1);
    if (wanted >= LARGE_PAGES)
        return NULL;
    u32 length = (u32)wanted, at = find(h, length), have;
    if (at) {
        have = h->pages[at].length;
        unlink(h, at);
        *fresh = 0;
    } else {
        at = h->top, have = length;
        if (length > LARGE_PAGES - at || !reach(h, at + length))
            return NULL;
        *fresh = at >= h->high;
        h->top = at + length;
        h->high = h->high > h->top ? h->high : h->top;
    }
    u32 aligned = (at + align - 1) & ~(align - 1), kept = length - (align - 1), end = at + have;
    mark(h, aligned, kept, 0);
    if (aligned + kept < end) {
        mark(h, aligned + kept, end - aligned - kept, 0);
        release(h, aligned + kept, end - aligned - kept);
    }
    if (at < aligned) {
        mark(h, at, aligned - at, 0);
        release(h, at, aligned - at);
    }
    return h->large + aligned * PAGE;
}

/* Makes a span longer or shorter where it is. */
static int resize(Heap *h, u32 at, u64 size)
{
    u64 wanted = pages_of(size);
    u32 length = h->pages[at].length, end = at + length;
    if (wanted >= LARGE_PAGES)
        return 0;
    if (wanted > length) {
        u32 more = (u32)wanted - length;
        if (end == h->top) {
            if (more > LARGE_PAGES - end || !reach(h, end + more))
                return 0;
            h->top = end + more;
            h->high = h->high > h->top ? h->high : h->top;
        } else {
            u32 have = h->pages[end].length;
            if (!h->pages[end].is_free || have < more)
                return 0;
            unlink(h, end);
            if (have > more)
                link(h, end + more, have - more);
        }
    }
    mark(h, at, (u32)wanted, 0);
    if (wanted < length)
        release(h, at + (u32)wanted, length - (u32)wanted);
    return 1;
}

static void free_large(Heap *h, u32 at)
{
    u32 length = h->pages[at].length;
    if (length >= GIVE_BACK)
        call(SYS_MADVISE, (u64)(h->large + at * PAGE), length * PAGE, 4 /* don't need */, 0, 0, 0);
    release(h, at, length);
}

/* ---- any block ---- */

INLINE Heap *heap_for(void *caller)
{
    if (!LIKELY(first))
        start();
    if (!job)
        return first;
    if (!range_count)
        return job;
    for (u32 i = 0; i < range_count; i++)
        if ((u64)caller - ranges[i].low < ranges[i].size)
            return job;
    return first;
}

INLINE Heap *heap_of(const void *block) { return (Heap *)((u64)block & ~(HEAP - 1)); }
INLINE int is_ours(const void *block) { return (u64)((char *)block - base) < heaps * HEAP; }
INLINE u64 slot_of(const void *block) { return ((u64)block & (HEAP - 1)) / SLOT; }
INLINE u32 page_of(Heap *h, const void *block) { return (u32)((u64)((char *)block - h->large) / PAGE); }

INLINE u64 usable(const void *block)
{
    Heap *h = heap_of(block);
    u64 slot = slot_of(block);
    return slot < LARGE_SLOT ? h->classes[slot - 1].size : h->pages[page_of(h, block)].length * PAGE;
}

INLINE void *obtain(Heap *h, u64 size, int *fresh)
{
    void *block = NULL;
    *fresh = 0;
    if (LIKELY(size <= SMALL_MOST))
        block = small(h, class_of(size));
    return LIKELY(block) ? block : large(h, size, 1, fresh);
}

INLINE void put_back(void *block)
{
    Heap *h = heap_of(block);
    u64 slot = slot_of(block);
    if (LIKELY(slot < LARGE_SLOT)) {
        Class *k = &h->classes[slot - 1];
        ((Block *)block)->next = k->freed;
        k->freed = block;
    } else
        free_large(h, page_of(h, block));
}

static void *aligned(void *caller, u64 align, u64 size)
{
    void *block = NULL;
    int fresh;
    lock();
    Heap *h = heap_for(caller);
    if (size <= SMALL_MOST && align <= PAGE) {
        u32 c = class_of(size > align ? size : align);
        while (c < CLASSES && class_size(c) & (align - 1))
            c++;
        block = c < CLASSES ? small(h, c) : NULL;
    }
    if (!block && align <= SLOT && size < LARGE_PAGES * PAGE)
        block = large(h, size ? size : 1, align > PAGE ? (u32)(align / PAGE) : 1, &fresh);
    unlock();
    return block;
}

INLINE void *allocate(void *caller, u64 size)
{
    int fresh;
    lock();
    void *block = obtain(heap_for(caller), size, &fresh);
    unlock();
    return LIKELY(block) ? block : fail(NO_MEMORY);
}

INLINE void *reallocate(void *caller, void *block, u64 size)
{
    if (!block)
        return allocate(caller, size);
    if (!is_ours(block))
        STOP("aotforge's allocator was given a block that is not its own");
    int fresh;
    lock();
    Heap *h = heap_for(caller), *own = heap_of(block);
    u64 slot = slot_of(block), have = usable(block);
    void *result = NULL;
    if (slot < LARGE_SLOT ? size <= SMALL_MOST && class_of(size) == slot - 1
                          : size > SMALL_MOST && pages_of(size) == have / PAGE)
        result = block;
    else if (slot >= LARGE_SLOT && size > SMALL_MOST && own == h && resize(h, page_of(h, block), size))
        result = block;
    else if ((result = obtain(h, size, &fresh))) {
        unlock(); /* both blocks are the caller's: copying needs no lock */
        copy(result, block, have < size ? have : size);
        lock();
        put_back(block);
    }
    unlock();
    return LIKELY(result) ? result : fail(NO_MEMORY);
}

/* ---- what programs call ---- */

#define CALLER __builtin_return_address(0)

EXPORT void *malloc(size_t size) { return allocate(CALLER, size); }

EXPORT void free(void *block)
{
    if (!block || !LIKELY(is_ours(block))) /* the loader's first blocks are its own */
        return;
    lock();
    put_back(block);
    unlock();
}

EXPORT void *calloc(size_t count, size_t size)
{
    u64 total;
    int fresh;
    if (__builtin_mul_overflow(count, size, &total))
        return fail(NO_MEMORY);
    lock();
    void *block = obtain(heap_for(CALLER), total, &fresh);
    unlock();
    if (!block)
        return fail(NO_MEMORY);
    if (!fresh)
        zero(block, total);
    return block;
}

EXPORT void *realloc(void *block, size_t size) { return reallocate(CALLER, block, size); }

EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
    u64 total;
    return __builtin_mul_overflow(count, size, &total) ? fail(NO_MEMORY) : reallocate(CALLER, block, total);
}

INLINE int is_power(u64 n) { return n && !(n & (n - 1)); }

INLINE void *align_or_fail(void *caller, u64 align, u64 size)
{
    if (!is_power(align))
        return fail(INVALID);
    void *block = aligned(caller, align, size);
    return block ? block : fail(NO_MEMORY);
}

EXPORT void *memalign(size_t align, size_t size) { return align_or_fail(CALLER, align, size); }
EXPORT void *aligned_alloc(size_t align, size_t size) { return align_or_fail(CALLER, align, size); }
EXPORT void *valloc(size_t size) { return align_or_fail(CALLER, PAGE, size); }

EXPORT void *pvalloc(size_t size)
{
    return size > SIZE_MAX - PAGE ? fail(NO_MEMORY) : align_or_fail(CALLER, PAGE, (size + PAGE - 1) & ~(PAGE - 1));
}

EXPORT int posix_memalign(void **block, size_t align, size_t size)
{
    if (!is_power(align) || align % sizeof(void *))
        return INVALID;
    void *made = aligned(CALLER, align, size);
    if (!made)
        return NO_MEMORY;
    *block = made;
    return 0;
}

EXPORT size_t malloc_usable_size(void *block) { return block && is_ours(block) ? usable(block) : 0; }

/* From here on, requests made by code in one of `count` address ranges (pairs of first address and bytes; none: all code) are served by a
 * heap without any block. Blocks of other heaps stay valid. Returns the heap's number, or -1 when there is no more. */
EXPORT int aotforge_heap_begin(const u64 *pairs, u32 count)
{
    if (count > RANGES)
        return -1;
    lock();
    if (!first)
        start();
    Heap *made = new_heap();
    if (made) {
        job = made;
        range_count = count;
        for (u32 i = 0; i < count; i++)
            ranges[i].low = pairs[2 * i], ranges[i].size = pairs[2 * i + 1];
    }
    int number = made ? (int)heaps - 1 : -1;
    unlock();
    return number;
}
