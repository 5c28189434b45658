// SPDX-License-Identifier: Apache-2.0
#include "naive_attn.h"

#include <chrono>
#include <thread>

namespace naive {
namespace {

using anyattn::kAnySize;
using anyattn::RawView;

uint64_t known_features() {
  uint64_t known =
      bits({ANYATTN_FEATURE_NON_CAUSAL, ANYATTN_FEATURE_PER_REQUEST_CAUSAL, ANYATTN_FEATURE_WINDOW, ANYATTN_FEATURE_SOFT_CAP,
            ANYATTN_FEATURE_ALIBI, ANYATTN_FEATURE_ALIBI_SQRT, ANYATTN_FEATURE_ALIBI_SYMMETRIC, ANYATTN_FEATURE_SINKS,
            ANYATTN_FEATURE_MM_PREFIX, ANYATTN_FEATURE_SPARSE_TOPK, ANYATTN_FEATURE_CHUNKED_LOCAL, ANYATTN_FEATURE_CP_DECODE,
            ANYATTN_FEATURE_CP_PREFILL, ANYATTN_FEATURE_LSE, ANYATTN_FEATURE_BATCH_INVARIANT, ANYATTN_FEATURE_KV_SCALES,
            ANYATTN_FEATURE_KV_TRANSFER, ANYATTN_FEATURE_GRAPH});
  if (mutated(Mutation::kRefusesWindows) || mutated(Mutation::kCreatesWhatItRefuses)) known &= ~bits({ANYATTN_FEATURE_WINDOW});
  return known;
}

anyattn::SpecBuilder layout(const anyattn_problem& p, bool head_major) {
  const int64_t tokens = p.block_size, heads = p.num_kv_heads, bytes = anyattn::dtype_bytes(p.q_dtype);
  const int64_t k_row = p.head_size * bytes, v_row = p.head_size_v * bytes;
  const auto padded = [](int64_t size) { return (size + 15) / 16 * 16; };
  const int64_t v_at = padded(tokens * heads * k_row);
  const uint64_t block_bytes = static_cast<uint64_t>(v_at + padded(tokens * heads * v_row));
  anyattn::SpecBuilder builder(head_major ? "HND" : "NHD", p.block_size, block_bytes, 16);
  const auto add = [&](uint32_t role, int64_t row, int64_t dims, int64_t at) {
    builder.plane(role, p.q_dtype, {tokens, heads, dims},
                  {head_major ? row : heads * row, head_major ? tokens * row : row, bytes}, static_cast<uint64_t>(at));
  };
  add(ANYATTN_PLANE_K, k_row, p.head_size, 0);
  add(ANYATTN_PLANE_V, v_row, p.head_size_v, v_at);
  return builder;
}

float scale_of(const anyattn_tensor& tensor) {
  return tensor.data ? load(ANYATTN_DTYPE_FLOAT32, anyattn::view<1>(tensor, {.name = "scale", .shape = {1}}).at(0)) : 1.0f;
}

}  // namespace

void NaiveAttn::supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& p, anyattn::Reasons& reasons,
                         anyattn_support_report& report) {
  fill_report(p, report);
  if (mutated(Mutation::kAnnouncesAll) && !has(p, ANYATTN_FEATURE_MLA)) return;
  anyattn::refuse_features(p, known_features(), reasons);
  refuse_common(p, reasons);
  if (has(p, ANYATTN_FEATURE_GRAPH) && p.graph_level > ANYATTN_GRAPH_NEVER) {
    reasons.add(ANYATTN_REASON_GRAPH_LEVEL, "graph_level", std::to_string(p.graph_level), "0 (never)");
  }
}

void NaiveAttn::kv_cache_spec(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& p,
                              const anyattn::SpecSink& accept) {
  for (bool head_major : {true, false}) accept(layout(p, head_major).get());
}

