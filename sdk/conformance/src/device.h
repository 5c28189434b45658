// SPDX-License-Identifier: Apache-2.0
// The device a backend under test runs on, through a device provider plugin; none for the CPU. Every block lent to the
// backend then has a twin in device memory: uploaded before a call, downloaded behind it, canaries included.
// Included by the kit's memory and runs. One device a process, one thread.
#ifndef ANYATTN_CONFORMANCE_DEVICE_H
#define ANYATTN_CONFORMANCE_DEVICE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/device.h"

namespace anyattn::conformance {

class Device {
 public:
  // Reads the provider's table; touches no driver, so that a child process may. Throws std::runtime_error.
  Device(const std::string& provider_path, const std::string& name, const anyattn_host* host);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  uint32_t kind() const { return table_.device_kind; }
  int32_t ordinal() const { return ordinal_; }
  // Asks in a child process whether the device is there; throws std::runtime_error with the provider's sentence if not.
  void probe() const;
  // Makes it current for this process; once is enough. Throws Failure.
  const anyattn_device_facts& open();

  const anyattn_device_provider& table() const { return table_; }
  void* alloc(uint64_t bytes) const;
  void free(void* memory) const { table_.free(ordinal_, memory); }
  void upload(void* to, const void* from, uint64_t bytes) const;
  void download(void* to, const void* from, uint64_t bytes) const;
  void wait() const;

 private:
  anyattn_device_provider table_{};
  const anyattn_host* host_;
  int32_t ordinal_ = 0;
  bool open_ = false;
  anyattn_device_facts facts_{};
};

// The device that blocks made from now on have twins on; null: none.
Device* lending_device();
void lend_on(Device* device);

// Device memory beside a host range, same bytes at the same offsets. Registered as long as it lives.
class Twin {
 public:
  Twin(void* host, uint64_t bytes);
  ~Twin();
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;
  // Only these ranges of it are copied; all of it where none are named.
  void only(std::vector<std::pair<uint64_t, uint64_t>> ranges) { ranges_ = std::move(ranges); }
  char* at(uint64_t offset) const { return static_cast<char*>(memory_) + offset; }

 private:
  friend void upload_all();
  friend void download_all();
  void copy(bool to_device) const;

  Device* device_;
  void* host_;
  uint64_t bytes_;
  void* memory_;
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // offset, bytes
};

// Every twin alive; nothing on the CPU.
void upload_all();
// Waits for the device, then the same back. Throws Failure where the device reports an error.
void download_all();

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_DEVICE_H
