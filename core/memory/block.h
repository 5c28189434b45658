// SPDX-License-Identifier: Apache-2.0
// One block of device or pinned memory with its owner. Included where metadata and scratch get their memory.
// Checks the alignment that plugins are promised.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "device/devices.h"

namespace anyattn::memory {

constexpr uint64_t kBlockAlignment = 256;

enum class Place { kDevice, kPinned };

// Frees itself through the provider, which outlives it. 0 bytes: no memory, null address.
class Block {
 public:
  Block() = default;
  // Throws StatusError with `who`, the bytes and the device's words.
  Block(const anyattn_device_provider& provider, device::DeviceId id, uint64_t bytes, Place place, const std::string& who);
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Block();

  void* get() const { return memory_; }
  uint64_t bytes() const { return bytes_; }
  // Writes zeros and waits until they are there.
  void zero(void* stream, const std::string& who);

 private:
  void swap(Block& other) noexcept {
    std::swap(provider_, other.provider_);
    std::swap(id_, other.id_);
    std::swap(place_, other.place_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }

  const anyattn_device_provider* provider_ = nullptr;
  device::DeviceId id_;
  Place place_ = Place::kDevice;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace anyattn::memory