NaiveAttn::NaiveAttn(const anyattn::Host& host, const anyattn_device_facts& facts, const anyattn_problem& p,
                     const anyattn_kv_cache_spec* spec)
    : host_(host), problem_(p) {
  anyattn::Reasons reasons(nullptr);
  anyattn_support_report report{};
  supports(host, facts, p, reasons, report);
  if (reasons.count() > 0 && !mutated(Mutation::kCreatesWhatItRefuses)) {
    throw anyattn::Error(ANYATTN_UNSUPPORTED, "the problem is refused for ", reasons.count(), " reasons; supports gives them");
  }
  features_ = p.num_feature_words > 0 ? p.features[0] : 0;
  problem_.features = &features_;
  problem_.num_feature_words = 1;
  if (!spec) return;
  k_ = anyattn::find_plane(*spec, ANYATTN_PLANE_K);
  v_ = anyattn::find_plane(*spec, ANYATTN_PLANE_V);
  digest_ = spec->digest;
}

void NaiveAttn::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(host_.num_workers(), limits.max_seq_len);
}

void NaiveAttn::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  check_cache(args.cache, digest_);
  const auto slots =
      anyattn::view<1>(args.slot_mapping, {.name = "slot_mapping", .dtype = ANYATTN_DTYPE_INT64, .shape = {kAnySize}});
  const auto heads = static_cast<int64_t>(problem_.num_kv_heads);
  const auto write = [&](const anyattn_tensor& from, const anyattn_plane& plane, const char* name, float scale) {
    const auto rows = anyattn::view<3>(
        from,
        {.name = name, .dtype = problem_.q_dtype, .shape = {slots.shape[0], heads, plane.dims[3]}, .rows_at_least = true});
    for (int64_t t = 0; t < slots.shape[0]; ++t) {
      const int64_t slot = *reinterpret_cast<const int64_t*>(slots.at(t));
      if (slot < 0) continue;
      std::byte* at =
          block_of(*args.cache, slot / problem_.block_size) + plane.byte_offset + slot % problem_.block_size * plane.strides[1];
      for (int64_t g = 0; g < heads; ++g) {
        for (int64_t d = 0; d < plane.dims[3]; ++d) {
          store(plane.dtype, at + g * plane.strides[2] + d * plane.strides[3], load(rows.dtype, rows.at(t, g, d)) / scale);
        }
      }
    }
  };
  const bool scaled = has(problem_, ANYATTN_FEATURE_KV_SCALES);
  write(args.k, k_, "k", scaled ? scale_of(args.k_scale) : 1.0f);
  write(args.v, v_, "v", scaled ? scale_of(args.v_scale) : 1.0f);
}

// The checked arguments of one forward.
struct NaiveAttn::Call {
  const anyattn_batch& batch;
  const anyattn_forward_args& args;
  RawView<3> q, out, k, v;
  RawView<2> lse, sparse;
  RawView<1> sinks, slopes;
  float k_scale = 1.0f, v_scale = 1.0f;
};

