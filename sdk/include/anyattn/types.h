/* SPDX-License-Identifier: Apache-2.0 */
/* The words every other header here uses: ABI version, status, error, dtype, device kind, tensor.
 * Included by all of them; an engine, a plugin and the core see the same bytes.
 * Holds no function of the library and knows no backend. */
#ifndef ANYATTN_TYPES_H
#define ANYATTN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version -------------------------------------------------------------------------------------------- */

#define ANYATTN_ABI_MAJOR 0u
#define ANYATTN_ABI_MINOR 1u
/* Lowest minor of the same major that a host built from these headers still accepts. */
#define ANYATTN_ABI_MINOR_LOWEST 1u
#define ANYATTN_ABI_VERSION(major, minor) (((uint32_t)(major) << 16) | (uint32_t)(minor))
#define ANYATTN_ABI_VERSION_CURRENT ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, ANYATTN_ABI_MINOR)

/* End offset of `field`: what struct_size holds. Never sizeof, whose tail padding hides an added field. */
#define ANYATTN_END_OFFSET(type, field) ((uint32_t)(offsetof(type, field) + sizeof(((type*)0)->field)))

/* ---- status --------------------------------------------------------------------------------------------- */

#define ANYATTN_OK 0
#define ANYATTN_INVALID_ARGUMENT 1  /* the call is wrong; nothing was changed                                */
#define ANYATTN_UNSUPPORTED 2       /* right, but this backend does not do it; reasons say why               */
#define ANYATTN_UNIMPLEMENTED 3     /* an optional slot or a slot of the other family (forward on MLA)       */
#define ANYATTN_OUT_OF_MEMORY 4     /* never fits: larger than the device, or than what was locked           */
#define ANYATTN_MEMORY_NOT_NOW 5    /* would fit once something is released; trying again later makes sense  */
#define ANYATTN_DEVICE_ERROR 6      /* the device reported an error; the text holds its words                */
#define ANYATTN_DEVICE_LOST 7       /* nothing on this device works any more                                 */
#define ANYATTN_CAPTURE_VIOLATION 8 /* the call is not allowed while a graph is captured                     */
#define ANYATTN_ABI_MISMATCH 9      /* version ranges do not meet, or a struct is too short                  */
#define ANYATTN_INTERNAL 10         /* an exception or a broken invariant inside the callee                  */
#define ANYATTN_NOT_FOUND 11        /* a name, file or device that is not there                              */

/* Caller-owned error slot. Frozen for the major. The callee writes one sentence (who, what was asked, what is
 * possible), truncated to capacity and NUL-terminated. Every function accepts a null pointer to it. */
typedef struct anyattn_error {
  char* text;        /* owned by the caller; may be null where capacity is 0                              */
  uint32_t capacity; /* bytes at text, terminator included                                                */
  uint32_t length;   /* out: bytes the whole sentence needs without terminator; >= capacity means cut     */
  int32_t status;    /* out: the status the function returned                                             */
  uint32_t reserved; /* 0                                                                                 */
} anyattn_error;

/* ---- dtypes: DLPack's DLDataType read as one little-endian word, code | bits << 8 | lanes << 16 --------- */

#define ANYATTN_DTYPE(code, bits) ((uint32_t)(code) | ((uint32_t)(bits) << 8) | (1u << 16))
#define ANYATTN_DTYPE_NONE 0u
#define ANYATTN_DTYPE_INT8 ANYATTN_DTYPE(0, 8)
#define ANYATTN_DTYPE_INT32 ANYATTN_DTYPE(0, 32)
#define ANYATTN_DTYPE_INT64 ANYATTN_DTYPE(0, 64)
#define ANYATTN_DTYPE_UINT8 ANYATTN_DTYPE(1, 8)
#define ANYATTN_DTYPE_FLOAT16 ANYATTN_DTYPE(2, 16)
#define ANYATTN_DTYPE_FLOAT32 ANYATTN_DTYPE(2, 32)
#define ANYATTN_DTYPE_BFLOAT16 ANYATTN_DTYPE(4, 16)
/* Not in the dlpack.h of old releases; the numbers are those of DLPack 1.1. */
#define ANYATTN_DTYPE_FLOAT8_E4M3FN ANYATTN_DTYPE(10, 8)
#define ANYATTN_DTYPE_FLOAT8_E5M2 ANYATTN_DTYPE(12, 8)

/* ---- device kinds: DLPack's numbers --------------------------------------------------------------------- */

#define ANYATTN_DEVICE_CPU 1u
#define ANYATTN_DEVICE_CUDA 2u
#define ANYATTN_DEVICE_HIP 10u

/* ---- tensor: DLTensor's bytes; frozen for the major ----------------------------------------------------- */

typedef struct anyattn_tensor {
  void* data;          /* borrowed, 16-byte aligned; null where the tensor is absent                         */
  int32_t device_type; /* ANYATTN_DEVICE_*                                                                   */
  int32_t device_id;   /* ordinal                                                                            */
  int32_t ndim;        /* 0 where the tensor is absent                                                       */
  uint8_t dtype_code;  /* the three parts of an ANYATTN_DTYPE_* word                                         */
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  int64_t* shape;       /* [ndim], borrowed; always present where data is                                     */
  int64_t* strides;     /* [ndim], in elements, borrowed; always present where data is (never null = compact) */
  uint64_t byte_offset; /* added to data; any multiple of the element's size, so a slice need not be aligned   */
} anyattn_tensor;

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_TYPES_H */
