// SPDX-License-Identifier: Apache-2.0
#include "serving/plain_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace anyattn::tools {
namespace {

constexpr uint64_t kQuery = 1;
constexpr uint64_t kKey = 2;
constexpr uint64_t kValue = 3;
constexpr uint64_t kSinks = 4;
constexpr uint32_t kMostGraphRows = 512;  // a step of more rows keeps a device busy without graphs
constexpr float kSinkAmplitude = 4;       // logits of the size of the scores, so that a lost sink shows

// The usual slopes: 2^(-8 (h + 1) / heads).
void fill_slopes(uint32_t heads, float* out) {
  for (uint32_t h = 0; h < heads; ++h) out[h] = static_cast<float>(std::exp2(-8.0 * (h + 1) / heads));
}

}  // namespace

PlainLayers::PlainLayers(const KindSpec& spec, const LayerOptions& options, Group group)
    : LayerKind(spec, options, std::move(group)),
      q_row_(size_t{spec.problem.num_q_heads} * spec.problem.head_size),
      k_row_(size_t{spec.problem.num_kv_heads} * spec.problem.head_size),
      v_row_(size_t{spec.problem.num_kv_heads} * spec.problem.head_size_v),
      out_row_(size_t{spec.problem.num_q_heads} * spec.problem.head_size_v),
      q_amplitude_(query_amplitude(spec.softmax_scale, spec.problem.head_size)) {
  shared_rows_ = make_rows(options.limits.max_num_tokens);
  const size_t head_bytes = spec.problem.num_q_heads * sizeof(float);
  if (spec.has(ANYATTN_FEATURE_SINKS)) {
    sinks_ = DeviceBuffer(place(), head_bytes);
    draw_uniform(row_key(kSinks, 0, 0, 0), kSinkAmplitude, spec.problem.num_q_heads, sinks_.host<float>());
    sinks_.upload(head_bytes);
  }
  if (spec.has(ANYATTN_FEATURE_ALIBI) || spec.has(ANYATTN_FEATURE_ALIBI_SQRT)) {
    slopes_ = DeviceBuffer(place(), head_bytes);
    fill_slopes(spec.problem.num_q_heads, slopes_.host<float>());
    slopes_.upload(head_bytes);
  }
  make_graphs();
}

PlainLayers::Rows PlainLayers::make_rows(size_t tokens) const {
  return {DeviceBuffer(place(), tokens * q_row_ * dtype_bytes()), DeviceBuffer(place(), tokens * k_row_ * dtype_bytes()),
          DeviceBuffer(place(), tokens * v_row_ * dtype_bytes()),
          DeviceBuffer(place(), tokens * out_row_ * conformance::dtype_bytes(spec_.problem.out_dtype))};
}

// Decode steps have graphs of their own, since a backend may launch less for them; mixed steps have some where the level is ALWAYS.
void PlainLayers::make_graphs() {
  if (!options_.graphs || info_.needs_split || info_.graph_level < ANYATTN_GRAPH_SINGLE_TOKEN_DECODE) return;
  uint32_t most = options_.limits.max_num_reqs;
  graphs_.push_back(std::make_unique<StepGraphs>(spec_, options_, most, 1, info_.spec->digest));
  if (info_.graph_level >= ANYATTN_GRAPH_ALWAYS) {
    most = std::max(most, std::min(options_.limits.max_num_tokens, kMostGraphRows));
    graphs_.push_back(std::make_unique<StepGraphs>(spec_, options_, most, most, info_.spec->digest));
  }
  for (uint32_t layer = 0; layer < spec_.num_layers; ++layer) rows_of_layer_.push_back(make_rows(most));
}

bool PlainLayers::takes_as_replay(StepBatch& batch) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const auto& graphs) { return graphs->takes(batch); });
  taken_by_ = found == graphs_.end() ? nullptr : found->get();
  return taken_by_ != nullptr;
}

size_t PlainLayers::num_graphs() const {
  size_t count = 0;
  for (const auto& graphs : graphs_) count += graphs->size();
  return count;
}