void NaiveAttn::forward(const Metadata& metadata, const anyattn_forward_args& args) {
  const anyattn_batch& batch = metadata.batch;
  const int64_t tokens = batch.num_tokens, heads = problem_.num_q_heads, kv_heads = problem_.num_kv_heads;
  const int64_t depth = problem_.head_size, width = problem_.head_size_v;
  const uint32_t dtype = problem_.q_dtype, f32 = ANYATTN_DTYPE_FLOAT32;
  const bool ragged = problem_.key_source == ANYATTN_KEYS_RAGGED;
  const bool knows_all = !mutated(Mutation::kAnnouncesAll);
  if (!ragged) check_cache(args.cache, digest_);
  check_base(args.lse, args.lse_base);
  Call call{
      .batch = batch, .args = args, .q = {}, .out = {}, .k = {}, .v = {}, .lse = {}, .sparse = {}, .sinks = {}, .slopes = {}};
  call.q = anyattn::view<3>(args.q, {.name = "q", .dtype = dtype, .shape = {tokens, heads, depth}, .rows_at_least = true});
  call.out = anyattn::view<3>(
      args.out, {.name = "out", .dtype = problem_.out_dtype, .shape = {tokens, heads, width}, .rows_at_least = true});
  call.lse =
      anyattn::optional_view<2>(args.lse, {.name = "lse", .dtype = f32, .shape = {tokens, heads}, .rows_at_least = true});
  if (ragged) {
    call.k = anyattn::view<3>(args.k, {.name = "k", .dtype = dtype, .shape = {kAnySize, kv_heads, depth}});
    call.v = anyattn::view<3>(args.v, {.name = "v", .dtype = dtype, .shape = {kAnySize, kv_heads, width}});
  }
  if (has(problem_, ANYATTN_FEATURE_SINKS) && knows_all)
    call.sinks = anyattn::view<1>(args.sinks, {.name = "sinks", .dtype = f32, .shape = {heads}});
  if (args.alibi_slopes.data && knows_all)
    call.slopes = anyattn::view<1>(args.alibi_slopes, {.name = "alibi_slopes", .dtype = f32, .shape = {heads}});
  if (has(problem_, ANYATTN_FEATURE_SPARSE_TOPK) && knows_all) {
    call.sparse = anyattn::view<2>(args.sparse_indices,
                                   {.name = "sparse_indices", .dtype = ANYATTN_DTYPE_INT32, .shape = {tokens, problem_.top_k}});
  }
  if (has(problem_, ANYATTN_FEATURE_KV_SCALES) && knows_all) {
    call.k_scale = scale_of(args.k_scale);
    call.v_scale = scale_of(mutated(Mutation::kScaleOfKForV) ? args.k_scale : args.v_scale);
  }
  if (mutated(Mutation::kLogsOnTheHotPath)) host_.log(ANYATTN_LOG_INFO, "forward");
  if (mutated(Mutation::kCrashes)) __builtin_trap();
  while (mutated(Mutation::kHangs)) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (mutated(Mutation::kWritesCache) && !ragged) std::fill_n(block_of(*args.cache, 0), 2, std::byte{0});

  auto* scores = static_cast<float*>(args.scratch);
  const uint64_t keys = batch.max_seq_len;
  if (mutated(Mutation::kWritesPastScratch))
    static_cast<std::byte*>(args.scratch)[scratch_bytes(host_.num_workers(), batch.max_seq_len)] = {};
  host_.parallel_for(static_cast<uint64_t>(tokens * heads), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    for (uint64_t i = begin; i < end; ++i) {
      one_row(call, static_cast<int64_t>(i) / heads, static_cast<int64_t>(i) % heads, scores + worker * keys);
    }
  });
}

void NaiveAttn::one_row(const Call& call, int64_t row, int64_t head, float* scores) const {
  const anyattn_batch& batch = call.batch;
  const uint32_t request = request_of(batch, row);
  const int64_t depth = problem_.head_size, width = problem_.head_size_v;
  float q[kMaxHeadSize], k[kMaxHeadSize], out[kMaxHeadSize] = {};
  float lse = -kInfinity;
  if (request < batch.num_reqs) {
    int64_t group = head / (problem_.num_q_heads / problem_.num_kv_heads);
    const int64_t seq_len = batch.seq_lens[request], keys = local_keys(seq_len);
    const int64_t position = seq_len - batch.query_start_loc[request + 1] + row;
    const int64_t block_size = problem_.block_size;
    if (mutated(Mutation::kHeadGroup) && problem_.num_kv_heads > 1 && group == problem_.num_kv_heads - 1) --group;
    load_row(call.q.dtype, call.q.at(row, head), anyattn::dtype_bytes(call.q.dtype), depth, q);
    const auto read = [&](int64_t key, const RawView<3>& ragged, const anyattn_plane& plane, int64_t count, float* into) {
      if (ragged) {
        load_row(ragged.dtype, ragged.at(batch.key_start_loc[request] + key, group), anyattn::dtype_bytes(ragged.dtype), count,
                 into);
        return;
      }
      const int64_t block = batch.block_table[request * batch.block_table_stride + key / block_size];
      load_row(plane.dtype,
               block_of(*call.args.cache, block) + plane.byte_offset + key % block_size * plane.strides[1] +
                   group * plane.strides[2],
               plane.strides[3], count, into);
    };
    const auto cap = static_cast<float>(problem_.logits_soft_cap);
    const auto score = [&](int64_t key) {
      const int64_t key_position = position_of(key);
      if (!sees(call, request, row, position, key_position)) return -kInfinity;
      read(key, call.k, k_, depth, k);
      float sum = 0.0f;
      for (int64_t d = 0; d < depth; ++d) sum += q[d] * k[d];
      float value = sum * static_cast<float>(call.args.softmax_scale) * call.k_scale;
      if (has(problem_, ANYATTN_FEATURE_SOFT_CAP) && !mutated(Mutation::kAnnouncesAll)) value = cap * std::tanh(value / cap);
      return value + (call.slopes ? bias(load(ANYATTN_DTYPE_FLOAT32, call.slopes.at(head)), position, key_position) : 0.0f);
    };
    const float sink = call.sinks ? load(ANYATTN_DTYPE_FLOAT32, call.sinks.at(head)) : 0.0f;
    const int64_t tail = call.k ? 0 : (block_size - keys % block_size) % block_size;
    lse = attend(
        keys, width, call.sinks ? &sink : nullptr, score, [&](int64_t key, float* into) { read(key, call.v, v_, width, into); },
        tail, scores, out);
  }
  for (int64_t d = 0; d < width; ++d) store(call.out.dtype, call.out.at(row, head, d), out[d] * call.v_scale);
  if (call.lse) store(ANYATTN_DTYPE_FLOAT32, call.lse.at(row, head), in_base(lse, call.args.lse_base));
}

