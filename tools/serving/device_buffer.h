// SPDX-License-Identifier: Apache-2.0
// Memory that both the host and a device see. Included by whatever feeds layers.
// On the CPU both are one block; elsewhere upload and download copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "anyattn/streams.hpp"

namespace anyattn::tools {

// The device a run takes place on, and the one stream that everything is queued on.
struct Place {
  const Runtime* runtime = nullptr;
  Device device;
  void* stream = nullptr;  // borrowed; null: the default stream

  bool shares_memory() const { return device.kind == ANYATTN_DEVICE_CPU; }
  // Waits for the stream; nothing on the CPU, whose calls return when they are done.
  void synchronize() const {
    if (!shares_memory()) runtime->synchronize(device, stream);
  }
  // Compact, over memory of the device.
  Tensor tensor(void* data, uint32_t dtype, std::initializer_list<int64_t> shape) const {
    return Tensor(data, dtype, shape, device.kind, device.ordinal);
  }
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Place& place, size_t bytes);

  template <class T = char>
  T* host() const {
    return static_cast<T*>(place_.shares_memory() ? memory_.get() : staging_.get());
  }
  template <class T = char>
  T* device() const {
    return static_cast<T*>(memory_.get());
  }
  size_t bytes() const { return memory_.bytes(); }
  // Grows to at least that many bytes; what was in it is lost. Sizes settle after a few steps.
  void reserve(const Place& place, size_t bytes);

  void upload(
      size_t bytes) const;  // the first `bytes`, host to device; the host's stay as they are until the stream has passed
  void download(size_t offset, size_t bytes) const;  // device to host, and waits

 private:
  Place place_;
  DeviceMemory memory_;
  PinnedMemory staging_;  // where the host does not see device memory
};

}  // namespace anyattn::tools
