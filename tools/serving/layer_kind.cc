// SPDX-License-Identifier: Apache-2.0
#include "serving/layer_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/failure.h"
#include "serving/mla_layers.h"
#include "serving/plain_layers.h"

namespace anyattn::tools {
namespace {

using conformance::HeadShape;
using conformance::KeyReader;
using conformance::Reference;
using conformance::RowRules;

const conformance::CacheFormat& cache_format_of(const std::string& name, const anyattn_problem& problem, bool latent) {
  const conformance::CacheFormat* format = conformance::find_cache_format(name);
  if (!format)
    throw Failure(kExitUsage, fmt::format("--kv-cache-dtype {}: run recomputes rows over caches it can read: {}", name,
                                          fmt::join(conformance::cache_format_names(latent), ", ")));
  for (const uint32_t size : {problem.head_size, latent ? problem.head_size : problem.head_size_v}) {
    const std::string why = conformance::why_no_row(*format, static_cast<int>(size), static_cast<int>(problem.kv_lora_rank));
    if (!why.empty()) throw Failure(kExitUsage, fmt::format("run recomputes rows as the formats define them, and {}", why));
  }
  return *format;
}

}  // namespace

Group make_group(const KindSpec& spec, const LayerOptions& options, const anyattn_limits& limits, MetadataMode mode) {
  Group::Options group_options;
  group_options.problem = spec.problem;
  group_options.limits = limits;
  group_options.device = options.device;
  group_options.label = spec.label;
  group_options.metadata_mode = static_cast<uint32_t>(mode);
  group_options.stream = options.place->stream;
  return Group(*options.place->runtime, group_options);
}

std::unique_ptr<LayerKind> LayerKind::make(const KindSpec& spec, const LayerOptions& options) {
  Group group = make_group(spec, options, options.limits, MetadataMode::kNormal);
  if (group.info().is_mla) return std::make_unique<MlaLayers>(spec, options, std::move(group));
  return std::make_unique<PlainLayers>(spec, options, std::move(group));
}

LayerKind::LayerKind(const KindSpec& spec, const LayerOptions& options, Group group)
    : spec_(spec),
      options_(options),
      group_(std::move(group)),
      info_(group_.info()),
      cache_format_(cache_format_of(info_.kv_cache_dtype, spec.problem, info_.is_mla != 0)) {}

std::string LayerKind::backends() const {
  const std::string prefill = info_.backend;
  return prefill == info_.decode_backend ? prefill : prefill + " + " + info_.decode_backend;
}

void LayerKind::attach(const anyattn_kv_pool* pool, uint32_t pool_group) {
  pool_group_ = pool_group;
  caches_.resize(spec_.num_layers);
  for (uint32_t layer = 0; layer < spec_.num_layers; ++layer) {
    caches_[layer].struct_size = ANYATTN_CACHE_SIZE;
    anyattn::check(anyattn_kv_pool_layer_cache, pool, pool_group, layer, &caches_[layer]);
  }
}

void LayerKind::update(const StepBatch& batch, AttentionTimer& timer) {
  const auto update_part = [&](uint32_t part) {
    const anyattn_batch slice = batch.batch(pool_group_, part);
    timer.measure(Spent::kMetadata, [&] { group_.update(part, slice, place().stream); });
  };
  if (!info_.needs_split) return update_part(ANYATTN_PHASE_BOTH);
  if (batch.split().num_decode_tokens > 0) update_part(ANYATTN_PHASE_DECODE);
  if (batch.split().num_prefill_tokens > 0) update_part(ANYATTN_PHASE_PREFILL);
}

void LayerKind::draw_rows(const StepBatch& batch, uint32_t first_token, uint32_t num_tokens, uint64_t what, uint32_t layer,
                          float amplitude, size_t count, const DeviceBuffer& buffer) const {
  const uint32_t type = dtype();
  const size_t row_bytes = count * dtype_bytes();
  place().runtime->parallel_for(num_tokens, 8, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> row(type == ANYATTN_DTYPE_FLOAT32 ? 0 : count);
    for (uint64_t t = begin; t < end; ++t) {
      const uint64_t key = row_key(what, layer, batch.token_ids()[first_token + t], batch.positions()[first_token + t]);
      char* out = buffer.host<char>() + t * row_bytes;
      if (type == ANYATTN_DTYPE_FLOAT32) {
        draw_uniform(key, amplitude, count, reinterpret_cast<float*>(out));
        continue;
      }
      draw_uniform(key, amplitude, count, row.data());
      store_values(type, row.data(), count, out);
    }
  });
  buffer.upload(num_tokens * row_bytes);
}