bool NaiveAttn::sees(const Call& call, uint32_t request, int64_t row, int64_t position, int64_t key_position) const {
  if (mutated(Mutation::kAnnouncesAll)) return key_position <= position;
  if (call.sparse) {
    bool found = false;
    for (int64_t i = 0; i < call.sparse.shape[1]; ++i)
      found = found || *reinterpret_cast<const int32_t*>(call.sparse.at(row, i)) == key_position;
    if (!found) return false;
  }
  const anyattn_batch& batch = call.batch;
  if (has(problem_, ANYATTN_FEATURE_MM_PREFIX)) {
    for (int32_t i = batch.mm_prefix_start_loc[request]; i < batch.mm_prefix_start_loc[request + 1]; ++i) {
      const int64_t first = batch.mm_prefix_ranges[2 * i], last = batch.mm_prefix_ranges[2 * i + 1];
      if (first <= position && position <= last && first <= key_position && key_position <= last) return true;
    }
  }
  bool causal = !has(problem_, ANYATTN_FEATURE_NON_CAUSAL);
  if (has(problem_, ANYATTN_FEATURE_PER_REQUEST_CAUSAL)) causal = batch.causal[request] != 0;
  if (has(problem_, ANYATTN_FEATURE_CHUNKED_LOCAL)) {
    const int64_t size = problem_.chunk_size;
    if (key_position > position || key_position / size != position / size) return false;
  }
  if (has(problem_, ANYATTN_FEATURE_WINDOW)) {
    const int64_t left = problem_.window_left + (mutated(Mutation::kWindowOffByOne) ? 1 : 0);
    if (problem_.window_left >= 0 && key_position < position - left) return false;
    if (!causal && problem_.window_right >= 0 && key_position > position + problem_.window_right) return false;
  }
  return !causal || key_position <= position;
}

int64_t NaiveAttn::local_keys(int64_t seq_len) const {
  const bool sharded = has(problem_, ANYATTN_FEATURE_CP_DECODE) || has(problem_, ANYATTN_FEATURE_CP_PREFILL);
  if (!sharded || mutated(Mutation::kAnnouncesAll)) return seq_len;
  const int64_t interleave = problem_.cp_interleave, round = interleave * problem_.cp_world_size;
  return interleave * (seq_len / round) + std::clamp<int64_t>(seq_len % round - problem_.cp_rank * interleave, 0, interleave);
}

int64_t NaiveAttn::position_of(int64_t key) const {
  const bool sharded = has(problem_, ANYATTN_FEATURE_CP_DECODE) || has(problem_, ANYATTN_FEATURE_CP_PREFILL);
  if (!sharded || mutated(Mutation::kAnnouncesAll)) return key;
  const int64_t interleave = problem_.cp_interleave;
  return (key / interleave * problem_.cp_world_size + problem_.cp_rank) * interleave + key % interleave;
}

float NaiveAttn::bias(float slope, int64_t position, int64_t key_position) const {
  const auto distance = static_cast<float>(position - key_position);
  if (has(problem_, ANYATTN_FEATURE_ALIBI_SQRT)) return distance >= 0 ? -slope * std::sqrt(distance) : 0.0f;
  if (has(problem_, ANYATTN_FEATURE_ALIBI_SYMMETRIC)) return -slope * std::fabs(distance);
  return -slope * distance;
}

}  // namespace naive