void PlainLayers::replay(StepBatch& batch, AttentionTimer& timer) {
  StepGraphs& graphs = *taken_by_;
  const uint32_t rows = graphs.rows_for(batch.num_tokens());
  timer.measure(Spent::kMetadata, [&] {
    batch.pad_slots(rows);
    graphs.group().update(ANYATTN_PHASE_BOTH, batch.padded_batch(pool_group(), rows, graphs.limits()), place().stream);
  });
  const DeviceGraph& graph = graphs.graph(place(), rows, [&] {
    for (uint32_t layer = 0; layer < spec_.num_layers; ++layer) {
      store(graphs.group(), batch, layer, rows);
      forward(graphs.group(), layer, ANYATTN_PHASE_BOTH, 0, rows);
    }
  });
  timer.measure(Spent::kKernels, [&] { graph.launch(place().stream); });
}

void PlainLayers::draw(const StepBatch& batch, uint32_t layer) {
  const Rows& to = rows(layer);
  draw_rows(batch, 0, batch.num_tokens(), kQuery, layer, q_amplitude_, q_row_, to.q);
  draw_rows(batch, 0, batch.num_tokens(), kKey, layer, 1, k_row_, to.k);
  draw_rows(batch, 0, batch.num_tokens(), kValue, layer, 1, v_row_, to.v);
}

void PlainLayers::attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) {
  const auto& split = batch.split();
  const auto store_rows = [&] { store(group_, batch, layer, batch.num_tokens()); };
  timer.measure(Spent::kCacheUpdate, store_rows, Spent::kKernels, [&] {
    if (!info_.needs_split) return forward(group_, layer, ANYATTN_PHASE_BOTH, 0, batch.num_tokens());
    forward(group_, layer, ANYATTN_PHASE_DECODE, 0, split.num_decode_tokens);
    forward(group_, layer, ANYATTN_PHASE_PREFILL, split.num_decode_tokens, split.num_prefill_tokens);
  });
}

void PlainLayers::store(Group& group, const StepBatch& batch, uint32_t layer, uint32_t num_tokens) {
  const auto& problem = spec_.problem;
  const Rows& from = rows(layer);
  const Tensor k = place().tensor(from.k.device(), dtype(), {num_tokens, problem.num_kv_heads, problem.head_size});
  const Tensor v = place().tensor(from.v.device(), dtype(), {num_tokens, problem.num_kv_heads, problem.head_size_v});
  const Tensor slots = place().tensor(batch.slots(pool_group()), ANYATTN_DTYPE_INT64, {num_tokens});
  anyattn_kv_cache_update_args args{};
  args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  args.k = k;
  args.v = v;
  args.slot_mapping = slots;
  args.cache = &caches_[layer];
  args.stream = place().stream;
  group.kv_cache_update(args);
}

void PlainLayers::forward(Group& group, uint32_t layer, uint32_t part, uint32_t first_token, uint32_t num_tokens) {
  if (num_tokens == 0) return;
  const auto& problem = spec_.problem;
  const Rows& from = rows(layer);
  const size_t out_bytes = conformance::dtype_bytes(problem.out_dtype);
  const Tensor q = place().tensor(from.q.device() + first_token * q_row_ * dtype_bytes(), dtype(),
                                  {num_tokens, problem.num_q_heads, problem.head_size});
  const Tensor out = place().tensor(from.out.device() + first_token * out_row_ * out_bytes, problem.out_dtype,
                                    {num_tokens, problem.num_q_heads, problem.head_size_v});
  const Tensor sinks = place().tensor(sinks_.device(), ANYATTN_DTYPE_FLOAT32, {problem.num_q_heads});
  const Tensor slopes = place().tensor(slopes_.device(), ANYATTN_DTYPE_FLOAT32, {problem.num_q_heads});
  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.softmax_scale = spec_.softmax_scale;
  args.q = q;
  args.out = out;
  if (sinks_.bytes() > 0) args.sinks = sinks;
  if (slopes_.bytes() > 0) args.alibi_slopes = slopes;
  args.cache = &caches_[layer];
  args.stream = place().stream;
  group.forward(part, args);
}

