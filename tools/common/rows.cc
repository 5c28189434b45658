// SPDX-License-Identifier: Apache-2.0
#include "common/rows.h"

#include <cstring>

#include "anyattn/dtypes.hpp"

namespace anyattn::tools {
namespace {

template <class T>
void encode(std::span<const float> from, char* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T value = from_float<T>(from[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
void decode(const char* from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = to_float(value);
  }
}

}  // namespace

DeviceMemory RowCopier::allocate(uint64_t num_values) const {
  return DeviceMemory(runtime_, device_, num_values * dtype_bytes(dtype_));
}

void RowCopier::upload(const DeviceMemory& to, std::span<const float> rows) {
  staging_.resize(rows.size() * dtype_bytes(dtype_));
  if (dtype_ == ANYATTN_DTYPE_FLOAT32) encode<float>(rows, staging_.data());
  if (dtype_ == ANYATTN_DTYPE_FLOAT16) encode<Float16>(rows, staging_.data());
  if (dtype_ == ANYATTN_DTYPE_BFLOAT16) encode<BFloat16>(rows, staging_.data());
  runtime_.copy(device_, to.get(), staging_.data(), staging_.size(), kHostToDevice);
}

void RowCopier::download(std::span<float> rows, const DeviceMemory& from) {
  staging_.resize(rows.size() * dtype_bytes(dtype_));
  runtime_.copy(device_, staging_.data(), from.get(), staging_.size(), kDeviceToHost);
  runtime_.synchronize(device_);
  if (dtype_ == ANYATTN_DTYPE_FLOAT32) decode<float>(staging_.data(), rows);
  if (dtype_ == ANYATTN_DTYPE_FLOAT16) decode<Float16>(staging_.data(), rows);
  if (dtype_ == ANYATTN_DTYPE_BFLOAT16) decode<BFloat16>(staging_.data(), rows);
}

}  // namespace anyattn::tools
