// SPDX-License-Identifier: Apache-2.0
#include "batch.h"

#include <algorithm>

namespace anyattn::conformance {
namespace {

constexpr int64_t kTableGap = 3;  // entries between the table's width and its row stride

}  // namespace

Batch::Batch(const Case& c, const anyattn_limits& limits, bool loose, bool host_lengths) {
  std::vector<int32_t> starts{0};
  uint32_t max_query_len = 1, max_seq_len = 1;
  for (const RequestLens& lens : c.lens) {
    starts.push_back(starts.back() + lens.query_len);
    key_lens_.push_back(lens.key_len);
    max_query_len = std::max(max_query_len, static_cast<uint32_t>(lens.query_len));
    max_seq_len = std::max(max_seq_len, static_cast<uint32_t>(lens.key_len));
  }
  query_start_loc_ = block_of("query_start_loc", starts);
  seq_lens_ = block_of("seq_lens", key_lens_);
  batch_.struct_size = ANYATTN_BATCH_SIZE;
  batch_.num_reqs = static_cast<uint32_t>(c.lens.size());
  batch_.num_tokens = static_cast<uint32_t>(starts.back() + c.pad_rows);
  batch_.max_query_len = loose ? limits.max_query_len : max_query_len;
  batch_.max_seq_len = loose ? limits.max_seq_len : max_seq_len;
  batch_.shared_prefix_len = static_cast<uint32_t>(c.shared_prefix);
  if (c.lens.empty()) return;  // the arrays stay null
  batch_.query_start_loc = query_start_loc_.lent_as<int32_t>();
  batch_.seq_lens = seq_lens_.lent_as<int32_t>();
  if (host_lengths) {
    query_start_loc_host_ = block_of("query_start_loc_host", starts, Side::kHost);
    seq_lens_host_ = block_of("seq_lens_host", key_lens_, Side::kHost);
    batch_.query_start_loc_host = query_start_loc_host_.as<int32_t>();
    batch_.seq_lens_host = seq_lens_host_.as<int32_t>();
  }
  if (!c.causal.empty()) {
    std::vector<uint8_t> causal;
    for (int value : c.causal) causal.push_back(value ? 1 : 0);
    causal_ = block_of("causal", causal);
    batch_.causal = causal_.lent_as<uint8_t>();
  }
  if (!c.mm.empty()) {
    std::vector<int32_t> mm_starts{0}, ranges;
    for (size_t r = 0; r < c.lens.size(); ++r) {
      for (const MmSpan& span : c.mm) {
        if (static_cast<size_t>(span.request) == r) ranges.insert(ranges.end(), {span.first, span.last});
      }
      mm_starts.push_back(static_cast<int32_t>(ranges.size() / 2));
    }
    mm_start_ = block_of("mm_prefix_start_loc", mm_starts);
    mm_ranges_ = block_of("mm_prefix_ranges", ranges);
    batch_.mm_prefix_start_loc = mm_start_.lent_as<int32_t>();
    batch_.mm_prefix_ranges = mm_ranges_.lent_as<int32_t>();
  }
}

void Batch::set_table(const std::vector<std::vector<int64_t>>& rows, const anyattn_limits& limits) {
  const int64_t stride = int64_t{limits.max_blocks_per_req} + kTableGap;
  std::vector<int32_t> entries(static_cast<size_t>(stride) * rows.size(), kForbiddenBlock);
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < rows[r].size(); ++i) entries[r * static_cast<size_t>(stride) + i] = static_cast<int32_t>(rows[r][i]);
  }
  table_ = block_of("block_table", entries);
  batch_.block_table = table_.lent_as<int32_t>();
  batch_.block_table_stride = stride;
}

void Batch::punch(size_t request, size_t block) {
  table_.as<int32_t>()[request * static_cast<size_t>(batch_.block_table_stride) + block] = -1;
}

void Batch::set_key_starts() {
  std::vector<int32_t> starts{0};
  for (int32_t length : key_lens_) starts.push_back(starts.back() + length);
  key_start_loc_ = block_of("key_start_loc", starts);
  batch_.key_start_loc = key_start_loc_.lent_as<int32_t>();
}

void Batch::check() const {
  for (const Block* block : {&query_start_loc_, &seq_lens_, &table_, &key_start_loc_, &causal_, &mm_start_, &mm_ranges_})
    block->check();
}

}  // namespace anyattn::conformance
