// SPDX-License-Identifier: Apache-2.0
#include "naive_mla.h"

namespace naive {

using anyattn::kAnySize;

void NaiveMla::supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& p, anyattn::Reasons& reasons,
                        anyattn_support_report& report) {
  fill_report(p, report);
  anyattn::refuse_features(p,
                           bits({ANYATTN_FEATURE_MLA, ANYATTN_FEATURE_LSE, ANYATTN_FEATURE_BATCH_INVARIANT,
                                 ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL, ANYATTN_FEATURE_CP_DECODE}),
                           reasons);
  refuse_common(p, reasons);
  const std::string own = anyattn::dtype_name(p.q_dtype), format = p.kv_cache_dtype ? p.kv_cache_dtype : "none";
  if (format != own) reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", format, own);
  if (!has(p, ANYATTN_FEATURE_MLA)) reasons.add(ANYATTN_REASON_MLA, "mla", "off", "on");
  if (p.key_source != ANYATTN_KEYS_PAGED) reasons.add(ANYATTN_REASON_KEY_SOURCE, "key_source", "ragged", "paged");
}

void NaiveMla::kv_cache_spec(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& p,
                             const anyattn::SpecSink& accept) {
  const int64_t bytes = anyattn::dtype_bytes(p.q_dtype), row = p.head_size * bytes;
  const auto block_bytes = static_cast<uint64_t>((p.block_size * row + 15) / 16 * 16);
  anyattn::SpecBuilder builder("latent", p.block_size, block_bytes, 16);
  builder.plane(ANYATTN_PLANE_LATENT, p.q_dtype, {p.block_size, p.head_size}, {row, bytes}, 0);
  accept(builder.get());
}

NaiveMla::NaiveMla(const anyattn::Host& host, const anyattn_device_facts& facts, const anyattn_problem& p,
                   const anyattn_kv_cache_spec* spec)
    : host_(host), problem_(p) {
  anyattn::Reasons reasons(nullptr);
  anyattn_support_report report{};
  supports(host, facts, p, reasons, report);
  if (reasons.count() > 0 || !spec)
    throw anyattn::Error(ANYATTN_UNSUPPORTED, "the problem is refused; supports gives the reasons");
  features_ = p.features[0];
  problem_.features = &features_;
  problem_.num_feature_words = 1;
  plane_ = anyattn::find_plane(*spec, ANYATTN_PLANE_LATENT);
  digest_ = spec->digest;
}

void NaiveMla::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(host_.num_workers(), limits.max_seq_len);
}

const std::byte* NaiveMla::latent_row(const anyattn_cache& cache, const anyattn_batch& batch, uint32_t request,
                                      int64_t key) const {
  const int64_t block = batch.block_table[request * batch.block_table_stride + key / problem_.block_size];
  return block_of(cache, block) + plane_.byte_offset + key % problem_.block_size * plane_.strides[1];
}

int64_t NaiveMla::local_keys(int64_t seq_len) const {
  if (!has(problem_, ANYATTN_FEATURE_CP_DECODE)) return seq_len;
  const int64_t interleave = problem_.cp_interleave, round = interleave * problem_.cp_world_size;
  return interleave * (seq_len / round) + std::clamp<int64_t>(seq_len % round - problem_.cp_rank * interleave, 0, interleave);
}

int64_t NaiveMla::position_of(int64_t key) const {
  if (!has(problem_, ANYATTN_FEATURE_CP_DECODE)) return key;
  const int64_t interleave = problem_.cp_interleave;
  return (key / interleave * problem_.cp_world_size + problem_.cp_rank) * interleave + key % interleave;
}