void LayerKind::redraw_row(uint64_t what, uint32_t layer, int32_t token_id, uint32_t position, float amplitude, size_t first,
                           size_t count, const Stored* stored, float* out) const {
  draw_uniform(row_key(what, layer, token_id, position), amplitude, count, out, first);
  round_values(dtype(), out, count);
  if (!stored || (cache_format_.coding == conformance::Coding::kFloat && cache_format_.dtype == dtype())) return;
  for (size_t i = 0; i < count; i += stored->size)
    conformance::through_cache(cache_format_, stored->kind, {out + i, stored->size}, 1.0f, stored->kv_lora_rank);
}

void store_values(uint32_t dtype, const float* from, size_t count, void* to) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  if (dtype == ANYATTN_DTYPE_BFLOAT16) return store_bfloat16(from, count, static_cast<uint16_t*>(to));
  const size_t width = conformance::dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) conformance::store_element(dtype, static_cast<char*>(to) + i * width, from[i]);
}

void load_values(uint32_t dtype, const void* from, size_t count, float* to) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const size_t width = conformance::dtype_bytes(dtype);
  for (size_t i = 0; i < count; ++i) to[i] = conformance::load_element(dtype, static_cast<const char*>(from) + i * width);
}

void round_values(uint32_t dtype, float* values, size_t count) {
  if (dtype == ANYATTN_DTYPE_FLOAT32) return;
  if (dtype == ANYATTN_DTYPE_BFLOAT16) return round_bfloat16(values, count);
  for (size_t i = 0; i < count; ++i) values[i] = conformance::rounded(dtype, values[i]);
}

float query_amplitude(double softmax_scale, uint32_t head_size) {
  // The product of two uniforms in [-a, a) and [-1, 1) has variance a^2 / 9.
  return static_cast<float>(6.0 / (softmax_scale * std::sqrt(static_cast<double>(head_size))));
}

Reference reference_row(const Runtime& runtime, const HeadShape& shape, const RowRules& rules, int64_t position,
                        int64_t num_keys, const float* q, const KeysOfHeads& keys, uint32_t q_dtype) {
  // Threads take kv heads with their query heads; where there are more threads, each kv head's query heads are cut.
  const int workers = static_cast<int>(runtime.num_workers());
  const int group = shape.num_q_heads / shape.num_kv_heads;
  const int kv_parts = std::min(shape.num_kv_heads, workers);
  const int cuts = std::clamp(workers / kv_parts, 1, group);
  std::vector<Reference> results(static_cast<size_t>(kv_parts) * static_cast<size_t>(cuts));
  runtime.parallel_for(results.size(), 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t part = begin; part < end; ++part) {
      const int kv_part = static_cast<int>(part) / cuts, cut = static_cast<int>(part) % cuts;
      const int first = shape.num_kv_heads * kv_part / kv_parts;
      const int count = shape.num_kv_heads * (kv_part + 1) / kv_parts - first;  // 1 where cuts > 1
      const int first_q = first * group + group * cut / cuts;
      HeadShape own = shape;
      own.num_kv_heads = count;
      own.num_q_heads = cuts > 1 ? first * group + group * (cut + 1) / cuts - first_q : count * group;
      RowRules own_rules = rules;
      const auto heads = [&](std::span<const float> all) {
        return all.empty() ? all : all.subspan(static_cast<size_t>(first_q), static_cast<size_t>(own.num_q_heads));
      };
      own_rules.alibi_slopes = heads(rules.alibi_slopes);
      own_rules.sinks = heads(rules.sinks);
      const float* own_q = q + static_cast<ptrdiff_t>(first_q) * shape.head_size;
      const KeyReader own_keys = keys(static_cast<uint32_t>(first), static_cast<uint32_t>(count));
      conformance::attend_row(own, own_rules, position, num_keys, own_q, own_keys, q_dtype, &results[part]);
    }
  });
  Reference row;
  for (const Reference& part : results) {
    row.exact.insert(row.exact.end(), part.exact.begin(), part.exact.end());
    row.naive.insert(row.naive.end(), part.naive.begin(), part.naive.end());
    row.exact_lse.insert(row.exact_lse.end(), part.exact_lse.begin(), part.exact_lse.end());
    row.naive_lse.insert(row.naive_lse.end(), part.naive_lse.begin(), part.naive_lse.end());
    row.max_score = std::max(row.max_score, part.max_score);
    row.max_value = std::max(row.max_value, part.max_value);
  }
  return row;
}

RowCheck judge_row(const Reference& reference, const void* values, uint32_t out_dtype, const std::string& who) {
  std::vector<float> got(reference.exact.size());
  load_values(out_dtype, values, got.size(), got.data());
  const double bound = conformance::bound_of(reference, out_dtype).out;
  const conformance::Comparison comparison = conformance::compare(got, reference.exact, bound, "out");
  return {comparison.ratio, comparison.ok() ? "" : who + ": " + comparison.failure};
}

}  // namespace anyattn::tools
