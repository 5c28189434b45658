// SPDX-License-Identifier: Apache-2.0
#include "llama/paged_attention.h"

#include <cmath>

#include "common/runtime.h"
#include "llama/tokenizer.h"

namespace anyattn::tools::llama {
namespace {

constexpr uint64_t kRequest = 1;  // the only one in the pool

Group make_group(const Runtime& runtime, const Shape& shape, const TargetOptions& target, int max_tokens, int max_seq_len) {
  Problem problem;
  problem.fields.num_q_heads = static_cast<uint32_t>(shape.num_q_heads);
  problem.fields.num_kv_heads = static_cast<uint32_t>(shape.num_kv_heads);
  problem.fields.head_size = problem.fields.head_size_v = static_cast<uint32_t>(shape.head_size());
  problem.fields.q_dtype = problem.fields.out_dtype = dtype_of(target.dtype, ANYATTN_DTYPE_FLOAT32);
  problem.fields.block_size = target.block_size;
  problem.kv_cache_dtype(target.kv_cache_dtype.empty() ? "auto" : target.kv_cache_dtype);

  Group::Options options;
  options.problem = problem.view();
  options.limits.struct_size = ANYATTN_LIMITS_SIZE;
  options.limits.max_num_reqs = 1;
  options.limits.max_num_tokens = options.limits.max_query_len = static_cast<uint32_t>(max_tokens);
  options.limits.max_seq_len = static_cast<uint32_t>(max_seq_len);
  options.device = target.device;
  options.label = "llama";
  return Group(runtime, options);
}

}  // namespace

PagedAttention::PagedAttention(const Runtime& runtime, const Shape& shape, const TargetOptions& target, int max_tokens,
                               int max_seq_len)
    : shape_(shape),
      group_(make_group(runtime, shape, target, max_tokens, max_seq_len)),
      info_(group_.info()),
      // The group's device, not the one asked for: an automatic choice may fall to another, where the file allows it.
      rows_(runtime, {info_.device_kind, info_.device_ordinal}, dtype_of(target.dtype, ANYATTN_DTYPE_FLOAT32)) {
  make_pool(runtime, max_seq_len);
  make_memory(runtime, max_tokens);
}

void PagedAttention::make_pool(const Runtime& runtime, int max_seq_len) {
  anyattn_kv_group_options group{};
  group.struct_size = ANYATTN_KV_GROUP_OPTIONS_SIZE;
  group.num_layers = static_cast<uint32_t>(shape_.num_layers);
  group.window_left = -1;
  group.spec = info_.spec;
  group.label = "llama";

  anyattn_kv_pool_options options{};
  options.struct_size = ANYATTN_KV_POOL_OPTIONS_SIZE;
  options.num_groups = 1;
  options.group_stride = sizeof group;
  options.device_kind = info_.device_kind;
  options.device_ordinal = info_.device_ordinal;
  options.max_num_reqs = 1;
  options.max_seq_len = static_cast<uint32_t>(max_seq_len);
  options.no_sharing = 1;
  options.groups = &group;
  options.num_blocks = (options.max_seq_len + info_.block_size - 1) / info_.block_size;
  anyattn_kv_pool* pool = nullptr;
  check(anyattn_kv_pool_create, runtime.get(), &options, &pool);
  pool_.reset(pool);

  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    anyattn_cache cache{};
    cache.struct_size = ANYATTN_CACHE_SIZE;
    check(anyattn_kv_pool_layer_cache, pool, 0u, layer, &cache);
    caches_.push_back(cache);
  }
  block_table_.resize(anyattn_kv_pool_max_blocks_per_req(pool, 0));
  // Later tokens are not named: nothing is shared.
  const int32_t first = kBos;
  uint32_t cached_tokens = 0;
  check(anyattn_kv_pool_begin, pool, kRequest, &first, 1u, uint64_t{0}, &cached_tokens);
}