void NaiveMla::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  check_cache(args.cache, digest_);
  const auto slots =
      anyattn::view<1>(args.slot_mapping, {.name = "slot_mapping", .dtype = ANYATTN_DTYPE_INT64, .shape = {kAnySize}});
  const auto kv_c = anyattn::view<2>(
      args.kv_c, {.name = "kv_c", .dtype = problem_.q_dtype, .shape = {slots.shape[0], latent()}, .rows_at_least = true});
  const auto k_pe = anyattn::view<2>(
      args.k_pe, {.name = "k_pe", .dtype = problem_.q_dtype, .shape = {slots.shape[0], rope()}, .rows_at_least = true});
  for (int64_t t = 0; t < slots.shape[0]; ++t) {
    const int64_t slot = *reinterpret_cast<const int64_t*>(slots.at(t));
    if (slot < 0) continue;
    std::byte* at =
        block_of(*args.cache, slot / problem_.block_size) + plane_.byte_offset + slot % problem_.block_size * plane_.strides[1];
    for (int64_t d = 0; d < latent(); ++d) store(plane_.dtype, at + d * plane_.strides[2], load(kv_c.dtype, kv_c.at(t, d)));
    for (int64_t d = 0; d < rope(); ++d)
      store(plane_.dtype, at + (latent() + d) * plane_.strides[2], load(k_pe.dtype, k_pe.at(t, d)));
  }
}

void NaiveMla::forward_mqa(const Metadata& metadata, const anyattn_mqa_args& args) {
  const anyattn_batch& batch = metadata.batch;
  const int64_t tokens = batch.num_tokens, heads = problem_.num_q_heads, depth = latent() + rope();
  check_cache(args.cache, digest_);
  check_base(args.lse, args.lse_base);
  const auto q_latent = anyattn::view<3>(
      args.q_latent,
      {.name = "q_latent", .dtype = problem_.q_dtype, .shape = {tokens, heads, latent()}, .rows_at_least = true});
  const auto q_pe = anyattn::view<3>(
      args.q_pe, {.name = "q_pe", .dtype = problem_.q_dtype, .shape = {tokens, heads, rope()}, .rows_at_least = true});
  const auto out = anyattn::view<3>(
      args.out, {.name = "out", .dtype = problem_.q_dtype, .shape = {tokens, heads, latent()}, .rows_at_least = true});
  const auto lse = anyattn::optional_view<2>(
      args.lse, {.name = "lse", .dtype = ANYATTN_DTYPE_FLOAT32, .shape = {tokens, heads}, .rows_at_least = true});
  const int64_t bytes = anyattn::dtype_bytes(problem_.q_dtype);
  auto* scores = static_cast<float*>(args.scratch);
  host_.parallel_for(static_cast<uint64_t>(tokens * heads), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    float q[kMaxHeadSize], k[kMaxHeadSize], result[kMaxHeadSize];
    for (uint64_t i = begin; i < end; ++i) {
      const int64_t row = static_cast<int64_t>(i) / heads, head = static_cast<int64_t>(i) % heads;
      const uint32_t request = request_of(batch, row);
      const bool owned = request < batch.num_reqs;
      const int64_t seq_len = owned ? batch.seq_lens[request] : 0;
      const int64_t position = owned ? seq_len - batch.query_start_loc[request + 1] + row : 0;
      bool causal = !has(problem_, ANYATTN_FEATURE_NON_CAUSAL);
      if (owned && has(problem_, ANYATTN_FEATURE_PER_REQUEST_CAUSAL)) causal = batch.causal[request] != 0;
      load_row(q_latent.dtype, q_latent.at(row, head), bytes, latent(), q);
      load_row(q_pe.dtype, q_pe.at(row, head), bytes, rope(), q + latent());
      const auto score = [&](int64_t key) {
        if (causal && position_of(key) > position) return -kInfinity;
        load_row(plane_.dtype, latent_row(*args.cache, batch, request, key), plane_.strides[2], depth, k);
        float sum = 0.0f;
        for (int64_t d = 0; d < depth; ++d) sum += q[d] * k[d];
        return sum * static_cast<float>(args.softmax_scale);
      };
      const auto value = [&](int64_t key, float* into) {
        load_row(plane_.dtype, latent_row(*args.cache, batch, request, key), plane_.strides[2], latent(), into);
      };
      const float natural =
          attend(local_keys(seq_len), latent(), nullptr, score, value, 0, scores + worker * score_stride_, result);
      for (int64_t d = 0; d < latent(); ++d) store(out.dtype, out.at(row, head, d), result[d]);
      if (lse) store(ANYATTN_DTYPE_FLOAT32, lse.at(row, head), in_base(natural, args.lse_base));
    }
  });
}

