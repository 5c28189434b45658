// SPDX-License-Identifier: Apache-2.0
#include "serving/mla_layers.h"

#include <algorithm>

namespace anyattn::tools {
namespace {

constexpr uint64_t kQueryNope = 1;
constexpr uint64_t kQueryRope = 2;
constexpr uint64_t kQuery = 3;
constexpr uint64_t kWeightsK = 6;
constexpr uint64_t kWeightsV = 7;

}  // namespace

MlaLayers::MlaLayers(const KindSpec& spec, const LayerOptions& options, Group group)
    : LayerKind(spec, options, std::move(group)),
      heads_(spec.problem.num_q_heads),
      rank_(spec.problem.kv_lora_rank),
      nope_(spec.problem.qk_nope_head_dim),
      rope_(spec.problem.qk_rope_head_dim),
      width_v_(spec.problem.v_head_dim),
      // As large as the new tokens' own keys, which share the buffers: an expanded row of DeepSeek-V3 takes 160 KiB in float32.
      workspace_rows_(options.limits.max_num_tokens),
      q_amplitude_(query_amplitude(spec.softmax_scale, nope_ + rope_)) {
  layers_.reserve(spec.num_layers);
  for (uint32_t layer = 0; layer < spec.num_layers; ++layer) {
    layers_.push_back({UpProjection(row_key(kWeightsK, layer, 0, 0), heads_, rank_, nope_),
                       UpProjection(row_key(kWeightsV, layer, 0, 0), heads_, rank_, width_v_)});
  }
  const size_t tokens = options.limits.max_num_tokens;
  shared_rows_.kv_c = DeviceBuffer(place(), tokens * rank_ * dtype_bytes());
  shared_rows_.k_pe = DeviceBuffer(place(), tokens * rope_ * dtype_bytes());
  context_kv_c_ = DeviceBuffer(place(), workspace_rows_ * size_t{rank_} * dtype_bytes());
  context_k_pe_ = DeviceBuffer(place(), workspace_rows_ * size_t{rope_} * dtype_bytes());
  make_graphs();
}

void MlaLayers::make_graphs() {
  if (!options_.graphs || info_.graph_level < ANYATTN_GRAPH_SINGLE_TOKEN_DECODE) return;
  const uint32_t most = options_.limits.max_num_reqs;
  graphs_ = std::make_unique<StepGraphs>(spec_, options_, most, 1, info_.spec->digest);
  rows_of_layer_.resize(spec_.num_layers);
  for (Rows& rows : rows_of_layer_) {
    rows.kv_c = DeviceBuffer(place(), most * size_t{rank_} * dtype_bytes());
    rows.k_pe = DeviceBuffer(place(), most * size_t{rope_} * dtype_bytes());
    reserve_decode(rows, most);
  }
}

void MlaLayers::reserve_decode(Rows& rows, size_t tokens) const {
  rows.q_latent.reserve(place(), tokens * heads_ * rank_ * dtype_bytes());
  rows.q_pe.reserve(place(), tokens * heads_ * rope_ * dtype_bytes());
  rows.latent_out.reserve(place(), tokens * heads_ * rank_ * conformance::dtype_bytes(spec_.problem.out_dtype));
}

bool MlaLayers::takes_as_replay(StepBatch& batch) {
  replayed_ = graphs_ && batch.split().num_prefill_tokens == 0 && graphs_->takes(batch);
  return replayed_;
}

void MlaLayers::replay(StepBatch& batch, AttentionTimer& timer) {
  const uint32_t rows = graphs_->rows_for(batch.num_tokens());
  timer.measure(Spent::kMetadata, [&] {
    batch.pad_slots(rows);
    graphs_->group().update(ANYATTN_PHASE_DECODE, batch.padded_batch(pool_group(), rows, graphs_->limits()), place().stream);
  });
  const DeviceGraph& graph = graphs_->graph(place(), rows, [&] {
    for (uint32_t layer = 0; layer < spec_.num_layers; ++layer) {
      store(graphs_->group(), batch, layer, rows);
      decode(graphs_->group(), layer, rows);
    }
  });
  timer.measure(Spent::kKernels, [&] { graph.launch(place().stream); });
}

// The decode rows' queries are drawn per part, since the latent part is a product; the prefill rows' as one.
void MlaLayers::draw(const StepBatch& batch, uint32_t layer) {
  const auto& split = batch.split();
  draw_rows(batch, 0, batch.num_tokens(), kLatentRow, layer, 1, rank_, rows(layer).kv_c);
  draw_rows(batch, 0, batch.num_tokens(), kRopeRow, layer, 1, rope_, rows(layer).k_pe);
  if (split.num_decode_tokens > 0) absorb_queries(batch, layer);
  if (split.num_prefill_tokens > 0) {
    const size_t q_row = size_t{heads_} * (nope_ + rope_);
    q_.reserve(place(), split.num_prefill_tokens * q_row * dtype_bytes());
    draw_rows(batch, split.num_decode_tokens, split.num_prefill_tokens, kQuery, layer, q_amplitude_, q_row, q_);
  }
}

void MlaLayers::absorb_queries(const StepBatch& batch, uint32_t layer) {
  const uint32_t tokens = batch.split().num_decode_tokens;
  const size_t latent_row = size_t{heads_} * rank_;
  Rows& to = rows(layer);
  q_nope_.reserve(place(), tokens * size_t{heads_} * nope_ * dtype_bytes());
  reserve_decode(to, tokens);
  draw_rows(batch, 0, tokens, kQueryNope, layer, q_amplitude_, size_t{heads_} * nope_, q_nope_);
  draw_rows(batch, 0, tokens, kQueryRope, layer, q_amplitude_, size_t{heads_} * rope_, to.q_pe);
  place().runtime->parallel_for(tokens, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> nope(size_t{heads_} * nope_), padded(rank_ + nope_), latent(latent_row);
    for (uint64_t t = begin; t < end; ++t) {
      load_row(q_nope_, t, nope.size(), nope.data());
      layers_[layer].keys.absorb(nope.data(), nope_, padded.data(), latent.data());
      store_values(dtype(), latent.data(), latent_row, to.q_latent.host() + t * latent_row * dtype_bytes());
    }
  });
  to.q_latent.upload(tokens * latent_row * dtype_bytes());
}

