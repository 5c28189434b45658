// SPDX-License-Identifier: Apache-2.0
// A paged cache for one batch: which block holds what, poison wherever no request owns a slot, and a check that nothing but
// owned slots was written. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_PAGED_CACHE_H
#define ANYATTN_CONFORMANCE_PAGED_CACHE_H

#include <functional>
#include <memory>
#include <vector>

#include "anyattn/conformance/case.h"
#include "layout.h"
#include "memory.h"

namespace anyattn::conformance {

// What stands in slots that no request owns.
enum class Poison { kNan, kInfinity, kHuge, kZero };

struct Slot {
  int64_t slot;     // block * block_size + offset
  int64_t key_row;  // row of the case's keys it holds
  bool operator==(const Slot&) const = default;
};

class PagedCache {
 public:
  // key_rows[r][l]: the row of the case's keys that request r's local key l is. Equal leading rows of whole blocks are stored
  // once where the case shares a prefix.
  PagedCache(const Case& c, const Layout& layout, const std::vector<std::vector<int64_t>>& key_rows, Poison poison);

  const std::vector<Slot>& slots() const { return slots_; }                              // each once
  const std::vector<int64_t>& blocks(size_t request) const { return blocks_[request]; }  // surplus counted
  const anyattn_cache* view() const { return &cache_; }
  CacheMemory& memory() { return *memory_; }

  // Calls element(key_row, role, head, dim) for what every owned slot must hold, `roles` with their heads and dims, and
  // throws Failure unless the cache holds exactly that, and elsewhere what it held before.
  struct Plane {
    uint32_t role;
    int64_t heads, dims;
    std::function<float(int64_t row, int64_t head, int64_t dim)> element;
  };
  void check_stored(const std::vector<Plane>& planes);
  // Fills a stored block with NaN, as if it were freed and taken by another request.
  void forget(int64_t block);
  // Throws Failure if a byte changed since check_stored.
  void check_unchanged(const char* slot) const;

 private:
  void place(const Case& c, const std::vector<std::vector<int64_t>>& key_rows);
  void poison_all(uint32_t dtype, Poison poison);

  Layout layout_;
  uint32_t dtype_;
  std::vector<std::vector<int64_t>> blocks_;
  std::vector<Slot> slots_;
  uint64_t num_blocks_ = 0;
  std::unique_ptr<CacheMemory> memory_;
  std::vector<std::byte> image_;
  anyattn_cache cache_{};
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_PAGED_CACHE_H
