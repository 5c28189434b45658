// SPDX-License-Identifier: Apache-2.0
// Scratch of one device: a block per stream (on the CPU per calling thread), shared by all impls. Included by the API.
// Sizes are reserved while groups are made; the hot path finds its block without a lock. Holds no contents between calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/devices.h"

namespace anyattn::memory {

class Scratch {
 public:
  using LogLine = std::function<void(const std::string& line)>;  // one line at info level

  // `provider` outlives this object.
  Scratch(const anyattn_device_provider& provider, device::DeviceId id, LogLine log);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Makes every later block at least `bytes` long. After lock(), more than what was reserved is OUT_OF_MEMORY as StatusError
  // with both numbers; `who` names the group.
  void reserve(uint64_t bytes, const std::string& who);
  // No growth from here on: addresses that a captured graph holds stay.
  void lock();
  uint64_t reserved_bytes() const;
  bool locked() const;

  // Hot: the block of this stream (CPU: of this thread), at least `bytes` long, bytes <= what was reserved. The first call of a
  // stream or thread allocates and writes one log line; on a device with graphs that is CAPTURE_VIOLATION after lock().
  int32_t lend(void* stream, uint64_t bytes, void** block, anyattn_error* error);

 private:
  struct State;
  class ThreadBlocks;
  static thread_local ThreadBlocks thread_blocks_;
  std::shared_ptr<State> state_;
};

}  // namespace anyattn::memory