void NaiveMla::context_gather(const Metadata& metadata, const anyattn_context_chunk& chunk,
                              const anyattn_context_gather_args& args) {
  check_cache(args.cache, digest_);
  const auto kv_c = anyattn::view<2>(
      args.kv_c, {.name = "kv_c", .dtype = problem_.q_dtype, .shape = {chunk.num_rows, latent()}, .rows_at_least = true});
  const auto k_pe = anyattn::view<2>(
      args.k_pe, {.name = "k_pe", .dtype = problem_.q_dtype, .shape = {chunk.num_rows, rope()}, .rows_at_least = true});
  for (uint32_t r = 0; r < chunk.num_reqs; ++r) {
    for (int32_t row = chunk.row_start_loc[r]; row < chunk.row_start_loc[r + 1]; ++row) {
      const int64_t key = chunk.context_start[r] + row - chunk.row_start_loc[r];
      const std::byte* from = latent_row(*args.cache, metadata.batch, r, key);
      for (int64_t d = 0; d < latent(); ++d)
        store(kv_c.dtype, kv_c.at(row, d), load(plane_.dtype, from + d * plane_.strides[2]));
      for (int64_t d = 0; d < rope(); ++d)
        store(k_pe.dtype, k_pe.at(row, d), load(plane_.dtype, from + (latent() + d) * plane_.strides[2]));
    }
  }
}

void NaiveMla::forward_mha(const anyattn_mha_args& args) {
  const int64_t heads = problem_.num_q_heads, depth = problem_.qk_nope_head_dim + rope(), width = problem_.v_head_dim;
  const auto tokens = int64_t{args.query_start_loc[args.num_reqs]}, keys = int64_t{args.key_start_loc[args.num_reqs]};
  const auto dtype = problem_.q_dtype;
  check_base(args.lse, args.lse_base);
  const auto q =
      anyattn::view<3>(args.q, {.name = "q", .dtype = dtype, .shape = {tokens, heads, depth}, .rows_at_least = true});
  const auto k = anyattn::view<3>(args.k, {.name = "k", .dtype = dtype, .shape = {keys, heads, depth}, .rows_at_least = true});
  const auto v = anyattn::view<3>(args.v, {.name = "v", .dtype = dtype, .shape = {keys, heads, width}, .rows_at_least = true});
  const auto out =
      anyattn::view<3>(args.out, {.name = "out", .dtype = dtype, .shape = {tokens, heads, width}, .rows_at_least = true});
  const auto lse = anyattn::optional_view<2>(
      args.lse, {.name = "lse", .dtype = ANYATTN_DTYPE_FLOAT32, .shape = {tokens, heads}, .rows_at_least = true});
  const int64_t bytes = anyattn::dtype_bytes(dtype);
  auto* scores = static_cast<float*>(args.scratch);
  host_.parallel_for(args.num_reqs * static_cast<uint64_t>(heads), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    float query[kMaxHeadSize], key_row[kMaxHeadSize], result[kMaxHeadSize];
    for (uint64_t i = begin; i < end; ++i) {
      const auto request = static_cast<uint32_t>(i / static_cast<uint64_t>(heads));
      const int64_t head = static_cast<int64_t>(i) % heads, first = args.key_start_loc[request];
      const int64_t count = args.key_start_loc[request + 1] - first;
      const int64_t end_row = args.query_start_loc[request + 1];
      for (int64_t row = args.query_start_loc[request]; row < end_row; ++row) {
        load_row(dtype, q.at(row, head), bytes, depth, query);
        const auto score = [&](int64_t key) {
          if (args.causal && key > count - end_row + row) return -kInfinity;
          load_row(dtype, k.at(first + key, head), bytes, depth, key_row);
          float sum = 0.0f;
          for (int64_t d = 0; d < depth; ++d) sum += query[d] * key_row[d];
          return sum * static_cast<float>(args.softmax_scale);
        };
        const auto value = [&](int64_t key, float* into) { load_row(dtype, v.at(first + key, head), bytes, width, into); };
        const float natural = attend(count, width, nullptr, score, value, 0, scores + worker * score_stride_, result);
        for (int64_t d = 0; d < width; ++d) store(dtype, out.at(row, head, d), result[d]);
        if (lse) store(ANYATTN_DTYPE_FLOAT32, lse.at(row, head), in_base(natural, args.lse_base));
      }
    }
  });
}

}  // namespace naive
