// SPDX-License-Identifier: Apache-2.0
#include "cache/block_manager.h"

#include <algorithm>
#include <numeric>

#include "anyattn/util.h"

namespace anyattn::cache {
namespace {

using ull = unsigned long long;

uint32_t ceil_div(uint32_t value, uint32_t by) { return value / by + (value % by != 0); }

std::vector<uint32_t> blocks_per_page(const PoolShape& shape) {
  std::vector<uint32_t> counts;
  counts.reserve(shape.groups.size());
  for (const GroupShape& group : shape.groups) counts.push_back(group.blocks_per_page);
  return counts;
}

}  // namespace

BlockManager::BlockManager(PoolShape shape, ContentHash hash_key)
    : shape_(std::move(shape)),
      hash_key_(hash_key),
      pages_(shape_.num_pages, blocks_per_page(shape_)),
      prefix_step_(1),
      rows_(shape_.max_num_reqs),
      requests_(shape_.max_num_reqs),
      needs_(shape_.groups.size()) {
  for (uint32_t row = shape_.max_num_reqs; row > 0; --row) free_rows_.push_back(row - 1);
  for (const GroupShape& group : shape_.groups) {
    // A step beyond the longest request only means that nothing is ever shared.
    prefix_step_ = std::min(std::lcm(prefix_step_, uint64_t{group.block_size}), uint64_t{UINT32_MAX});
    Table table;
    table.ratio = group.block_size / group.kernel_block_size;
    const size_t blocks = ceil_div(shape_.max_seq_len, group.block_size);
    table.width = static_cast<uint32_t>(blocks) * table.ratio;
    table.entries.resize(size_t{shape_.max_num_reqs} * table.width, -1);
    table.content.resize(shape_.sharing ? size_t{shape_.max_num_reqs} * blocks : 0);
    table.spans.resize(shape_.max_num_reqs);
    tables_.push_back(std::move(table));
  }
}

int32_t BlockManager::begin(uint64_t request, std::span<const int32_t> token_ids, uint64_t salt, uint32_t* cached_tokens,
                            anyattn_error* error) {
  if (rows_.find({request}) != FlatMap<Key>::kAbsent) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: begin of request %llu, which is held already; release it first",
                             static_cast<ull>(request));
  }
  if (token_ids.empty() || token_ids.size() > shape_.max_seq_len) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: begin of request %llu with %llu tokens; allowed: 1 to max_seq_len %u",
                             static_cast<ull>(request), static_cast<ull>(token_ids.size()), shape_.max_seq_len);
  }
  if (free_rows_.empty()) {
    return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW,
                             "kv pool: begin of request %llu while max_num_reqs %u are held; release one",
                             static_cast<ull>(request), shape_.max_num_reqs);
  }
  const uint32_t row = free_rows_.back();
  free_rows_.pop_back();
  rows_.insert({request}, row);
  requests_[row] = {.id = request, .prefix = extend(hash_key_, salt)};
  for (Table& table : tables_) table.spans[row] = {};
  learn(row, token_ids);

  const uint32_t cached = shape_.sharing ? match_prefix(row, static_cast<uint32_t>(token_ids.size()) - 1) : 0;
  hold_prefix(row, cached);
  requests_[row].reserved_tokens = requests_[row].computed_tokens = cached;
  begun_tokens_ += token_ids.size();
  reused_tokens_ += cached;
  *cached_tokens = cached;
  return ANYATTN_OK;
}

int32_t BlockManager::append(uint64_t request, std::span<const int32_t> token_ids, anyattn_error* error) {
  uint32_t row;
  if (const int32_t status = row_of(request, "append", &row, error)) return status;
  if (token_ids.size() > shape_.max_seq_len - requests_[row].known_tokens) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: append of %llu tokens to the %u of request %llu; allowed: max_seq_len %u in all",
                             static_cast<ull>(token_ids.size()), requests_[row].known_tokens, static_cast<ull>(request),
                             shape_.max_seq_len);
  }
  learn(row, token_ids);
  return ANYATTN_OK;
}

