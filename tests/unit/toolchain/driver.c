/* Runs against the preloaded allocator; prints what it found wrong and exits with 1. `driver TEST [SEED]`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x) ((x) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #x), fflush(stdout), _exit(1)))
enum { SLOTS = 600 };
typedef struct { unsigned char *at; size_t size; unsigned char mark; } Shadow;
typedef int (*Begin)(const uint64_t *, uint32_t);

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}
static size_t any_size(uint64_t *r)
{
    switch (next(r) % 8) {
    case 0: return next(r) % 4;
    case 1: return 1 + next(r) % 70000;
    case 2: return next(r) % 40 ? 4096 * (next(r) % 40) : 3000000 + next(r) % 9000000;
    case 3: return (size_t)1 << next(r) % 18;
    default: return next(r) % 600;
    }
}
/* The complete block, usable bytes included, must still hold what was written: blocks that overlap do not. */
static void verify(const Shadow *s)
{
    for (size_t i = 0; i < s->size; i++)
        CHECK(s->at[i] == s->mark);
}
static void fill(Shadow *s, void *at, uint64_t *r)
{
    CHECK(at && (uintptr_t)at % 16 == 0);
    s->at = at, s->size = malloc_usable_size(at), s->mark = (unsigned char)next(r);
    memset(at, s->mark, s->size);
}
static void renew(Shadow *s, uint64_t *r)
{
    size_t size = any_size(r), align = (size_t)16 << next(r) % 12;
    void *at = NULL;
    if (s->at) {
        verify(s);
        if (next(r) % 3 == 0) {
            size_t kept = s->size < size ? s->size : size;
            CHECK((at = realloc(s->at, size)));
            for (size_t i = 0; i < kept; i++)
                CHECK(((unsigned char *)at)[i] == s->mark);
            CHECK(malloc_usable_size(at) >= size);
            fill(s, at, r);
            return;
        }
        free(s->at);
        s->at = NULL;
        if (next(r) % 2)
            return;
    }
    switch (next(r) % 5) {
    case 0:
        CHECK((at = calloc(size / 8 + 1, 8)));
        size = (size / 8 + 1) * 8;
        for (size_t i = 0; i < size; i++)
            CHECK(((char *)at)[i] == 0);
        break;
    case 1: CHECK((at = aligned_alloc(align, size)) && (uintptr_t)at % align == 0); break;
    case 2: CHECK(posix_memalign(&at, align, size) == 0 && (uintptr_t)at % align == 0); break;
    default: CHECK((at = malloc(size)));
    }
    CHECK(malloc_usable_size(at) >= size);
    fill(s, at, r);
}
static void *churn(void *seed)
{
    uint64_t r = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
    Shadow *slots = calloc(SLOTS, sizeof *slots);
    for (int i = 0; i < 8000; i++)
        renew(&slots[next(&r) % SLOTS], &r);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].at)
            verify(&slots[i]), free(slots[i].at);
    free(slots);
    return NULL;
}
static Begin begin(void)
{
    Begin found = (Begin)dlsym(RTLD_DEFAULT, "aotforge_heap_begin");
    CHECK(found);
    return found;
}

static void test_stress(uint64_t seed) { churn((void *)(uintptr_t)seed); }

static void test_threads(uint64_t seed)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(seed * 4 + i)) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* One thread frees what another one makes. */
static void *boxes[256];
static void *pass_on(void *seed)
{
    uint64_t r = (uint64_t)(uintptr_t)seed * 77 + 5;
    for (int i = 0; i < 60000; i++) {
        size_t size = 8 + any_size(&r) % 50000, *mine = malloc(size), *old;
        mine[0] = size;
        ((char *)mine)[size - 1] = (char)(size > 8 ? 7 : ((char *)mine)[size - 1]);
        if ((old = __atomic_exchange_n(&boxes[next(&r) % 256], mine, __ATOMIC_ACQ_REL))) {
            CHECK(malloc_usable_size(old) >= old[0] && (old[0] <= 8 || ((char *)old)[old[0] - 1] == 7));
            free(old);
        }
    }
    return NULL;
}
static void test_exchange(uint64_t seed)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, pass_on, (void *)(uintptr_t)(seed + i)) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