void PagedAttention::make_memory(const Runtime& runtime, int max_tokens) {
  const uint64_t rows = static_cast<uint64_t>(max_tokens);
  q_ = rows_.allocate(rows * static_cast<uint64_t>(shape_.dim));
  out_ = rows_.allocate(rows * static_cast<uint64_t>(shape_.dim));
  k_ = rows_.allocate(rows * static_cast<uint64_t>(shape_.kv_dim()));
  v_ = rows_.allocate(rows * static_cast<uint64_t>(shape_.kv_dim()));
  query_start_loc_ = DeviceMemory(runtime, rows_.device(), 2 * sizeof(int32_t));
  seq_lens_ = DeviceMemory(runtime, rows_.device(), sizeof(int32_t));
  table_ = DeviceMemory(runtime, rows_.device(), block_table_.size() * sizeof(int32_t));
  slot_mapping_ = DeviceMemory(runtime, rows_.device(), rows * sizeof(int64_t));
  slots_.resize(rows);
}

void PagedAttention::begin_step(int position, int num_tokens) {
  num_tokens_ = num_tokens;
  const auto start = static_cast<uint32_t>(position), count = static_cast<uint32_t>(num_tokens);
  const auto width = static_cast<int64_t>(block_table_.size());
  anyattn_kv_pool* pool = pool_.get();
  if (start > 0) check(anyattn_kv_pool_commit, pool, kRequest, start);
  check(anyattn_kv_pool_reserve, pool, kRequest, start + count);
  check(anyattn_kv_pool_block_table, pool, 0u, &kRequest, 1u, block_table_.data(), width);
  check(anyattn_kv_pool_slot_mapping, pool, 0u, kRequest, start, count, slots_.data());

  const int32_t query_start_loc[2] = {0, num_tokens};
  const int32_t seq_len = position + num_tokens;
  rows_.upload_plain(query_start_loc_, std::span<const int32_t>(query_start_loc));
  rows_.upload_plain(seq_lens_, std::span<const int32_t>(&seq_len, 1));
  rows_.upload_plain(table_, std::span<const int32_t>(block_table_));
  rows_.upload_plain(slot_mapping_, std::span<const int64_t>(slots_).first(count));

  anyattn_batch batch{};
  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_reqs = 1;
  batch.num_tokens = batch.max_query_len = count;
  batch.max_seq_len = static_cast<uint32_t>(seq_len);
  batch.query_start_loc = static_cast<const int32_t*>(query_start_loc_.get());
  batch.seq_lens = static_cast<const int32_t*>(seq_lens_.get());
  batch.block_table = static_cast<const int32_t*>(table_.get());
  batch.block_table_stride = width;
  batch.query_start_loc_host = query_start_loc;
  batch.seq_lens_host = &seq_len;
  group_.update(part(), batch);
}

uint32_t PagedAttention::part() const {
  if (info_.needs_split == 0) return ANYATTN_PHASE_BOTH;
  const bool decode = static_cast<uint32_t>(num_tokens_) <= info_.decode_threshold;
  return decode ? ANYATTN_PHASE_DECODE : ANYATTN_PHASE_PREFILL;
}

void PagedAttention::attend(int layer, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                            std::span<float> out) {
  rows_.upload(q_, q);
  rows_.upload(k_, k);
  rows_.upload(v_, v);
  const Device device = rows_.device();
  const auto heads = [&](const DeviceMemory& memory, int num_heads) {
    return Tensor(memory.get(), rows_.dtype(), {num_tokens_, num_heads, shape_.head_size()}, device.kind, device.ordinal);
  };
  const Tensor q_rows = heads(q_, shape_.num_q_heads), k_rows = heads(k_, shape_.num_kv_heads),
               v_rows = heads(v_, shape_.num_kv_heads), out_rows = heads(out_, shape_.num_q_heads),
               slots(slot_mapping_.get(), ANYATTN_DTYPE_INT64, {num_tokens_}, device.kind, device.ordinal);

  anyattn_kv_cache_update_args store{};
  store.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  store.k = k_rows;
  store.v = v_rows;
  store.slot_mapping = slots;
  store.cache = &caches_[static_cast<size_t>(layer)];
  group_.kv_cache_update(store);

  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.softmax_scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_size()));
  args.q = q_rows;
  args.cache = store.cache;
  args.out = out_rows;
  group_.forward(part(), args);
  rows_.download(out, out_);
}

}  // namespace anyattn::tools::llama
