/* Launch any operator of the installed image packs by named values. For kernel writers: a new kernel family needs no change to
 * this library. C and C++. */
#ifndef AOTFORGE_LAUNCH_H
#define AOTFORGE_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#if defined(_MSC_VER)
#define AOTFORGE_API __declspec(dllimport)
#elif defined(_WIN32)
#define AOTFORGE_API
#else
#define AOTFORGE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum aotforge_type {
  AOTFORGE_PTR = 0,
  AOTFORGE_I32 = 1,
  AOTFORGE_I64 = 2,
  AOTFORGE_U64 = 3,
  AOTFORGE_F32 = 4
};

/* 24 bytes. `type` is an aotforge_type and names which member of `as` is set; `reserved` is 0. */
typedef struct aotforge_value {
  const char* name;
  int32_t type;
  int32_t reserved;
  union {
    const void* ptr;
    int32_t i32;
    int64_t i64;
    uint64_t u64;
    float f32;
  } as;
} aotforge_value;

/* Whose stream it is: the numbers of DLPack's DLDeviceType. */
enum aotforge_device { AOTFORGE_CPU = 1, AOTFORGE_CUDA = 2, AOTFORGE_HIP = 10 };

/* Queue `op` on `stream`, a hipStream_t, or with AOTFORGE_CUDA a CUstream (cudaStream_t), null for the default stream of the current
 * device. With AOTFORGE_CPU the stream is null, pointers are to the process' memory, and the call returns when `op` has finished. `values` holds each value of the operator exactly once, in any order, with the operator's type.
 *
 * 0, or the number of an error, which is the same in hipError_t and CUresult: 1 (InvalidValue) a value is missing, unknown, twice or
 * of another type; 101 (InvalidDevice) `device` is none of the above; 209 (NoBinaryForGpu) no image pack has the device's arch; 303
 * (SharedObjectInitFailed) the driver's library is not installed; 801 (NotSupported) no installed kernel serves the operator or these
 * values. Others as in docs/runtime.md. AOTRITON_LOG=warn in the environment explains each on stderr, no AOTRITON_LOG each reason once. */
AOTFORGE_API int aotforge_launch(const char* op, const aotforge_value* values, size_t count, int32_t device, void* stream);

/* The most threads of each launch with AOTFORGE_CPU that the calling thread makes from now on, itself included; 0, as at first: 1 inside an
 * OpenMP parallel region, else OpenMP's number where the process has OpenMP, else
 * OMP_NUM_THREADS, else the processors that the process may use. Returns what was set before. */
AOTFORGE_API uint32_t aotforge_cpu_threads(uint32_t threads);

#ifdef __cplusplus
}
#endif

#endif