/* Forks at any moment, while other threads allocate: the child must find the lock free. */
static volatile int stop;
static void *until_stopped(void *seed)
{
    uint64_t r = (uint64_t)(uintptr_t)seed + 1;
    while (!stop)
        free(malloc(any_size(&r) % 2000));
    return NULL;
}
static void test_forks(uint64_t seed)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, until_stopped, (void *)(uintptr_t)(seed + i)) == 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            uint64_t r = seed + i + 1;
            Shadow slots[50] = {0};
            for (int k = 0; k < 300; k++)
                renew(&slots[next(&r) % 50], &r);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void test_limits(uint64_t seed)
{
    (void)seed;
    volatile size_t huge = SIZE_MAX, half = SIZE_MAX / 2 + 2;
    void *out = &out;
    errno = 0; CHECK(!malloc(huge) && errno == ENOMEM);
    errno = 0; CHECK(!malloc((size_t)1 << 40) && errno == ENOMEM);
    errno = 0; CHECK(!malloc(huge - 4096) && errno == ENOMEM);
    errno = 0; CHECK(!calloc(half, 2) && errno == ENOMEM);
    errno = 0; CHECK(!calloc(huge, huge) && errno == ENOMEM);
    errno = 0; CHECK(!reallocarray(NULL, half, 2) && errno == ENOMEM);
    errno = 0; CHECK(!aligned_alloc(48, 10) && errno == EINVAL);
    errno = 0; CHECK(!memalign(0, 10) && errno == EINVAL);
    errno = 0; CHECK(!aligned_alloc((size_t)1 << 50, 10) && errno == ENOMEM);
    errno = 0; CHECK(!aligned_alloc(4096, huge) && errno == ENOMEM);
    errno = 0; CHECK(!pvalloc(huge) && errno == ENOMEM);
    CHECK(posix_memalign(&out, 24, 8) == EINVAL && posix_memalign(&out, 4, 8) == EINVAL && out == &out);
    CHECK(posix_memalign(&out, 64, huge) == ENOMEM && out == &out);
    char *kept = malloc(100);
    memset(kept, 5, 100);
    errno = 0; CHECK(!realloc(malloc(200000), huge) && errno == ENOMEM);
    errno = 0; CHECK(!realloc(kept, huge) && errno == ENOMEM && kept[0] == 5 && kept[99] == 5);
    errno = 0; CHECK(!reallocarray(kept, half, 4) && errno == ENOMEM && kept[99] == 5);
    free(kept);
    errno = 3; free(malloc(5000000)); CHECK(errno == 3);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    void *empty = malloc(0), *other = malloc(0);
    CHECK(empty && other && empty != other);
    CHECK((uintptr_t)valloc(10) % 4096 == 0 && malloc_usable_size(pvalloc(4097)) >= 8192);
    CHECK((uintptr_t)memalign(1 << 20, 3000000) % (1 << 20) == 0);
    char *big = malloc((size_t)5 << 30); /* address space, not memory */
    CHECK(big);
    big[0] = 1, big[((size_t)5 << 30) - 1] = 1;
    CHECK((big = realloc(big, (size_t)6 << 30)) && big[0] == 1 && big[((size_t)5 << 30) - 1] == 1);
    free(big);
}

/* Large blocks: freed neighbours become one span again, and what was used is zero for calloc. */
static void test_reuse(uint64_t seed)
{
    (void)seed;
    char *a = malloc(100000), *b = malloc(100000), *c = malloc(100000), *d = malloc(100000);
    memset(b, 1, 100000), memset(c, 1, 100000);
    free(b), free(c);
    char *both = calloc(1, 200000);
    CHECK(both == b);
    for (int i = 0; i < 200000; i++)
        CHECK(both[i] == 0);
    free(both);
    CHECK(realloc(a, 250000) == a); /* into the free span behind it */
    free(d), free(a);
    CHECK(malloc(400000) == a);
    char *x = malloc(40), *y = malloc(33);
    CHECK(y == x + 48);
    free(x), free(y);
    CHECK(malloc(48) == y && malloc(48) == x && malloc(40) == y + 48);
}

/* A heap begins: its addresses depend on nothing that was requested before, nor on frees of older blocks. */
static void test_heaps(uint64_t seed)
{
    enum { N = 4000 };
    uint64_t pattern[2][N];
    uint64_t r = seed;
    for (int run = 0; run < 2; run++) {
        churn((void *)(uintptr_t)(seed * 2 + run));
        Shadow old[40] = {0};
        for (int i = 0; i < 40; i++)
            fill(&old[i], malloc(any_size(&r)), &r);
        CHECK(begin()(NULL, 0) == run + 1);
        uint64_t q = 99;
        void *kept[64] = {0};
        uint64_t home = (uint64_t)malloc(1) >> 38 << 38;
        for (int i = 0; i < N; i++) {
            int k = next(&q) % 64;
            free(kept[k]);
            kept[k] = malloc(any_size(&q));
            pattern[run][i] = (uint64_t)kept[k] - home;
            if (i % 100 == 0) {
                verify(&old[i / 100]);
                free(old[i / 100].at);
            }
        }
    }
    CHECK(memcmp(pattern[0], pattern[1], sizeof pattern[0]) == 0);
    for (int i = 3; i < 16; i++)
        CHECK(begin()(NULL, 0) == i);
    CHECK(begin()(NULL, 0) == -1 && begin()(NULL, 9) == -1);
    churn((void *)(uintptr_t)seed);
}

/* Only the named code gets the new heap; realloc of an older block moves there, or stays when its size class does. */
__attribute__((noinline, section("text_of_compiler"))) static void *compilers(size_t size)
{
    void *volatile made = malloc(size);
    return made;
}
__attribute__((noinline, section("text_of_compiler"))) static void *compilers_realloc(void *block, size_t size)
{
    void *volatile made = realloc(block, size);
    return made;
}
extern char __start_text_of_compiler[], __stop_text_of_compiler[];
static void test_callers(uint64_t seed)
{
    (void)seed;
    char *before = compilers(40), *older = compilers(40);
    uint64_t range[2] = {(uint64_t)__start_text_of_compiler, (uint64_t)(__stop_text_of_compiler - __start_text_of_compiler)};
    CHECK(begin()(range, 1) == 1);
    uint64_t home = (uint64_t)before >> 38;
    char *first = compilers(40), *ours = malloc(40), *second = compilers(40);
    CHECK((uint64_t)ours >> 38 == home && (uint64_t)first >> 38 == home + 1 && second == first + 48);
    CHECK(compilers_realloc(before, 44) == before);
    memset(older, 3, 40);
    char *moved = compilers_realloc(older, 400);
    CHECK((uint64_t)moved >> 38 == home + 1 && moved[39] == 3);
    free(second);
    CHECK(malloc(40) == older && compilers(40) == second);
}

int main(int count, char **arguments)
{
    static const struct { const char *name; void (*run)(uint64_t); } tests[] = {
        {"stress", test_stress}, {"threads", test_threads}, {"exchange", test_exchange}, {"forks", test_forks},
        {"limits", test_limits}, {"reuse", test_reuse}, {"heaps", test_heaps}, {"callers", test_callers},
    };
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (count > 1 && strcmp(arguments[1], tests[i].name) == 0)
            return tests[i].run(seed), 0;
    return 2;
}
