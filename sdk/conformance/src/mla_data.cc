// SPDX-License-Identifier: Apache-2.0
#include "mla_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "format_case.h"

namespace anyattn::conformance {
namespace {

size_t as_size(int64_t value) { return static_cast<size_t>(value); }

void round_all(uint32_t dtype, std::vector<float>* values) {
  for (float& value : *values) value = rounded(dtype, value);
}

// latent [rows, lora] times w [heads, lora, width], per head into out [rows, heads, stride]; sums in double.
void up_project(const Case& c, const MlaData& data, const std::vector<float>& latents, const std::vector<float>& w, int width,
                int64_t stride, std::vector<float>* out) {
  const int row_size = c.kv_lora_rank + c.rope;
  std::vector<double> sums(as_size(width));
  for (int64_t row = 0; row < data.num_key_rows; ++row) {
    for (int h = 0; h < c.num_q_heads; ++h) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int l = 0; l < c.kv_lora_rank; ++l) {
        const double value = latents[as_size(row * row_size + l)];
        const float* weights = w.data() + as_size((int64_t{h} * c.kv_lora_rank + l) * width);
        for (size_t d = 0; d < sums.size(); ++d) sums[d] += value * static_cast<double>(weights[d]);
      }
      float* into = out->data() + as_size((row * c.num_q_heads + h) * stride);
      for (size_t d = 0; d < sums.size(); ++d) into[d] = static_cast<float>(sums[d]);
    }
  }
}

// The engine expands what it gathered for the context and its own rows for the new tokens.
std::vector<float> rows_to_expand(const Case& c, const MlaData& data) {
  std::vector<float> rows = data.gathered;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const int64_t width = c.kv_lora_rank + c.rope, first = data.key_start[r] + c.lens[r].key_len - c.lens[r].query_len;
    std::copy_n(data.rows.begin() + first * width, c.lens[r].query_len * width, rows.begin() + first * width);
  }
  return rows;
}

void store(const Case& c, MlaData* data) {
  data->stored = stored_rows(c, RowKind::kLatent, data->rows, 1, c.kv_lora_rank + c.rope, k_scales_of(c));
  data->gathered = data->stored;
  round_all(c.dtype, &data->gathered);
}

void expand(const Case& c, const std::vector<float>& w_uv, MlaData* data) {
  const int64_t depth = c.nope + c.rope;
  data->expanded_k.assign(as_size(data->num_key_rows * c.num_q_heads * depth), 0.0f);
  data->expanded_v.assign(as_size(data->num_key_rows * c.num_q_heads * c.v_head_dim), 0.0f);
  const std::vector<float> latents = rows_to_expand(c, *data);
  up_project(c, *data, latents, data->w_uk, c.nope, depth, &data->expanded_k);
  up_project(c, *data, latents, w_uv, c.v_head_dim, c.v_head_dim, &data->expanded_v);
  for (int64_t row = 0; row < data->num_key_rows; ++row) {
    const float* rope_key = latents.data() + as_size(row * (c.kv_lora_rank + c.rope) + c.kv_lora_rank);
    for (int h = 0; h < c.num_q_heads; ++h) {
      std::copy_n(rope_key, c.rope, data->expanded_k.begin() + (row * c.num_q_heads + h) * depth + c.nope);
    }
  }
  round_all(c.dtype, &data->expanded_k);
  round_all(c.dtype, &data->expanded_v);
}

void draw_prefill(const Case& c, MlaData* data) {
  std::vector<uint64_t> seeds = c.seeds;
  while (seeds.size() < 5) seeds.push_back(seeds.back() + 1);
  const int64_t heads_latent = int64_t{c.num_q_heads} * c.kv_lora_rank;
  data->w_uk = draw(seeds[0], as_size(heads_latent * c.nope));
  const auto w_uv = draw(seeds[1], as_size(heads_latent * c.v_head_dim));
  const auto latents = draw(seeds[2], as_size(data->num_key_rows * c.kv_lora_rank));
  const auto rope_keys = draw(seeds[3], as_size(data->num_key_rows * c.rope));
  data->q = draw(seeds[4], as_size(int64_t{data->query_start_loc.back()} * c.num_q_heads * (c.nope + c.rope)));
  for (int64_t row = 0; row < data->num_key_rows; ++row) {
    const auto latent = latents.begin() + row * c.kv_lora_rank;
    const auto rope_key = rope_keys.begin() + row * c.rope;
    data->rows.insert(data->rows.end(), latent, latent + c.kv_lora_rank);
    data->rows.insert(data->rows.end(), rope_key, rope_key + c.rope);
  }
  round_all(c.dtype, &data->rows);
  store(c, data);
  expand(c, w_uv, data);
}

}  // namespace

