// SPDX-License-Identifier: Apache-2.0
// C++20 over streams.h: owners for streams, pinned memory, events and graphs, failures as RuntimeError. Included by C++ engines and the tools.
// Header-only. Each is given back with its owner, which goes before the runtime.
#ifndef ANYATTN_STREAMS_HPP
#define ANYATTN_STREAMS_HPP

#include <utility>

#include "anyattn/runtime.hpp"
#include "anyattn/streams.h"

namespace anyattn {

// A handle of a device with the function that gives it back.
template <void (*kDestroy)(anyattn_runtime*, uint32_t, int32_t, void*)>
class DeviceHandle {
 public:
  DeviceHandle() = default;
  DeviceHandle(const Runtime& runtime, Device device) : runtime_(runtime.get()), device_(device) {}
  DeviceHandle(DeviceHandle&& other) noexcept { swap(other); }
  DeviceHandle& operator=(DeviceHandle&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceHandle() {
    if (handle_) kDestroy(runtime_, device_.kind, device_.ordinal, handle_);
  }
  void* get() const { return handle_; }

 protected:
  anyattn_runtime* runtime_ = nullptr;
  Device device_;
  void* handle_ = nullptr;

 private:
  void swap(DeviceHandle& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
  }
};

class DeviceStream : public DeviceHandle<anyattn_device_stream_destroy> {
 public:
  DeviceStream() = default;  // the default stream
  DeviceStream(const Runtime& runtime, Device device) : DeviceHandle(runtime, device) {
    check(anyattn_device_stream_create, runtime_, device.kind, device.ordinal, &handle_);
  }
};

class PinnedMemory : public DeviceHandle<anyattn_device_free_pinned> {
 public:
  PinnedMemory() = default;  // none
  PinnedMemory(const Runtime& runtime, Device device, uint64_t bytes) : DeviceHandle(runtime, device) {
    check(anyattn_device_alloc_pinned, runtime_, device.kind, device.ordinal, bytes, &handle_);
  }
};

class DeviceEvent : public DeviceHandle<anyattn_device_event_destroy> {
 public:
  DeviceEvent(const Runtime& runtime, Device device) : DeviceHandle(runtime, device) {
    check(anyattn_device_event_create, runtime_, device.kind, device.ordinal, &handle_);
  }
  void record(void* stream) { check(anyattn_device_event_record, runtime_, device_.kind, device_.ordinal, handle_, stream); }
  // Since `from` was passed; waits for this one.
  float milliseconds_since(const DeviceEvent& from) const {
    float milliseconds = 0;
    check(anyattn_device_event_elapsed, runtime_, device_.kind, device_.ordinal, from.get(), handle_, &milliseconds);
    return milliseconds;
  }
};

class DeviceGraph : public DeviceHandle<anyattn_device_graph_destroy> {
 public:
  DeviceGraph() = default;  // nothing was captured
  // Captures what `body` queues on the stream. Where it throws, the capture is ended and dropped and the exception goes on.
  template <class Body>
  DeviceGraph(const Runtime& runtime, Device device, void* stream, Body&& body) : DeviceHandle(runtime, device) {
    check(anyattn_device_graph_begin, runtime_, device.kind, device.ordinal, stream);
    try {
      body();
    } catch (...) {
      void* partial = nullptr;
      if (anyattn_device_graph_end(runtime_, device.kind, device.ordinal, stream, &partial, nullptr) == ANYATTN_OK)
        anyattn_device_graph_destroy(runtime_, device.kind, device.ordinal, partial);
      throw;
    }
    check(anyattn_device_graph_end, runtime_, device.kind, device.ordinal, stream, &handle_);
  }
  void launch(void* stream) const {
    check(anyattn_device_graph_launch, runtime_, device_.kind, device_.ordinal, handle_, stream);
  }
};

}  // namespace anyattn

#endif  // ANYATTN_STREAMS_HPP
