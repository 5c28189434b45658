// SPDX-License-Identifier: Apache-2.0
// Requests and their blocks: tables, slots, prefixes found again, windows given back. One object is one pool without its
// memory. Included by the C API (api/kv_pool.cc), which says in kv_pool.h what each call means. Knows no device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "anyattn/types.h"
#include "cache/content_hash.h"
#include "cache/flat_map.h"
#include "cache/page_pool.h"

namespace anyattn::cache {

struct GroupShape {
  uint32_t block_size = 0;         // tokens a manager block
  uint32_t kernel_block_size = 0;  // tokens a kernel block; divides block_size
  uint32_t blocks_per_page = 1;
  int32_t window_left = -1;
  std::string label;
};

struct PoolShape {
  uint32_t num_pages = 0;
  uint32_t max_num_reqs = 0;
  uint32_t max_seq_len = 0;
  bool sharing = true;
  std::vector<GroupShape> groups;
};

class BlockManager {
 public:
  // `hash_key` starts every content hash. Everything is allocated here.
  BlockManager(PoolShape shape, ContentHash hash_key);

  int32_t begin(uint64_t request, std::span<const int32_t> token_ids, uint64_t salt, uint32_t* cached_tokens,
                anyattn_error* error);
  int32_t append(uint64_t request, std::span<const int32_t> token_ids, anyattn_error* error);
  int32_t reserve(uint64_t request, uint32_t total_tokens, anyattn_error* error);
  int32_t commit(uint64_t request, uint32_t computed_tokens, anyattn_error* error);
  int32_t release(uint64_t request, anyattn_error* error);

  int32_t block_table(uint32_t group, std::span<const uint64_t> requests, int32_t* out, int64_t stride,
                      anyattn_error* error) const;
  int32_t slot_mapping(uint32_t group, uint64_t request, uint32_t start, uint32_t count, int64_t* out,
                       anyattn_error* error) const;

  const PoolShape& shape() const { return shape_; }
  const PagePool& pages() const { return pages_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(shape_.groups.size()); }
  // Kernel blocks of max_seq_len tokens, up to whole manager blocks.
  uint32_t table_width(uint32_t group) const { return tables_[group].width; }
  uint32_t num_requests() const { return static_cast<uint32_t>(rows_.size()); }
  uint64_t begun_tokens() const { return begun_tokens_; }
  uint64_t reused_tokens() const { return reused_tokens_; }

 private:
  struct Key {
    uint64_t request = 0;
    friend bool operator==(const Key&, const Key&) = default;
    friend uint64_t hash_of(const Key& key) { return mix64(key.request + 0x9E3779B97F4A7C15u); }
  };
  struct Request {
    uint64_t id = 0;
    uint32_t known_tokens = 0;  // whose ids were named
    uint32_t reserved_tokens = 0;
    uint32_t computed_tokens = 0;
    ContentHash prefix;  // over the known tokens
  };
  // One request's blocks in one group, counted in manager blocks from the start of the request.
  struct Span {
    uint32_t live_begin = 0;  // blocks before it were given back
    uint32_t end = 0;         // reserved
    uint32_t published = 0;   // offered for sharing
  };
  struct Table {
    uint32_t ratio = 1;
    uint32_t width = 0;                // kernel blocks a row
    std::vector<int32_t> entries;      // [max_num_reqs, width] kernel-block ids
    std::vector<ContentHash> content;  // [max_num_reqs, width / ratio] of full blocks of known tokens
    std::vector<Span> spans;           // [max_num_reqs]
  };

  int32_t row_of(uint64_t request, const char* call, uint32_t* row, anyattn_error* error) const;
  int32_t check_group(uint32_t group, const char* call, anyattn_error* error) const;
  void learn(uint32_t row, std::span<const int32_t> token_ids);
  uint32_t match_prefix(uint32_t row, uint32_t most_tokens) const;
  void hold_prefix(uint32_t row, uint32_t tokens);
  uint32_t window_begin(uint32_t group, uint32_t next_position) const;
  uint32_t block_at(uint32_t group, uint32_t row, uint32_t index) const;
  void set_block(uint32_t group, uint32_t row, uint32_t index, uint32_t block);
  const ContentHash& content_at(uint32_t group, uint32_t row, uint32_t index) const;
  int32_t no_room(uint32_t row, uint32_t total_tokens, const PagePlan& plan, anyattn_error* error) const;

  PoolShape shape_;
  ContentHash hash_key_;
  PagePool pages_;
  uint64_t prefix_step_;  // tokens; a shared prefix ends at a block boundary of every group
  FlatMap<Key> rows_;
  std::vector<uint32_t> free_rows_;
  std::vector<Request> requests_;  // [max_num_reqs]
  std::vector<Table> tables_;      // [groups]
  std::vector<uint32_t> needs_;    // [groups], of the reserve under way
  uint64_t begun_tokens_ = 0;
  uint64_t reused_tokens_ = 0;
};

}  // namespace anyattn::cache
