// SPDX-License-Identifier: Apache-2.0
// Rows of float values to and from device memory in float32, float16 or bfloat16. Included by verbs that call forward.
// Knows no model and no batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anyattn/runtime.hpp"

namespace anyattn::tools {

// Copies on the null stream of one device; the runtime is borrowed.
class RowCopier {
 public:
  RowCopier(const Runtime& runtime, Device device, uint32_t dtype) : runtime_(runtime), device_(device), dtype_(dtype) {}

  DeviceMemory allocate(uint64_t num_values) const;
  void upload(const DeviceMemory& to, std::span<const float> rows);
  void download(std::span<float> rows, const DeviceMemory& from);  // waits
  // Values as they are: lengths, tables, slots.
  template <class T>
  void upload_plain(const DeviceMemory& to, std::span<const T> values) const {
    runtime_.copy(device_, to.get(), values.data(), values.size_bytes(), kHostToDevice);
  }

  Device device() const { return device_; }
  uint32_t dtype() const { return dtype_; }

 private:
  static constexpr uint32_t kHostToDevice = 1;  // ANYATTN_COPY_* of device.h
  static constexpr uint32_t kDeviceToHost = 2;

  const Runtime& runtime_;
  Device device_;
  uint32_t dtype_;
  std::vector<char> staging_;
};

}  // namespace anyattn::tools