// Carries the chained hash on, and keeps its value wherever a block of some group ends.
void BlockManager::learn(uint32_t row, std::span<const int32_t> token_ids) {
  Request& request = requests_[row];
  if (!shape_.sharing) {
    request.known_tokens += static_cast<uint32_t>(token_ids.size());
    return;
  }
  for (const int32_t token : token_ids) {
    request.prefix = extend(request.prefix, static_cast<uint32_t>(token));
    ++request.known_tokens;
    for (size_t g = 0; g < tables_.size(); ++g) {
      const uint32_t block_size = shape_.groups[g].block_size;
      if (request.known_tokens % block_size != 0) continue;
      const size_t blocks = tables_[g].width / tables_[g].ratio;
      tables_[g].content[row * blocks + request.known_tokens / block_size - 1] = request.prefix;
    }
  }
}

// The longest prefix of at most `most_tokens` that ends at a block boundary of every group, where every unlimited group holds
// all its blocks and every window group those that the token behind the prefix can see.
uint32_t BlockManager::match_prefix(uint32_t row, uint32_t most_tokens) const {
  uint64_t length = most_tokens;
  for (uint32_t g = 0; g < num_groups(); ++g) {
    if (shape_.groups[g].window_left >= 0) continue;
    const uint32_t block_size = shape_.groups[g].block_size;
    uint32_t hits = 0;
    while (uint64_t{hits + 1} * block_size <= length && pages_.find(g, content_at(g, row, hits)) != kNoBlock) ++hits;
    length = uint64_t{hits} * block_size;
  }
  length -= length % prefix_step_;
  for (uint32_t g = 0; g < num_groups() && length > 0;) {
    if (shape_.groups[g].window_left < 0) {
      ++g;
      continue;
    }
    const uint32_t block_size = shape_.groups[g].block_size;
    const uint32_t first = window_begin(g, static_cast<uint32_t>(length));
    uint32_t index = static_cast<uint32_t>(length / block_size);
    while (index > first && pages_.find(g, content_at(g, row, index - 1)) != kNoBlock) --index;
    if (index == first) {
      ++g;
      continue;
    }
    // Block index - 1 is missing, so every length beyond its start fails; the other groups have to agree to the shorter one.
    length = uint64_t{index - 1} * block_size;
    length -= length % prefix_step_;
    g = 0;
  }
  return static_cast<uint32_t>(length);
}

void BlockManager::hold_prefix(uint32_t row, uint32_t tokens) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    Span& span = tables_[g].spans[row];
    span.end = span.published = tokens / shape_.groups[g].block_size;
    span.live_begin = std::min(window_begin(g, tokens), span.end);
    for (uint32_t i = 0; i < span.end; ++i) {
      const uint32_t block = i < span.live_begin ? kNoBlock : pages_.find(g, content_at(g, row, i));
      set_block(g, row, i, block);
      if (block != kNoBlock) pages_.hold(g, block);
    }
  }
}

int32_t BlockManager::reserve(uint64_t request, uint32_t total_tokens, anyattn_error* error) {
  uint32_t row;
  if (const int32_t status = row_of(request, "reserve", &row, error)) return status;
  if (total_tokens > shape_.max_seq_len) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: reserve of %u tokens for request %llu; allowed: up to max_seq_len %u", total_tokens,
                             static_cast<ull>(request), shape_.max_seq_len);
  }
  for (uint32_t g = 0; g < num_groups(); ++g) {
    const uint32_t wanted = ceil_div(total_tokens, shape_.groups[g].block_size);
    const uint32_t have = tables_[g].spans[row].end;
    needs_[g] = wanted > have ? wanted - have : 0;
  }
  const PagePlan plan = pages_.plan(needs_);
  if (!plan.fits()) return no_room(row, total_tokens, plan, error);
  for (uint32_t g = 0; g < num_groups(); ++g) {
    Span& span = tables_[g].spans[row];
    uint32_t last = span.end > span.live_begin ? block_at(g, row, span.end - 1) : kNoBlock;
    for (uint32_t i = 0; i < needs_[g]; ++i) {
      last = pages_.take(g, last);
      set_block(g, row, span.end++, last);
    }
  }
  requests_[row].reserved_tokens = std::max(requests_[row].reserved_tokens, total_tokens);
  return ANYATTN_OK;
}

