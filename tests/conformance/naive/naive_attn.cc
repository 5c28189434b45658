// SPDX-License-Identifier: Apache-2.0
#include "naive_attn.h"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace naive {
namespace {

using anyattn::kAnySize;
using anyattn::RawView;

uint64_t known_features() {
  uint64_t known = bits({ANYATTN_FEATURE_NON_CAUSAL,
                         ANYATTN_FEATURE_PER_REQUEST_CAUSAL,
                         ANYATTN_FEATURE_WINDOW,
                         ANYATTN_FEATURE_SOFT_CAP,
                         ANYATTN_FEATURE_ALIBI,
                         ANYATTN_FEATURE_ALIBI_SQRT,
                         ANYATTN_FEATURE_ALIBI_SYMMETRIC,
                         ANYATTN_FEATURE_SINKS,
                         ANYATTN_FEATURE_MM_PREFIX,
                         ANYATTN_FEATURE_SPARSE_TOPK,
                         ANYATTN_FEATURE_CHUNKED_LOCAL,
                         ANYATTN_FEATURE_CP_DECODE,
                         ANYATTN_FEATURE_CP_PREFILL,
                         ANYATTN_FEATURE_LSE,
                         ANYATTN_FEATURE_BATCH_INVARIANT,
                         ANYATTN_FEATURE_QUANTISED_QUERY,
                         ANYATTN_FEATURE_KV_SCALES,
                         ANYATTN_FEATURE_KV_SCALES_PER_HEAD,
                         ANYATTN_FEATURE_OUT_SCALE,
                         ANYATTN_FEATURE_KV_TRANSFER,
                         ANYATTN_FEATURE_GRAPH});
  if (mutated(Mutation::kRefusesWindows) || mutated(Mutation::kCreatesWhatItRefuses)) known &= ~bits({ANYATTN_FEATURE_WINDOW});
  return known;
}

anyattn::SpecBuilder layout(const anyattn_problem& p, bool head_major) {
  const CacheFormat format = format_of(p.kv_cache_dtype);
  const int64_t tokens = p.block_size, heads = p.num_kv_heads, bytes = anyattn::dtype_bytes(format.dtype);
  const int64_t beside = format.row_scale ? 4 : 0;
  const int64_t k_row = p.head_size * bytes + beside, v_row = p.head_size_v * bytes + beside;
  const auto padded = [](int64_t size) { return (size + 15) / 16 * 16; };
  const int64_t v_at = padded(tokens * heads * k_row);
  const uint64_t block_bytes = static_cast<uint64_t>(v_at + padded(tokens * heads * v_row));
  anyattn::SpecBuilder builder(head_major ? "HND" : "NHD", p.block_size, block_bytes, 16);
  const auto add = [&](uint32_t role, uint32_t scale_role, int64_t row, int64_t dims, int64_t at) {
    const int64_t token = head_major ? row : heads * row, head = head_major ? tokens * row : row;
    builder.plane(role, format.dtype, {tokens, heads, dims}, {token, head, bytes}, static_cast<uint64_t>(at));
    if (!format.row_scale) return;
    builder.plane(scale_role, ANYATTN_DTYPE_FLOAT32, {tokens, heads}, {token, head}, static_cast<uint64_t>(at + dims * bytes));
  };
  add(ANYATTN_PLANE_K, ANYATTN_PLANE_K_SCALE, k_row, p.head_size, 0);
  add(ANYATTN_PLANE_V, ANYATTN_PLANE_V_SCALE, v_row, p.head_size_v, v_at);
  return builder;
}

float scale_of(const anyattn_tensor& tensor, int64_t head) {
  if (!tensor.data) return 1.0f;
  const auto scales = anyattn::view<1>(tensor, {.name = "scale", .shape = {kAnySize}});
  return load(ANYATTN_DTYPE_FLOAT32, scales.at(scales.shape[0] == 1 ? 0 : head));
}

}  // namespace

