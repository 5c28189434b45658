// SPDX-License-Identifier: Apache-2.0
// Rows of MLA layers recomputed: decode rows over the latents as keys, prefill rows over expanded keys, part by part as they
// were computed. Every latent is drawn anew, so a wrong slot, chunk or merge shows.
#include <fmt/format.h>

#include <algorithm>

#include "serving/mla_layers.h"

namespace anyattn::tools {
namespace {

std::string name_of(const KindSpec& spec, uint32_t layer, const StepRow& row, uint32_t position) {
  return fmt::format("{} layer {}, request {}, position {}", spec.label, layer, row.request->id + 1, position);
}

}  // namespace

RowCheck MlaLayers::check(const StepBatch& batch, uint32_t layer, uint32_t token) {
  return token < batch.split().num_decode_tokens ? check_decode(batch, layer, token) : check_prefill(batch, layer, token);
}

void MlaLayers::redraw_latent(const StepRow& row, uint32_t layer, uint32_t position, bool stored, float* kv_c,
                              float* k_pe) const {
  const int32_t token_id = row.request->content.token_id(position);
  const Stored latent{conformance::RowKind::kLatent, rank_, static_cast<int>(rank_)};
  const Stored rope{conformance::RowKind::kLatent, rope_};  // no value of it is latent
  if (kv_c) redraw_row(kLatentRow, layer, token_id, position, 1, 0, rank_, stored ? &latent : nullptr, kv_c);
  if (k_pe) redraw_row(kRopeRow, layer, token_id, position, 1, 0, rope_, stored ? &rope : nullptr, k_pe);
}

RowCheck MlaLayers::check_decode(const StepBatch& batch, uint32_t layer, uint32_t token) {
  const StepRow& row = batch.rows()[batch.row_of_token()[token]];
  const uint32_t position = batch.positions()[token];
  const uint32_t width = rank_ + rope_;
  std::vector<float> q(size_t{heads_} * width), latent(size_t{heads_} * rank_), rope(size_t{heads_} * rope_);
  const Rows& of = rows(layer);
  load_row(of.q_latent, token, latent.size(), latent.data());
  load_row(of.q_pe, token, rope.size(), rope.data());
  for (uint32_t h = 0; h < heads_; ++h) {
    std::copy_n(latent.begin() + h * rank_, rank_, q.begin() + h * width);
    std::copy_n(rope.begin() + h * rope_, rope_, q.begin() + h * width + rank_);
  }
  const auto keys = [&](uint32_t, uint32_t) {  // there is one kv head
    return conformance::KeyReader{
        [&](int64_t key, float* into) { redraw_latent(row, layer, static_cast<uint32_t>(key), true, into, into + rank_); },
        [&](int64_t key, float* into) { redraw_latent(row, layer, static_cast<uint32_t>(key), true, into, nullptr); }};
  };
  conformance::RowRules rules;
  rules.softmax_scale = spec_.softmax_scale;
  const conformance::HeadShape shape{static_cast<int>(heads_), 1, static_cast<int>(width), static_cast<int>(rank_)};
  const auto reference =
      reference_row(*place().runtime, shape, rules, position, row.start + row.count, q.data(), keys, dtype());
  const size_t out_bytes = size_t{heads_} * rank_ * conformance::dtype_bytes(spec_.problem.out_dtype);
  of.latent_out.download(token * out_bytes, out_bytes);
  return judge_row(reference, of.latent_out.host() + token * out_bytes, spec_.problem.out_dtype,
                   name_of(spec_, layer, row, position));
}

// Keys from first_position on, expanded as the engine expands them. `stored`: they went through the cache.
KeysOfHeads MlaLayers::expanded_keys(const StepRow& row, uint32_t layer, uint32_t first_position, bool stored) const {
  const auto expanded = [this, &row, layer, first_position, stored](int64_t key, bool values, uint32_t first, uint32_t count,
                                                                    float* into) {
    std::vector<float> latent(rank_), padded(rank_ + std::max(nope_, width_v_)), rope(rope_);
    redraw_latent(row, layer, first_position + static_cast<uint32_t>(key), stored, latent.data(),
                  values ? nullptr : rope.data());
    if (stored) {  // context_gather gives rows in the query's dtype
      round_values(dtype(), latent.data(), latent.size());
      round_values(dtype(), rope.data(), rope.size());
    }
    const uint32_t width = values ? width_v_ : nope_ + rope_;
    (values ? layers_[layer].values : layers_[layer].keys).expand(latent.data(), padded.data(), first, count, into, width);
    for (uint32_t h = 0; h < count && !values; ++h) std::copy(rope.begin(), rope.end(), into + h * width + nope_);
    round_values(dtype(), into, size_t{count} * width);
  };
  return [expanded](uint32_t first, uint32_t count) {
    return conformance::KeyReader{[=](int64_t key, float* into) { expanded(key, false, first, count, into); },
                                  [=](int64_t key, float* into) { expanded(key, true, first, count, into); }};
  };
}

RowCheck MlaLayers::check_prefill(const StepBatch& batch, uint32_t layer, uint32_t token) {
  const uint32_t r = batch.row_of_token()[token];
  const StepRow& row = batch.rows()[r];
  const uint32_t position = batch.positions()[token];
  const uint32_t prefill_token = token - batch.split().num_decode_tokens;
  const uint32_t prefill_row = r - batch.split().num_decode_reqs;
  std::vector<float> q(size_t{heads_} * (nope_ + rope_));
  load_row(q_, prefill_token, q.size(), q.data());
  const conformance::HeadShape shape{static_cast<int>(heads_), static_cast<int>(heads_), static_cast<int>(nope_ + rope_),
                                     static_cast<int>(width_v_)};
  conformance::RowRules rules;
  rules.softmax_scale = spec_.softmax_scale;
  std::vector<conformance::Reference> parts;
  parts.push_back(reference_row(*place().runtime, shape, rules, position - row.start, row.count, q.data(),
                                expanded_keys(row, layer, row.start, false), dtype()));
  rules.causal = false;
  const uint32_t reqs = batch.split().num_prefill_reqs;
  for (uint32_t c = 0; c < plan_.num_chunks; ++c) {
    const int32_t* starts = plan_.row_start_loc.host<int32_t>() + size_t{c} * (reqs + 1);
    const int32_t keys = starts[prefill_row + 1] - starts[prefill_row];
    if (keys == 0) continue;
    const auto first = static_cast<uint32_t>(plan_.context_start.host<int32_t>()[size_t{c} * reqs + prefill_row]);
    parts.push_back(
        reference_row(*place().runtime, shape, rules, 0, keys, q.data(), expanded_keys(row, layer, first, true), dtype()));
  }
  const bool merged = plan_.num_chunks > 0;
  const auto reference = merged ? conformance::merge_parts(parts, width_v_, spec_.problem.out_dtype) : parts.front();
  const size_t out_bytes = size_t{heads_} * width_v_ * conformance::dtype_bytes(spec_.problem.out_dtype);
  parts_.front().out.download(prefill_token * out_bytes, out_bytes);
  return judge_row(reference, parts_.front().out.host() + prefill_token * out_bytes, spec_.problem.out_dtype,
                   name_of(spec_, layer, row, position));
}

}  // namespace anyattn::tools