int32_t BlockManager::no_room(uint32_t row, uint32_t total_tokens, const PagePlan& plan, anyattn_error* error) const {
  uint64_t pages_alone = 0;
  uint64_t blocks = 0;
  for (uint32_t g = 0; g < num_groups(); ++g) {
    const Span& span = tables_[g].spans[row];
    blocks += needs_[g];
    pages_alone += ceil_div(span.end + needs_[g] - span.live_begin, shape_.groups[g].blocks_per_page);
  }
  if (pages_alone > pages_.num_pages()) {
    return anyattn_error_set(
        error, ANYATTN_OUT_OF_MEMORY,
        "kv pool: %u tokens of request %llu need %llu pages, the whole pool has %u; give it a larger budget", total_tokens,
        static_cast<ull>(requests_[row].id), static_cast<ull>(pages_alone), pages_.num_pages());
  }
  return anyattn_error_set(
      error, ANYATTN_MEMORY_NOT_NOW,
      "kv pool: %u tokens of request %llu need %llu more blocks (%llu pages), %llu of %u pages can be had now; "
      "release a request or wait",
      total_tokens, static_cast<ull>(requests_[row].id), static_cast<ull>(blocks), static_cast<ull>(plan.wanted),
      static_cast<ull>(plan.available), pages_.num_pages());
}

int32_t BlockManager::commit(uint64_t request, uint32_t computed_tokens, anyattn_error* error) {
  uint32_t row;
  if (const int32_t status = row_of(request, "commit", &row, error)) return status;
  Request& r = requests_[row];
  if (computed_tokens < r.computed_tokens || computed_tokens > r.reserved_tokens) {
    return anyattn_error_set(
        error, ANYATTN_INVALID_ARGUMENT,
        "kv pool: commit of %u tokens of request %llu; allowed: from the %u committed before to the %u reserved",
        computed_tokens, static_cast<ull>(request), r.computed_tokens, r.reserved_tokens);
  }
  r.computed_tokens = computed_tokens;
  for (uint32_t g = 0; g < num_groups(); ++g) {
    Span& span = tables_[g].spans[row];
    const uint32_t full = std::min(computed_tokens, r.known_tokens) / shape_.groups[g].block_size;
    for (; shape_.sharing && span.published < full; ++span.published) {
      if (span.published < span.live_begin) continue;
      pages_.publish(g, block_at(g, row, span.published), content_at(g, row, span.published));
    }
    for (const uint32_t first = std::min(window_begin(g, computed_tokens), span.end); span.live_begin < first;
         ++span.live_begin) {
      pages_.drop(g, block_at(g, row, span.live_begin));
      set_block(g, row, span.live_begin, kNoBlock);
    }
  }
  return ANYATTN_OK;
}

// Last blocks first: a prefix is worth more than what follows it, so its beginning should be the last to be evicted.
int32_t BlockManager::release(uint64_t request, anyattn_error* error) {
  uint32_t row;
  if (const int32_t status = row_of(request, "release", &row, error)) return status;
  for (uint32_t g = 0; g < num_groups(); ++g) {
    Span& span = tables_[g].spans[row];
    for (; span.end > span.live_begin; --span.end) pages_.drop(g, block_at(g, row, span.end - 1));
  }
  rows_.erase({request});
  free_rows_.push_back(row);
  return ANYATTN_OK;
}