void MlaLayers::attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) {
  timer.measure(
      Spent::kCacheUpdate, [&] { store(group_, batch, layer, batch.num_tokens()); }, Spent::kKernels,
      [&] {
        if (const uint32_t tokens = batch.split().num_decode_tokens; tokens > 0) decode(group_, layer, tokens);
      });
  if (batch.split().num_prefill_tokens > 0) prefill(batch, layer, timer);
}

void MlaLayers::store(Group& group, const StepBatch& batch, uint32_t layer, uint32_t num_tokens) {
  const Rows& from = rows(layer);
  const Tensor kv_c = place().tensor(from.kv_c.device(), dtype(), {num_tokens, rank_});
  const Tensor k_pe = place().tensor(from.k_pe.device(), dtype(), {num_tokens, rope_});
  const Tensor slots = place().tensor(batch.slots(pool_group()), ANYATTN_DTYPE_INT64, {num_tokens});
  anyattn_kv_cache_update_args args{};
  args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  args.stream = place().stream;
  args.kv_c = kv_c;
  args.k_pe = k_pe;
  args.slot_mapping = slots;
  args.cache = &caches_[layer];
  group.kv_cache_update(args);
}

void MlaLayers::decode(Group& group, uint32_t layer, uint32_t num_tokens) {
  const Rows& of = rows(layer);
  const Tensor q_latent = place().tensor(of.q_latent.device(), dtype(), {num_tokens, heads_, rank_});
  const Tensor q_pe = place().tensor(of.q_pe.device(), dtype(), {num_tokens, heads_, rope_});
  const Tensor out = place().tensor(of.latent_out.device(), spec_.problem.out_dtype, {num_tokens, heads_, rank_});
  anyattn_mqa_args args{};
  args.struct_size = ANYATTN_MQA_ARGS_SIZE;
  args.stream = place().stream;
  args.lse_base = ANYATTN_LSE_NATURAL;
  args.softmax_scale = spec_.softmax_scale;
  args.q_latent = q_latent;
  args.q_pe = q_pe;
  args.cache = &caches_[layer];
  args.out = out;
  group.forward_mqa(args);
}

