/* A tensor as the operator library takes it: the layout of DLPack's DLTensor, to which a pointer may be cast. C and C++. */
#ifndef AOTFORGE_TENSOR_H
#define AOTFORGE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#if defined(_MSC_VER)
#define AOTFORGE_OPS_API __declspec(dllimport)
#elif defined(_WIN32)
#define AOTFORGE_OPS_API
#else
#define AOTFORGE_OPS_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers of DLPack's DLDataTypeCode. */
enum aotforge_type_code { AOTFORGE_INT = 0, AOTFORGE_UINT = 1, AOTFORGE_FLOAT = 2, AOTFORGE_BFLOAT = 4, AOTFORGE_BOOL = 6 };

/* The numbers of DLPack's DLDeviceType for devices that are served. */
enum aotforge_device_type { AOTFORGE_DEVICE_CPU = 1, AOTFORGE_DEVICE_CUDA = 2, AOTFORGE_DEVICE_ROCM = 10 };

/* float16 is {AOTFORGE_FLOAT, 16, 1}. */
typedef struct aotforge_element_type {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* 1 */
} aotforge_element_type;

typedef struct aotforge_tensor {
  void* data;
  int32_t device_type; /* aotforge_device_type */
  int32_t device_id;
  int32_t ndim;
  aotforge_element_type dtype;
  int64_t* shape;   /* ndim sizes; read only */
  int64_t* strides; /* ndim strides in elements, or null: contiguous in the order of axes; read only */
  uint64_t byte_offset; /* from `data` to the first element */
} aotforge_tensor;

/* Why this thread's last call of the operator library failed; "" if it did not. Valid until the thread's next call. */
AOTFORGE_OPS_API const char* aotforge_ops_error(void);

#ifdef __cplusplus
}
#endif

#endif