MlaData make_mla_data(const Case& c) {
  MlaData data;
  data.query_start_loc = {0};
  for (const RequestLens& lens : c.lens) {
    data.query_start_loc.push_back(data.query_start_loc.back() + lens.query_len);
    data.key_start.push_back(data.num_key_rows);
    data.num_key_rows += lens.key_len;
  }
  data.num_tokens = data.query_start_loc.back() + c.pad_rows;
  const bool decode = c.kind == Kind::kMlaDecode;
  const int depth = decode ? c.kv_lora_rank + c.rope : c.nope + c.rope;
  data.softmax_scale = c.softmax_scale > 0.0 ? c.softmax_scale : 1.0 / std::sqrt(static_cast<double>(c.nope + c.rope));
  if (decode) {
    data.q = draw(c.seeds[0], as_size(int64_t{data.query_start_loc.back()} * c.num_q_heads * depth));
    data.rows = draw(c.seeds[1], as_size(data.num_key_rows * depth));
    round_all(c.dtype, &data.rows);
    store(c, &data);
  } else {
    draw_prefill(c, &data);
  }
  for (size_t r = 0; c.data == Data::kNanQ && r < c.lens.size(); ++r)
    std::fill_n(data.q.begin() + int64_t{data.query_start_loc[r]} * c.num_q_heads * depth,
                c.lens[r].query_len > 0 ? c.num_q_heads * depth : 0, std::numeric_limits<float>::quiet_NaN());
  data.q.resize(as_size(data.num_tokens * c.num_q_heads * depth), std::numeric_limits<float>::quiet_NaN());
  round_all(c.dtype, &data.q);
  return data;
}

RowRules mla_rules(const Case& c, const MlaData& data, size_t request, uint32_t rank) {
  RowRules rules;
  rules.softmax_scale = data.softmax_scale;
  rules.causal = c.causal.empty() ? !c.non_causal : c.causal[request] != 0;
  if (c.cp_world_size > 0) {
    rules.cp_world_size = static_cast<uint32_t>(c.cp_world_size);
    rules.cp_interleave = static_cast<uint32_t>(c.cp_interleave);
    rules.cp_rank = rank;
  }
  return rules;
}

Reference mla_decode_reference(const Case& c, const MlaData& data, uint32_t rank) {
  const int depth = c.kv_lora_rank + c.rope;
  const HeadShape shape{c.num_q_heads, 1, depth, c.kv_lora_rank};
  Reference reference;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const RowRules rules = mla_rules(c, data, r, rank);
    const auto read = [&, r](int width) {
      return [&, r, width](int64_t key, float* into) {
        std::copy_n(data.stored.begin() + (data.key_start[r] + position_of_key(rules, key)) * depth, width, into);
      };
    };
    const KeyReader keys{read(depth), read(c.kv_lora_rank)};
    const auto [query_len, key_len] = c.lens[r];
    const int64_t num_keys = shard_length(key_len, rules.cp_world_size, rank, rules.cp_interleave);
    for (int32_t i = 0; i < query_len; ++i) {
      const float* q = data.q.data() + as_size(int64_t{data.query_start_loc[r] + i} * c.num_q_heads * depth);
      attend_row(shape, rules, key_len - query_len + i, num_keys, q, keys, c.dtype, &reference);
    }
  }
  for (int i = 0; i < c.pad_rows; ++i) append_empty_row(shape, &reference);
  return reference;
}

std::vector<ChunkPlan> plan_chunks(const Case& c) {
  std::vector<ChunkPlan> plans;
  for (int32_t round = 0;; ++round) {
    ChunkPlan plan;
    plan.row_start_loc = {0};
    for (const RequestLens& lens : c.lens) {
      const int32_t context = lens.key_len - lens.query_len;
      const int32_t start = std::min(round * c.context_chunk, context);
      plan.context_start.push_back(start);
      plan.row_start_loc.push_back(plan.row_start_loc.back() + std::min(context - start, c.context_chunk));
    }
    if (plan.row_start_loc.back() == 0) return plans;
    plans.push_back(std::move(plan));
  }
}

Reference mla_part_reference(const Case& c, const MlaData& data, const ChunkPlan* chunk) {
  const int depth = c.nope + c.rope;
  const HeadShape shape{c.num_q_heads, c.num_q_heads, depth, c.v_head_dim};
  RowRules rules;
  rules.softmax_scale = data.softmax_scale;
  rules.causal = chunk == nullptr;
  Reference reference;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const auto [query_len, key_len] = c.lens[r];
    const int64_t first = chunk ? chunk->context_start[r] : key_len - query_len;
    const int64_t count = chunk ? chunk->row_start_loc[r + 1] - chunk->row_start_loc[r] : query_len;
    const auto read = [&](const std::vector<float>& from, int64_t width) {
      return [&, first, r, width](int64_t key, float* into) {
        std::copy_n(from.begin() + (data.key_start[r] + first + key) * width, width, into);
      };
    };
    const KeyReader keys{read(data.expanded_k, int64_t{c.num_q_heads} * depth),
                         read(data.expanded_v, int64_t{c.num_q_heads} * c.v_head_dim)};
    for (int32_t i = 0; i < query_len; ++i) {
      const float* q = data.q.data() + as_size(int64_t{data.query_start_loc[r] + i} * c.num_q_heads * depth);
      attend_row(shape, rules, i, count, q, keys, c.dtype, &reference);
    }
  }
  return reference;
}

}  // namespace anyattn::conformance
