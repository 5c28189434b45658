// SPDX-License-Identifier: Apache-2.0
#include "serving/device_buffer.h"

#include <algorithm>

namespace anyattn::tools {
namespace {

constexpr uint32_t kHostToDevice = 1;  // ANYATTN_COPY_*, as runtime.h numbers them
constexpr uint32_t kDeviceToHost = 2;

}  // namespace

DeviceBuffer::DeviceBuffer(const Place& place, size_t bytes)
    : place_(place),
      memory_(*place.runtime, place.device, std::max<size_t>(bytes, 1)),
      staging_(place.shares_memory() ? PinnedMemory() : PinnedMemory(*place.runtime, place.device, memory_.bytes())) {}

void DeviceBuffer::reserve(const Place& place, size_t bytes) {
  if (bytes > memory_.bytes()) *this = DeviceBuffer(place, bytes);
}

void DeviceBuffer::upload(size_t bytes) const {
  if (place_.shares_memory() || bytes == 0) return;
  place_.runtime->copy(place_.device, memory_.get(), staging_.get(), bytes, kHostToDevice, place_.stream);
}

void DeviceBuffer::download(size_t offset, size_t bytes) const {
  if (place_.shares_memory() || bytes == 0) return;
  place_.runtime->copy(place_.device, host<char>() + offset, device<char>() + offset, bytes, kDeviceToHost, place_.stream);
  place_.synchronize();
}

}  // namespace anyattn::tools