void NaiveAttn::supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& p, anyattn::Reasons& reasons,
                         anyattn_support_report& report) {
  fill_report(p, report);
  if (mutated(Mutation::kAnnouncesAll) && !has(p, ANYATTN_FEATURE_MLA)) return;
  anyattn::refuse_features(p, known_features(), reasons);
  refuse_common(p, reasons);
  if (p.key_source == ANYATTN_KEYS_PAGED) {
    const CacheFormat format = format_of(p.kv_cache_dtype);
    const char* name = p.kv_cache_dtype ? p.kv_cache_dtype : "none";
    if (format.dtype == ANYATTN_DTYPE_NONE && !mutated(Mutation::kTakesUnknownFormat))
      reasons.add(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", name, kFormats);
    if (format.row_scale && (has(p, ANYATTN_FEATURE_KV_SCALES) || has(p, ANYATTN_FEATURE_KV_SCALES_PER_HEAD)))
      reasons.add(ANYATTN_REASON_COMBINATION, "kv_scales", anyattn::text("with ", name),
                  "without: its rows have scales of their own");
  }
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
  if (mutated(Mutation::kFreesHostText)) std::free(const_cast<char*>(p.kv_cache_dtype));
  if (mutated(Mutation::kNeedsWorkers) && host.num_workers() == 1) __builtin_trap();
  features_ = p.num_feature_words > 0 ? p.features[0] : 0;
  problem_.features = &features_;
  problem_.num_feature_words = 1;
  if (!spec) return;
  k_ = anyattn::find_plane(*spec, ANYATTN_PLANE_K);
  v_ = anyattn::find_plane(*spec, ANYATTN_PLANE_V);
  digest_ = spec->digest;
  format_ = format_of(p.kv_cache_dtype);
  if (!format_.row_scale) return;
  k_scale_ = anyattn::find_plane(*spec, ANYATTN_PLANE_K_SCALE);
  v_scale_ = anyattn::find_plane(*spec, ANYATTN_PLANE_V_SCALE);
}

void NaiveAttn::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(host_.num_workers(), limits.max_seq_len);
}

void NaiveAttn::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  check_cache(args.cache, digest_);
  const auto slots =
      anyattn::view<1>(args.slot_mapping, {.name = "slot_mapping", .dtype = ANYATTN_DTYPE_INT64, .shape = {kAnySize}});
  const auto heads = static_cast<int64_t>(problem_.num_kv_heads);
  const uint32_t new_kv_dtype = has(problem_, ANYATTN_FEATURE_QUANTISED_QUERY) ? problem_.out_dtype : problem_.q_dtype;
  const auto write = [&](const anyattn_tensor& from, const anyattn_plane& plane, const anyattn_plane& scales, const char* name,
                         const anyattn_tensor& of_call) {
    const auto rows = anyattn::view<3>(
        from, {.name = name, .dtype = new_kv_dtype, .shape = {slots.shape[0], heads, plane.dims[3]}, .rows_at_least = true});
    for (int64_t t = 0; t < slots.shape[0]; ++t) {
      const int64_t slot = *reinterpret_cast<const int64_t*>(slots.at(t));
      if (slot < 0) continue;
      std::byte* block = block_of(*args.cache, slot / problem_.block_size);
      const int64_t offset = slot % problem_.block_size;
      std::byte* at = block + plane.byte_offset + offset * plane.strides[1];
      for (int64_t g = 0; g < heads; ++g) {
        float scale = scale_of(of_call, g);
        if (format_.row_scale) {
          float most = 0.0f;
          for (int64_t d = 0; d < plane.dims[3]; ++d) most = std::max(most, std::fabs(load(rows.dtype, rows.at(t, g, d))));
          scale = std::max(most / 127.0f, 1e-6f);
          store(ANYATTN_DTYPE_FLOAT32, block + scales.byte_offset + offset * scales.strides[1] + g * scales.strides[2], scale);
        }
        for (int64_t d = 0; d < plane.dims[3]; ++d) {
          store_value(plane.dtype, at + g * plane.strides[2] + d * plane.strides[3],
                      load(rows.dtype, rows.at(t, g, d)) / scale);
        }
      }
    }
  };
  const bool scaled = has(problem_, ANYATTN_FEATURE_KV_SCALES) || has(problem_, ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  write(args.k, k_, k_scale_, "k", scaled ? args.k_scale : anyattn_tensor{});
  write(args.v, v_, v_scale_, "v", scaled ? args.v_scale : anyattn_tensor{});
}

// The checked arguments of one forward.
struct NaiveAttn::Call {
  const anyattn_batch& batch;
  const anyattn_forward_args& args;
  RawView<3> q, out, k, v;
  RawView<2> lse, sparse;
  RawView<1> sinks, slopes;
  anyattn_tensor q_scale, k_scale, v_scale;  // absent: 1
  float out_scale = 1.0f;
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
  Call call{.batch = batch,
            .args = args,
            .q = {},
            .out = {},
            .k = {},
            .v = {},
            .lse = {},
            .sparse = {},
            .sinks = {},
            .slopes = {},
            .q_scale = {},
            .k_scale = {},
            .v_scale = {}};
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
  if ((has(problem_, ANYATTN_FEATURE_KV_SCALES) || has(problem_, ANYATTN_FEATURE_KV_SCALES_PER_HEAD)) && knows_all) {
    call.k_scale = args.k_scale;
    call.v_scale = mutated(Mutation::kScaleOfKForV) ? args.k_scale : args.v_scale;
  }
  if (has(problem_, ANYATTN_FEATURE_QUANTISED_QUERY) && knows_all && !mutated(Mutation::kQScaleForgotten))
    call.q_scale = args.q_scale;
  if (has(problem_, ANYATTN_FEATURE_OUT_SCALE) && knows_all) call.out_scale = scale_of(args.out_scale, 0);
  if (mutated(Mutation::kLogsOnTheHotPath)) host_.log(ANYATTN_LOG_INFO, "forward");
  if (mutated(Mutation::kCrashes)) __builtin_trap();
  if (mutated(Mutation::kAllocates)) {
    void* volatile memory = std::malloc(96);
    std::free(memory);
  }
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
  if (tokens == 0) return;
  std::byte* const first = call.out.at(0, 0);
  if (mutated(Mutation::kOtherBitsAgain)) {
    static int calls = 0;
    store(call.out.dtype, first, load(call.out.dtype, first) * (1.0f + 0.005f * static_cast<float>(calls++ % 2)));
  }
  if (mutated(Mutation::kWritesPastOut)) call.out.at(tokens - 1, heads - 1)[width * anyattn::dtype_bytes(call.out.dtype)] = {};
  if (mutated(Mutation::kWrongInCompany) || (mutated(Mutation::kWrongOffTheGrid) && depth % 8 == 4))
    store(call.out.dtype, first, 2.0f + load(call.out.dtype, first));
}

