// SPDX-License-Identifier: Apache-2.0
// anyattn_tensor is DLTensor's bytes, and the numbers both sides use for dtypes and devices are the same.
#include <anyattn/types.h>
#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <cstring>

#define SAME_FIELD(ours, theirs)                                                      \
  static_assert(offsetof(anyattn_tensor, ours) == offsetof(DLTensor, theirs), #ours); \
  static_assert(sizeof(anyattn_tensor::ours) == sizeof(DLTensor::theirs), #ours)

static_assert(sizeof(anyattn_tensor) == sizeof(DLTensor));
static_assert(alignof(anyattn_tensor) == alignof(DLTensor));
SAME_FIELD(data, data);
SAME_FIELD(ndim, ndim);
SAME_FIELD(shape, shape);
SAME_FIELD(strides, strides);
SAME_FIELD(byte_offset, byte_offset);
static_assert(offsetof(anyattn_tensor, device_type) == offsetof(DLTensor, device));
static_assert(offsetof(anyattn_tensor, dtype_code) == offsetof(DLTensor, dtype));

static_assert(ANYATTN_DEVICE_CPU == kDLCPU && ANYATTN_DEVICE_HIP == kDLROCM);
static_assert(ANYATTN_DTYPE_FLOAT16 == ANYATTN_DTYPE(kDLFloat, 16) && ANYATTN_DTYPE_BFLOAT16 == ANYATTN_DTYPE(kDLBfloat, 16));
static_assert(ANYATTN_DTYPE_INT32 == ANYATTN_DTYPE(kDLInt, 32) && ANYATTN_DTYPE_UINT8 == ANYATTN_DTYPE(kDLUInt, 8));

TEST_CASE("tensor_reads_the_bytes_of_a_dltensor") {
  int64_t shape[] = {3, 5}, strides[] = {5, 1};
  float data[15] = {};
  DLTensor theirs{data, {kDLCPU, 2}, 2, {kDLBfloat, 16, 1}, shape, strides, 64};

  anyattn_tensor ours;
  std::memcpy(&ours, &theirs, sizeof ours);

  CHECK(ours.data == data);
  CHECK(ours.device_type == kDLCPU);
  CHECK(ours.device_id == 2);
  CHECK(ours.ndim == 2);
  CHECK(ours.dtype_code == kDLBfloat);
  CHECK(ours.dtype_bits == 16);
  CHECK(ours.dtype_lanes == 1);
  CHECK(ours.shape == shape);
  CHECK(ours.strides == strides);
  CHECK(ours.byte_offset == 64);
}
