// SPDX-License-Identifier: Apache-2.0
// Memory for many caches of one layout, taken once and kept from row to row. Included by bench and workload.
// Knows no batch; who fills it says with what.
#pragma once

#include <cstdint>

#include "anyattn/runtime.hpp"

namespace anyattn::tools::bench {

class Arena {
 public:
  // At least `bytes`, on the device; what is there stays unless it must grow.
  void reserve(const Runtime& runtime, Device device, uint64_t bytes) {
    if (memory_.bytes() >= bytes) return;
    memory_ = DeviceMemory();  // first: both may not fit
    filled_bytes_ = 0;
    memory_ = DeviceMemory(runtime, device, bytes);
  }
  // Bytes from the start that hold blocks of this layout; 0 for another.
  uint64_t filled_bytes(uint64_t spec_digest) const { return spec_digest == digest_ ? filled_bytes_ : 0; }
  void set_filled(uint64_t spec_digest, uint64_t bytes) {
    digest_ = spec_digest;
    filled_bytes_ = bytes;
  }
  char* data() const { return static_cast<char*>(memory_.get()); }
  uint64_t bytes() const { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
  uint64_t digest_ = 0;
  uint64_t filled_bytes_ = 0;
};

}  // namespace anyattn::tools::bench