RowCheck PlainLayers::check(const StepBatch& batch, uint32_t layer, uint32_t token) {
  const auto& problem = spec_.problem;
  const StepRow& row = batch.rows()[batch.row_of_token()[token]];
  const uint32_t position = batch.positions()[token];
  conformance::RowRules rules;
  rules.softmax_scale = spec_.softmax_scale;
  if (spec_.has(ANYATTN_FEATURE_WINDOW)) rules.window_left = problem.window_left;
  if (spec_.has(ANYATTN_FEATURE_SOFT_CAP)) rules.soft_cap = problem.logits_soft_cap;
  if (spec_.has(ANYATTN_FEATURE_CHUNKED_LOCAL)) rules.chunk_size = problem.chunk_size;
  if (spec_.has(ANYATTN_FEATURE_ALIBI)) rules.alibi = conformance::Alibi::kLinear;
  if (spec_.has(ANYATTN_FEATURE_ALIBI_SQRT)) rules.alibi = conformance::Alibi::kSqrt;
  if (slopes_.bytes() > 0) rules.alibi_slopes = {slopes_.host<float>(), problem.num_q_heads};
  if (sinks_.bytes() > 0) rules.sinks = {sinks_.host<float>(), problem.num_q_heads};
  const auto keys = [&](uint32_t first, uint32_t count) {
    const auto redraw = [this, &row, layer, first, count](uint64_t what, Stored stored) {
      return [this, &row, layer, first, count, what, stored](int64_t key, float* into) {
        const auto p = static_cast<uint32_t>(key);
        redraw_row(what, layer, row.request->content.token_id(p), p, 1, first * stored.size, count * stored.size, &stored,
                   into);
      };
    };
    return conformance::KeyReader{redraw(kKey, {conformance::RowKind::kK, problem.head_size}),
                                  redraw(kValue, {conformance::RowKind::kV, problem.head_size_v})};
  };
  const conformance::HeadShape shape{static_cast<int>(problem.num_q_heads), static_cast<int>(problem.num_kv_heads),
                                     static_cast<int>(problem.head_size), static_cast<int>(problem.head_size_v)};
  std::vector<float> q(q_row_);
  const Rows& of = rows(layer);
  const char* stored_q = of.q.host() + token * q_row_ * dtype_bytes();
  load_values(dtype(), stored_q, q_row_, q.data());
  const conformance::Reference reference =
      reference_row(*place().runtime, shape, rules, position, row.start + row.count, q.data(), keys, dtype());
  const size_t out_bytes = out_row_ * conformance::dtype_bytes(problem.out_dtype);
  of.out.download(token * out_bytes, out_bytes);
  return judge_row(reference, of.out.host() + token * out_bytes, problem.out_dtype,
                   fmt::format("{} layer {}, request {}, position {}", spec_.label, layer, row.request->id + 1, position));
}

Work PlainLayers::work(const StepRow& row) const {
  const auto& problem = spec_.problem;
  const double widths = problem.head_size + problem.head_size_v;
  double visible = 0;
  for (uint32_t p = row.start; p < row.start + row.count; ++p) visible += static_cast<double>(spec_.visible_keys(p));
  // Every key that some row of the step sees is read once; new keys are written, queries read, outputs written.
  const double oldest = static_cast<double>(row.start + 1 - spec_.visible_keys(row.start));
  const double keys = row.start + row.count - oldest;
  const auto bytes_of = [this](uint32_t size) {
    return static_cast<double>(conformance::stored_row_bytes(cache_format(), static_cast<int>(size)));
  };
  const double key_bytes = problem.num_kv_heads * (bytes_of(problem.head_size) + bytes_of(problem.head_size_v));
  const double row_bytes = problem.num_q_heads * widths * static_cast<double>(dtype_bytes());
  return {2 * problem.num_q_heads * widths * visible, (keys + row.count) * key_bytes + row.count * row_bytes};
}

}  // namespace anyattn::tools