int32_t BlockManager::block_table(uint32_t group, std::span<const uint64_t> requests, int32_t* out, int64_t stride,
                                  anyattn_error* error) const {
  if (const int32_t status = check_group(group, "block_table", error)) return status;
  const Table& table = tables_[group];
  for (size_t i = 0; i < requests.size(); ++i) {
    uint32_t row;
    if (const int32_t status = row_of(requests[i], "block_table", &row, error)) return status;
    const int64_t length = int64_t{table.spans[row].end} * table.ratio;
    if (length > stride) {
      return anyattn_error_set(
          error, ANYATTN_INVALID_ARGUMENT,
          "kv pool: block_table of request %llu has %lld entries, the stride given is %lld; %u always suffices",
          static_cast<ull>(requests[i]), static_cast<long long>(length), static_cast<long long>(stride), table.width);
    }
    std::copy_n(table.entries.begin() + static_cast<ptrdiff_t>(size_t{row} * table.width), length,
                out + static_cast<int64_t>(i) * stride);
  }
  return ANYATTN_OK;
}

int32_t BlockManager::slot_mapping(uint32_t group, uint64_t request, uint32_t start, uint32_t count, int64_t* out,
                                   anyattn_error* error) const {
  uint32_t row;
  if (const int32_t status = check_group(group, "slot_mapping", error)) return status;
  if (const int32_t status = row_of(request, "slot_mapping", &row, error)) return status;
  const Table& table = tables_[group];
  const uint32_t live = table.spans[row].live_begin * shape_.groups[group].block_size;
  const uint32_t reserved = requests_[row].reserved_tokens;
  if (start < live || start > reserved || count > reserved - start) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                             "kv pool: slot_mapping of tokens %u to %llu of request %llu in group %u (%s); held are %u to %u",
                             start, static_cast<ull>(start) + count, static_cast<ull>(request), group,
                             shape_.groups[group].label.c_str(), live, reserved);
  }
  const int64_t size = shape_.groups[group].kernel_block_size;
  const int32_t* entries = table.entries.data() + size_t{row} * table.width;
  for (uint32_t i = 0; i < count; ++i) out[i] = entries[(start + i) / size] * size + (start + i) % size;
  return ANYATTN_OK;
}

// First block that a token at next_position can see anything of.
uint32_t BlockManager::window_begin(uint32_t group, uint32_t next_position) const {
  const int32_t window_left = shape_.groups[group].window_left;
  if (window_left < 0 || next_position <= static_cast<uint32_t>(window_left)) return 0;
  return (next_position - static_cast<uint32_t>(window_left)) / shape_.groups[group].block_size;
}

uint32_t BlockManager::block_at(uint32_t group, uint32_t row, uint32_t index) const {
  const Table& table = tables_[group];
  return static_cast<uint32_t>(table.entries[size_t{row} * table.width + size_t{index} * table.ratio]) / table.ratio;
}

void BlockManager::set_block(uint32_t group, uint32_t row, uint32_t index, uint32_t block) {
  Table& table = tables_[group];
  int32_t* entries = table.entries.data() + size_t{row} * table.width + size_t{index} * table.ratio;
  for (uint32_t j = 0; j < table.ratio; ++j)
    entries[j] = block == kNoBlock ? -1 : static_cast<int32_t>(block * table.ratio + j);
}

const ContentHash& BlockManager::content_at(uint32_t group, uint32_t row, uint32_t index) const {
  const Table& table = tables_[group];
  return table.content[size_t{row} * (table.width / table.ratio) + index];
}

int32_t BlockManager::row_of(uint64_t request, const char* call, uint32_t* row, anyattn_error* error) const {
  *row = rows_.find({request});
  if (*row != FlatMap<Key>::kAbsent) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_NOT_FOUND, "kv pool: %s of request %llu, which is not held; begin it first", call,
                           static_cast<ull>(request));
}

int32_t BlockManager::check_group(uint32_t group, const char* call, anyattn_error* error) const {
  if (group < num_groups()) return ANYATTN_OK;
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "kv pool: %s of group %u; this pool has %u", call, group,
                           num_groups());
}

}  // namespace anyattn::cache
