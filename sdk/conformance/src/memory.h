// SPDX-License-Identifier: Apache-2.0
// Memory lent to a backend under test: canaries on both sides, poison inside. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_MEMORY_H
#define ANYATTN_CONFORMANCE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace anyattn::conformance {

enum class Fill { kZero, kNan };
enum class Side { kDevice, kHost };  // kHost: never a twin (pinned memory, host copies)

// A block aligned to 256 bytes, between two canaries that read as NaN in every float type.
class Block {
 public:
  Block() = default;
  Block(std::string name, size_t bytes, Fill fill, Side side = Side::kDevice);
  Block(Block&&) = default;
  Block& operator=(Block&&) = default;

  void* data() { return bytes_ ? store_.data() + offset_ : nullptr; }
  const void* data() const { return bytes_ ? store_.data() + offset_ : nullptr; }
  size_t size() const { return bytes_; }
  // The address that the backend is given: device memory where there is a lending device.
  void* lent() { return bytes_ && twin_ ? twin_->at(kCanaryBytes) : data(); }
  template <class T>
  T* lent_as() {
    return static_cast<T*>(lent());
  }
  template <class T>
  T* as() {
    return static_cast<T*>(data());
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data());
  }
  void refill(Fill fill);
  // Throws Failure naming the block if a canary changed.
  void check() const;

 private:
  static constexpr size_t kCanaryBytes = 512;

  std::string name_;
  std::vector<std::byte> store_;
  size_t offset_ = 0;
  size_t bytes_ = 0;
  std::unique_ptr<Twin> twin_;
};

// A block holding a copy of `values`.
template <class T>
Block block_of(const char* name, const std::vector<T>& values, Side side = Side::kDevice) {
  Block block(name, values.size() * sizeof(T), Fill::kZero, side);
  if (!values.empty()) std::memcpy(block.data(), values.data(), values.size() * sizeof(T));
  return block;
}

// Blocks of a cache in reserved address space, unreadable pages on both sides; only blocks that are used are committed.
class CacheMemory {
 public:
  CacheMemory(uint64_t num_blocks, uint64_t block_stride_bytes, std::vector<int64_t> used);
  ~CacheMemory();
  CacheMemory(const CacheMemory&) = delete;
  CacheMemory& operator=(const CacheMemory&) = delete;

  std::byte* base() const { return base_; }
  // The address that the backend is given.
  void* lent() const { return twin_ ? twin_->at(0) : static_cast<void*>(base_); }
  std::byte* block(int64_t id) const { return base_ + static_cast<uint64_t>(id) * stride_; }
  uint64_t num_blocks() const { return num_blocks_; }
  uint64_t stride() const { return stride_; }
  const std::vector<int64_t>& used() const { return used_; }  // sorted; what image() holds

  // Throws Failure if bytes behind the last block changed.
  void check() const;

  // The bytes of every used block, one after the other.
  std::vector<std::byte> image() const;

 private:
  uint64_t num_blocks_;
  uint64_t stride_;
  std::vector<int64_t> used_;
  std::byte* map_ = nullptr;
  size_t inner_bytes_ = 0;
  size_t map_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::unique_ptr<Twin> twin_;
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_MEMORY_H