void NaiveAttn::one_row(const Call& call, int64_t row, int64_t head, float* scores) const {
  const anyattn_batch& batch = call.batch;
  const uint32_t request = request_of(batch, row);
  const int64_t depth = problem_.head_size, width = problem_.head_size_v;
  float q[kMaxHeadSize], k[kMaxHeadSize], out[kMaxHeadSize] = {};
  float lse = -kInfinity;
  const int64_t kv_head = head / (problem_.num_q_heads / problem_.num_kv_heads);
  const float q_scale = scale_of(call.q_scale, kv_head), k_scale = scale_of(call.k_scale, kv_head),
              v_scale = scale_of(call.v_scale, kv_head);
  if (request < batch.num_reqs) {
    int64_t group = head / (problem_.num_q_heads / problem_.num_kv_heads);
    const int64_t seq_len = batch.seq_lens[request], keys = local_keys(seq_len);
    const int64_t position = seq_len - batch.query_start_loc[request + 1] + row;
    const int64_t block_size = problem_.block_size;
    if (mutated(Mutation::kHeadGroup) && problem_.num_kv_heads > 1 && group == problem_.num_kv_heads - 1) --group;
    for (int64_t d = 0; d < depth; ++d) q[d] = load_stored(call.q.dtype, call.q.at(row, head, d));
    const auto read = [&](int64_t key, const RawView<3>& ragged, const anyattn_plane& plane, const anyattn_plane& scales,
                          int64_t count, float* into) {
      if (ragged) {
        load_row(ragged.dtype, ragged.at(batch.key_start_loc[request] + key, group), anyattn::dtype_bytes(ragged.dtype), count,
                 into);
        return;
      }
      const int64_t block = batch.block_table[request * batch.block_table_stride + key / block_size];
      const std::byte* base = block_of(*call.args.cache, block);
      const auto place = [&](const anyattn_plane& of) {
        return base + of.byte_offset + key % block_size * of.strides[1] + group * of.strides[2];
      };
      const float scale = format_.row_scale ? load(ANYATTN_DTYPE_FLOAT32, place(scales)) : 1.0f;
      for (int64_t d = 0; d < count; ++d) into[d] = load_stored(plane.dtype, place(plane) + d * plane.strides[3]) * scale;
    };
    const auto cap = static_cast<float>(problem_.logits_soft_cap);
    const auto score = [&](int64_t key) {
      const int64_t key_position = position_of(key);
      if (!sees(call, request, row, position, key_position)) return -kInfinity;
      read(key, call.k, k_, k_scale_, depth, k);
      float sum = 0.0f;
      for (int64_t d = 0; d < depth; ++d) sum += q[d] * k[d];
      float value = sum * static_cast<float>(call.args.softmax_scale) * q_scale * k_scale;
      if (has(problem_, ANYATTN_FEATURE_SOFT_CAP) && !mutated(Mutation::kAnnouncesAll)) value = cap * std::tanh(value / cap);
      return value + (call.slopes ? bias(load(ANYATTN_DTYPE_FLOAT32, call.slopes.at(head)), position, key_position) : 0.0f);
    };
    const float sink = call.sinks ? load(ANYATTN_DTYPE_FLOAT32, call.sinks.at(head)) : 0.0f;
    const int64_t tail = call.k ? 0 : (block_size - keys % block_size) % block_size;
    lse = attend(
        keys, width, call.sinks ? &sink : nullptr, score,
        [&](int64_t key, float* into) {
          read(key, call.v, v_, mutated(Mutation::kScaleOfKForV) ? k_scale_ : v_scale_, width, into);
        },
        tail, scores, out);
  }
  const float factor = mutated(Mutation::kOutScaleUpsideDown) ? v_scale * call.out_scale : v_scale / call.out_scale;
  for (int64_t d = 0; d < width; ++d) store_value(call.out.dtype, call.out.at(row, head, d), out[d] * factor);
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