// New tokens among themselves, then each chunk of the cached context, then one merge. Expanding is the engine's and not timed.
void MlaLayers::prefill(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) {
  const auto& split = batch.split();
  plan_context(batch);
  const size_t out_bytes =
      split.num_prefill_tokens * size_t{heads_} * width_v_ * conformance::dtype_bytes(spec_.problem.out_dtype);
  while (parts_.size() < plan_.num_chunks + size_t{1}) parts_.emplace_back();
  for (size_t i = 0; i <= plan_.num_chunks; ++i) {
    parts_[i].out.reserve(place(), out_bytes);
    parts_[i].lse.reserve(place(), split.num_prefill_tokens * size_t{heads_} * sizeof(float));
  }
  uint32_t longest = 0;
  for (size_t r = split.num_decode_reqs; r < batch.rows().size(); ++r) longest = std::max(longest, batch.rows()[r].count);
  expand(layer, shared_rows_.kv_c, split.num_decode_tokens, shared_rows_.k_pe, split.num_prefill_tokens);
  timer.measure(Spent::kKernels, [&] {
    attend_expanded(batch, split.num_prefill_tokens, batch.prefill_query_start_loc().device<int32_t>(), longest, true, 0);
  });
  for (uint32_t c = 0; c < plan_.num_chunks; ++c) {
    timer.measure(Spent::kKernels, [&] { gather(batch, layer, c); });
    context_kv_c_.download(0, plan_.rows[c] * size_t{rank_} * dtype_bytes());
    context_k_pe_.download(0, plan_.rows[c] * size_t{rope_} * dtype_bytes());
    expand(layer, context_kv_c_, 0, context_k_pe_, plan_.rows[c]);
    const int32_t* starts = plan_.row_start_loc.device<int32_t>() + size_t{c} * (split.num_prefill_reqs + 1);
    timer.measure(Spent::kKernels, [&] { attend_expanded(batch, plan_.rows[c], starts, plan_.max_rows[c], false, c + 1); });
  }
  if (plan_.num_chunks > 0) timer.measure(Spent::kKernels, [&] { merge(batch); });
}

void MlaLayers::plan_context(const StepBatch& batch) {
  const auto lens = batch.prefill_context_lens();
  const auto reqs = static_cast<uint32_t>(lens.size());
  const uint32_t chunks = anyattn_step_context_num_chunks(lens.data(), reqs, workspace_rows_);
  plan_.rows.resize(chunks);
  plan_.max_rows.resize(chunks);
  plan_.row_start_loc.reserve(place(), size_t{chunks} * (reqs + 1) * sizeof(int32_t));
  plan_.context_start.reserve(place(), size_t{chunks} * reqs * sizeof(int32_t));
  anyattn::check(anyattn_step_context_plan, lens.data(), reqs, workspace_rows_, chunks, plan_.row_start_loc.host<int32_t>(),
                 plan_.context_start.host<int32_t>(), plan_.rows.data(), plan_.max_rows.data(), &plan_.num_chunks);
  plan_.row_start_loc.upload(size_t{chunks} * (reqs + 1) * sizeof(int32_t));
  plan_.context_start.upload(size_t{chunks} * reqs * sizeof(int32_t));
}

void MlaLayers::gather(const StepBatch& batch, uint32_t layer, uint32_t c) {
  const uint32_t reqs = batch.split().num_prefill_reqs;
  anyattn_context_chunk chunk{};
  chunk.struct_size = ANYATTN_CONTEXT_CHUNK_SIZE;
  chunk.num_reqs = reqs;
  chunk.num_rows = plan_.rows[c];
  chunk.max_rows = plan_.max_rows[c];
  chunk.row_start_loc = plan_.row_start_loc.device<int32_t>() + size_t{c} * (reqs + 1);
  chunk.context_start = plan_.context_start.device<int32_t>() + size_t{c} * reqs;
  const Tensor kv_c = place().tensor(context_kv_c_.device(), dtype(), {plan_.rows[c], rank_});
  const Tensor k_pe = place().tensor(context_k_pe_.device(), dtype(), {plan_.rows[c], rope_});
  anyattn_context_gather_args args{};
  args.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
  args.stream = place().stream;
  args.cache = &caches_[layer];
  args.kv_c = kv_c;
  args.k_pe = k_pe;
  group_.context_gather(chunk, args);
}

// Rows [first_row, first_row + num_rows) of the latents to keys [k_nope | k_pe] and values, all heads.
void MlaLayers::expand(uint32_t layer, const DeviceBuffer& kv_c, size_t first_row, const DeviceBuffer& k_pe,
                       uint32_t num_rows) {
  const size_t k_row = size_t{heads_} * (nope_ + rope_);
  const size_t v_row = size_t{heads_} * width_v_;
  k_.reserve(place(), num_rows * k_row * dtype_bytes());
  v_.reserve(place(), num_rows * v_row * dtype_bytes());
  place().runtime->parallel_for(num_rows, 1, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::vector<float> latent(rank_), rope(rope_), padded(rank_ + std::max(nope_, width_v_)), k(k_row), v(v_row);
    for (uint64_t r = begin; r < end; ++r) {
      load_row(kv_c, first_row + r, rank_, latent.data());
      load_row(k_pe, first_row + r, rope_, rope.data());
      layers_[layer].keys.expand(latent.data(), padded.data(), 0, heads_, k.data(), nope_ + rope_);
      layers_[layer].values.expand(latent.data(), padded.data(), 0, heads_, v.data(), width_v_);
      for (uint32_t h = 0; h < heads_; ++h) std::copy(rope.begin(), rope.end(), k.begin() + h * (nope_ + rope_) + nope_);
      store_values(dtype(), k.data(), k_row, k_.host() + r * k_row * dtype_bytes());
      store_values(dtype(), v.data(), v_row, v_.host() + r * v_row * dtype_bytes());
    }
  });
  k_.upload(num_rows * k_row * dtype_bytes());
  v_.upload(num_rows * v_row * dtype_bytes());
}

