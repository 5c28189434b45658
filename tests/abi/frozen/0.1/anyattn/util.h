/* SPDX-License-Identifier: Apache-2.0 */
/* Small inline helpers of both sides: read a struct of any age, write an error, hash a spec. Included where they are used.
 * Nothing here is part of the layout; a plugin may do the same by hand. */
#ifndef ANYATTN_UTIL_H
#define ANYATTN_UTIL_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "anyattn/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copies what both sides know of a struct into `own` (of own_size bytes), zeroes the rest and sets own's struct_size to
 * what was read. `given` starts with its struct_size. */
static inline void anyattn_read_struct(void* own, uint32_t own_size, const void* given) {
  uint32_t size;
  memcpy(&size, given, sizeof size);
  if (size > own_size) size = own_size;
  memset(own, 0, own_size);
  memcpy(own, given, size);
  memcpy(own, &size, sizeof size);
}

/* Fills the caller's error (which may be null) and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline int32_t
anyattn_error_set(anyattn_error* error, int32_t status, const char* format, ...) {
  if (error) {
    va_list values;
    int length;
    va_start(values, format);
    length = vsnprintf(error->text, error->text ? error->capacity : 0, format, values);
    va_end(values);
    error->length = length > 0 ? (uint32_t)length : 0;
    error->status = status;
  }
  return status;
}

static inline uint32_t anyattn_tensor_dtype(const anyattn_tensor* tensor) {
  return (uint32_t)tensor->dtype_code | ((uint32_t)tensor->dtype_bits << 8) | ((uint32_t)tensor->dtype_lanes << 16);
}

/* FNV-1a over every number of the spec that says where bytes lie; the name is not part of it. */
static inline uint64_t anyattn_kv_cache_spec_digest(const anyattn_kv_cache_spec* spec) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  uint64_t words[3];
  uint32_t i, j;
#define ANYATTN_HASH_WORD_(value)                                \
  do {                                                           \
    uint64_t word_ = (uint64_t)(value);                          \
    int byte_;                                                   \
    for (byte_ = 0; byte_ < 8; ++byte_) {                        \
      hash = (hash ^ (word_ & 0xffu)) * UINT64_C(0x100000001b3); \
      word_ >>= 8;                                               \
    }                                                            \
  } while (0)
  words[0] = spec->block_size;
  words[1] = spec->block_bytes;
  words[2] = spec->num_planes;
  for (i = 0; i < 3; ++i) ANYATTN_HASH_WORD_(words[i]);
  for (i = 0; i < spec->num_planes; ++i) {
    const anyattn_plane* plane =
        (const anyattn_plane*)(const void*)((const char*)spec->planes + (size_t)i * spec->plane_stride);
    ANYATTN_HASH_WORD_(plane->role);
    ANYATTN_HASH_WORD_(plane->dtype);
    ANYATTN_HASH_WORD_(plane->ndim);
    for (j = 0; j < plane->ndim && j < ANYATTN_PLANE_MAX_DIMS; ++j) {
      ANYATTN_HASH_WORD_(plane->dims[j]);
      ANYATTN_HASH_WORD_(plane->strides[j]);
    }
    ANYATTN_HASH_WORD_(plane->byte_offset);
  }
#undef ANYATTN_HASH_WORD_
  return hash;
}

#ifdef __cplusplus
}
#endif

#endif /* ANYATTN_UTIL_H */
