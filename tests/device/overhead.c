/* overhead: time on the host of aotforge_add on 256 elements, beside a launch of an empty kernel by CUDA's driver.
 * cc -O2 tests/device/overhead.c -IPREFIX/include -LPREFIX/lib -Wl,-rpath,PREFIX/lib -laotforge_ops -ldl -o overhead
 * Exit status 0: measured; 77: no driver or device here; 1: anything else. */
#define _POSIX_C_SOURCE 200809L
#include <aotforge/ops.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 200, ROUNDS = 41, SKIPPED = 77 };

static const char k_empty[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f) { ret; }\n";

typedef int (*Init)(unsigned);
typedef int (*Retain)(void**, int);
typedef int (*Current)(void*);
typedef int (*Allocate)(unsigned long long*, size_t);
typedef int (*Load)(void**, const void*);
typedef int (*Function)(void**, void*, const char*);
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
typedef int (*Wait)(void);

static void* g_driver;
static aotforge_tensor g_tensors[3];
static void *g_kernel, *g_stream;
static Launch g_launch;

#define DRIVER(type, name) (*(type*)symbol(name))
static void* symbol(const char* name) {
  static void* found;
  found = dlsym(g_driver, name);
  if (found == NULL) {
    fprintf(stderr, "the driver has no %s\n", name);
    exit(1);
  }
  return &found;
}

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int add(void) { return aotforge_add(&g_tensors[0], &g_tensors[1], 1.0, &g_tensors[2], g_stream); }

static int launch(void) {
  static unsigned long long values[6];
  static void* arguments[6];
  int i;
  for (i = 0; i < 6; ++i) arguments[i] = &values[i];
  return g_launch(g_kernel, 1, 1, 1, 128, 1, 1, 0, g_stream, arguments, NULL);
}

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

/* Median time of a call, or -1. The queue takes CALLS launches without waiting. */
static double time_of(int (*call)(void), Wait wait) {
  static double rounds[ROUNDS];
  int round, i;
  for (round = 0; round < ROUNDS; ++round) {
    double begin;
    if (wait()) return -1;
    begin = microseconds();
    for (i = 0; i < CALLS; ++i)
      if (call()) return -1;
    rounds[round] = (microseconds() - begin) / CALLS;
  }
  qsort(rounds, ROUNDS, sizeof rounds[0], compare);
  return rounds[ROUNDS / 2];
}

static int start(void) {
  void *context = NULL, *module = NULL;
  g_driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (g_driver == NULL || DRIVER(Init, "cuInit")(0) != 0) return SKIPPED;
  if (DRIVER(Retain, "cuDevicePrimaryCtxRetain")(&context, 0) || DRIVER(Current, "cuCtxSetCurrent")(context)) return 1;
  g_launch = DRIVER(Launch, "cuLaunchKernel");
  return DRIVER(Load, "cuModuleLoadData")(&module, k_empty) || DRIVER(Function, "cuModuleGetFunction")(&g_kernel, module, "empty") ||
         DRIVER(Retain, "cuStreamCreate")(&g_stream, 0);
}

int main(void) {
  static int64_t shape[] = {256};
  const int status = start();
  double bare, ours;
  Wait wait;
  int i;
  if (status != 0) {
    printf("no driver or device\n");
    return status;
  }
  for (i = 0; i < 3; ++i) {
    unsigned long long address = 0;
    aotforge_tensor* tensor = &g_tensors[i];
    if (DRIVER(Allocate, "cuMemAlloc_v2")(&address, 512)) return 1;
    memset(tensor, 0, sizeof *tensor);
    memcpy(&tensor->data, &address, sizeof address);
    tensor->device_type = AOTFORGE_DEVICE_CUDA;
    tensor->ndim = 1;
    tensor->dtype.code = AOTFORGE_FLOAT;
    tensor->dtype.bits = 16;
    tensor->dtype.lanes = 1;
    tensor->shape = shape;
  }
  wait = DRIVER(Wait, "cuCtxSynchronize");
  if (add() != 0) {
    fprintf(stderr, "%s\n", aotforge_ops_error());
    return 1;
  }
  bare = time_of(launch, wait);
  ours = time_of(add, wait);
  if (bare < 0 || ours < 0) return 1;
  printf("host time of a call: aotforge_add %.2f us, bare launch %.2f us, difference %.2f us\n", ours, bare, ours - bare);
  return 0;
}
