// SPDX-License-Identifier: Apache-2.0
// A paged cache for one batch: which block holds what, poison wherever no request owns a slot, and a check that nothing but
// owned slots was written. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_PAGED_CACHE_H
#define ANYATTN_CONFORMANCE_PAGED_CACHE_H

#include <memory>
#include <vector>

#include "anyattn/conformance/cache_format.h"
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

  // Rows handed to the backend: values [any, heads, size], borrowed for the call, and the scales of the call.
  struct Rows {
    RowKind kind;
    int64_t heads, size;
    const std::vector<float>* values;
    std::vector<float> scales;
  };
  // Throws Failure unless every owned slot holds the bytes of its rows in the case's format, and the rest what it held before.
  void check_stored(const std::vector<Rows>& rows);
  // Fills a stored block with NaN, as if it were freed and taken by another request.
  void forget(int64_t block);
  // Throws Failure if a byte changed since check_stored.
  void check_unchanged(const char* slot) const;

 private:
  void place(const Case& c, const std::vector<std::vector<int64_t>>& key_rows);
  void poison_all(Poison poison);

  Layout layout_;
  const CacheFormat& format_;
  int kv_lora_rank_;
  std::vector<std::vector<int64_t>> blocks_;
  std::vector<Slot> slots_;
  uint64_t num_blocks_ = 0;
  std::unique_ptr<CacheMemory> memory_;
  std::vector<std::byte> image_;
  anyattn_cache cache_{};
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_PAGED_CACHE_H
