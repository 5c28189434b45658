// SPDX-License-Identifier: Apache-2.0
// A set of small numbers with a fast "lowest member": one bit each, and one summary bit for 64 of them.
// Included inside core/cache. Allocates only when it is made.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace anyattn::cache {

class Bitmap {
 public:
  static constexpr uint32_t kEmpty = UINT32_MAX;

  explicit Bitmap(uint32_t size) : size_(size), words_(size / 64 + 1), summary_(words_.size() / 64 + 1) {}

  bool contains(uint32_t i) const { return i < size_ && ((words_[i / 64] >> (i % 64)) & 1) != 0; }

  void insert(uint32_t i) {
    words_[i / 64] |= uint64_t{1} << (i % 64);
    summary_[i / 4096] |= uint64_t{1} << (i / 64 % 64);
  }

  void erase(uint32_t i) {
    words_[i / 64] &= ~(uint64_t{1} << (i % 64));
    if (words_[i / 64] == 0) summary_[i / 4096] &= ~(uint64_t{1} << (i / 64 % 64));
  }

  // The lowest member, kEmpty where there is none.
  uint32_t first() const {
    for (size_t s = 0; s < summary_.size(); ++s) {
      if (summary_[s] == 0) continue;
      const size_t word = s * 64 + static_cast<size_t>(std::countr_zero(summary_[s]));
      return static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(words_[word])));
    }
    return kEmpty;
  }

 private:
  uint32_t size_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> summary_;
};

}  // namespace anyattn::cache