void MlaLayers::attend_expanded(const StepBatch& batch, uint32_t num_keys, const int32_t* key_start_loc, uint32_t max_keys,
                                bool causal, size_t part) {
  const auto& split = batch.split();
  const auto tokens = int64_t{split.num_prefill_tokens};
  const Tensor q = place().tensor(q_.device(), dtype(), {tokens, heads_, nope_ + rope_});
  const Tensor k = place().tensor(k_.device(), dtype(), {num_keys, heads_, nope_ + rope_});
  const Tensor v = place().tensor(v_.device(), dtype(), {num_keys, heads_, width_v_});
  const Tensor out = place().tensor(parts_[part].out.device(), spec_.problem.out_dtype, {tokens, heads_, width_v_});
  const Tensor lse = place().tensor(parts_[part].lse.device(), ANYATTN_DTYPE_FLOAT32, {tokens, heads_});
  anyattn_mha_args args{};
  args.struct_size = ANYATTN_MHA_ARGS_SIZE;
  args.stream = place().stream;
  args.lse_base = ANYATTN_LSE_NATURAL;
  args.softmax_scale = spec_.softmax_scale;
  args.num_reqs = split.num_prefill_reqs;
  args.causal = causal ? 1 : 0;
  for (size_t r = split.num_decode_reqs; r < batch.rows().size(); ++r) {
    args.max_query_len = std::max(args.max_query_len, batch.rows()[r].count);
  }
  args.max_key_len = max_keys;
  args.query_start_loc = batch.prefill_query_start_loc().device<int32_t>();
  args.key_start_loc = key_start_loc;
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = out;
  args.lse = lse;
  group_.forward_mha(args);
}

void MlaLayers::merge(const StepBatch& batch) {
  const auto tokens = int64_t{batch.split().num_prefill_tokens};
  const size_t num_states = plan_.num_chunks + size_t{1};
  std::vector<Tensor> views;  // states point into them
  views.reserve(2 * num_states);
  std::vector<anyattn_state> states(num_states);
  for (size_t i = 0; i < num_states; ++i) {
    const Tensor& out =
        views.emplace_back(place().tensor(parts_[i].out.device(), spec_.problem.out_dtype, {tokens, heads_, width_v_}));
    const Tensor& lse = views.emplace_back(place().tensor(parts_[i].lse.device(), ANYATTN_DTYPE_FLOAT32, {tokens, heads_}));
    states[i] = {ANYATTN_STATE_SIZE, ANYATTN_LSE_NATURAL, out, lse};
  }
  anyattn_merge_args args{};
  args.struct_size = ANYATTN_MERGE_ARGS_SIZE;
  args.stream = place().stream;
  args.num_states = static_cast<uint32_t>(num_states);
  args.state_stride = sizeof(anyattn_state);
  args.states = states.data();
  args.out = views[0];  // in place
  group_.merge_states(args);
}

void MlaLayers::load_row(const DeviceBuffer& buffer, size_t row, size_t count, float* out) const {
  load_values(dtype(), buffer.host() + row * count * dtype_bytes(), count, out);
}

Work MlaLayers::work(const StepRow& row) const {
  double visible = 0;
  for (uint32_t p = row.start; p < row.start + row.count; ++p) visible += p + 1.0;
  const size_t row_bytes =
      conformance::stored_row_bytes(cache_format(), static_cast<int>(rank_ + rope_), static_cast<int>(rank_));
  const double context_bytes = (row.start + 2.0 * row.count) * static_cast<double>(row_bytes);
  const auto value_bytes = static_cast<double>(dtype_bytes());
  if (row.is_decode()) {
    return {2.0 * heads_ * (2.0 * rank_ + rope_) * visible,
            context_bytes + row.count * heads_ * (2.0 * rank_ + rope_) * value_bytes};
  }
  const double widths = nope_ + rope_ + width_v_;
  return {2.0 * heads_ * widths * visible, context_bytes + heads_ * widths * value_bytes * (row.start + row.count + row.count)};
}

}  // namespace anyattn::tools
