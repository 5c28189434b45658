// SPDX-License-Identifier: Apache-2.0
#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/runtime.h"

namespace anyattn::tools::bench {
namespace {

// Finite values of both signs around 1, different from row to row; their distribution is of no account for time.
std::vector<float> values(size_t count, double phase) {
  std::vector<float> row(count);
  for (size_t i = 0; i < count; ++i) row[i] = static_cast<float>(std::sin(phase + 0.37 * static_cast<double>(i)));
  return row;
}

Group make_group(const Runtime& runtime, const TargetOptions& target, const std::string& backend, const WorkloadShape& shape) {
  Problem problem;
  problem.fields.num_q_heads = shape.num_q_heads;
  problem.fields.num_kv_heads = shape.num_kv_heads;
  problem.fields.head_size = problem.fields.head_size_v = shape.head_size;
  problem.fields.q_dtype = problem.fields.out_dtype = dtype_of(target.dtype, ANYATTN_DTYPE_FLOAT32);
  problem.fields.block_size = target.block_size;
  problem.kv_cache_dtype(target.kv_cache_dtype.empty() ? "auto" : target.kv_cache_dtype);

  Group::Options options;
  options.problem = problem.view();
  options.limits.struct_size = ANYATTN_LIMITS_SIZE;
  options.limits.max_num_reqs = shape.num_reqs;
  // The cache is filled request by request.
  options.limits.max_num_tokens = std::max(shape.num_reqs * shape.query_len, shape.seq_len);
  options.limits.max_query_len = shape.query_len;
  options.limits.max_seq_len = shape.seq_len;
  options.device = target.device;
  options.backend = backend;
  options.label = shape.name;
  return Group(runtime, options);
}

}  // namespace

double WorkloadShape::flops() const {
  // Row i of a request sees seq_len - query_len + i + 1 keys.
  const double rows = query_len, keys = rows * (seq_len - query_len) + rows * (rows + 1) / 2;
  return num_reqs * keys * num_q_heads * 4.0 * head_size;
}

double WorkloadShape::bytes(uint32_t element_bytes) const {
  const double cached = 2.0 * seq_len * num_kv_heads, rows = 2.0 * query_len * num_q_heads;
  return num_reqs * (cached + rows) * head_size * element_bytes;
}

Workload::Workload(const Runtime& runtime, const TargetOptions& target, const std::string& backend, const WorkloadShape& shape)
    : runtime_(runtime),
      shape_(shape),
      group_(make_group(runtime, target, backend, shape)),
      info_(group_.info()),
      rows_(runtime, {info_.device_kind, info_.device_ordinal}, dtype_of(target.dtype, ANYATTN_DTYPE_FLOAT32)) {
  make_cache(runtime);
  make_batch(runtime);
  fill_cache(runtime);
  make_args(runtime);
}

void Workload::make_cache(const Runtime& runtime) {
  blocks_per_req_ = (shape_.seq_len + info_.block_size - 1) / info_.block_size;
  cache_.struct_size = ANYATTN_CACHE_SIZE;
  cache_.spec = info_.spec;
  cache_.block_stride_bytes = info_.spec->block_bytes;
  cache_.num_blocks = uint64_t{shape_.num_reqs} * blocks_per_req_;
  blocks_ = DeviceMemory(runtime, rows_.device(), cache_.num_blocks * cache_.block_stride_bytes);
  cache_.base = blocks_.get();
}

// Request r owns the blocks r * blocks_per_req and after it.
void Workload::make_batch(const Runtime& runtime) {
  std::vector<int32_t> table(cache_.num_blocks);
  std::iota(table.begin(), table.end(), 0);
  for (uint32_t r = 0; r <= shape_.num_reqs; ++r) query_start_loc_.push_back(static_cast<int32_t>(r * shape_.query_len));
  seq_lens_.assign(shape_.num_reqs, static_cast<int32_t>(shape_.seq_len));
  const auto on_device = [&](const std::vector<int32_t>& numbers) {
    DeviceMemory memory(runtime, rows_.device(), numbers.size() * sizeof(int32_t));
    rows_.upload_plain(memory, std::span<const int32_t>(numbers));
    return memory;
  };
  table_ = on_device(table);
  query_start_loc_device_ = on_device(query_start_loc_);
  seq_lens_device_ = on_device(seq_lens_);

  batch_.struct_size = ANYATTN_BATCH_SIZE;
  batch_.num_reqs = shape_.num_reqs;
  batch_.num_tokens = shape_.num_reqs * shape_.query_len;
  batch_.max_query_len = shape_.query_len;
  batch_.max_seq_len = shape_.seq_len;
  batch_.query_start_loc = static_cast<const int32_t*>(query_start_loc_device_.get());
  batch_.seq_lens = static_cast<const int32_t*>(seq_lens_device_.get());
  batch_.block_table = static_cast<const int32_t*>(table_.get());
  batch_.block_table_stride = blocks_per_req_;
  batch_.query_start_loc_host = query_start_loc_.data();
  batch_.seq_lens_host = seq_lens_.data();
}

int64_t Workload::slot(uint32_t request, uint32_t position) const {
  return int64_t{request} * blocks_per_req_ * info_.block_size + position;
}

Tensor Workload::heads(const DeviceMemory& memory, int64_t num_rows, uint32_t num_heads) const {
  const Device device = rows_.device();
  return Tensor(memory.get(), rows_.dtype(), {num_rows, num_heads, shape_.head_size}, device.kind, device.ordinal);
}

Tensor Workload::slots(const DeviceMemory& memory, int64_t num_rows) const {
  const Device device = rows_.device();
  return Tensor(memory.get(), ANYATTN_DTYPE_INT64, {num_rows}, device.kind, device.ordinal);
}

void Workload::fill_cache(const Runtime& runtime) {
  const uint64_t count = uint64_t{shape_.seq_len} * shape_.num_kv_heads * shape_.head_size;
  const DeviceMemory k = rows_.allocate(count), v = rows_.allocate(count);
  const DeviceMemory mapping_device(runtime, rows_.device(), shape_.seq_len * sizeof(int64_t));
  rows_.upload(k, values(count, 1.0));
  rows_.upload(v, values(count, 2.0));
  const Tensor k_rows = heads(k, shape_.seq_len, shape_.num_kv_heads), v_rows = heads(v, shape_.seq_len, shape_.num_kv_heads),
               slot_rows = slots(mapping_device, shape_.seq_len);
  anyattn_kv_cache_update_args args{};
  args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  args.k = k_rows;
  args.v = v_rows;
  args.slot_mapping = slot_rows;
  args.cache = &cache_;
  std::vector<int64_t> mapping(shape_.seq_len);
  for (uint32_t r = 0; r < shape_.num_reqs; ++r) {
    std::iota(mapping.begin(), mapping.end(), slot(r, 0));
    rows_.upload_plain(mapping_device, std::span<const int64_t>(mapping));
    group_.kv_cache_update(args);
    runtime.synchronize(rows_.device());
  }
}

void Workload::make_args(const Runtime& runtime) {
  const int64_t tokens = batch_.num_tokens;
  const auto filled = [&](uint32_t num_heads, double phase) {
    const uint64_t count = batch_.num_tokens * uint64_t{num_heads} * shape_.head_size;
    DeviceMemory memory = rows_.allocate(count);
    rows_.upload(memory, values(count, phase));
    return memory;
  };
  q_ = filled(shape_.num_q_heads, 3.0);
  k_ = filled(shape_.num_kv_heads, 4.0);
  v_ = filled(shape_.num_kv_heads, 5.0);
  out_ = filled(shape_.num_q_heads, 6.0);
  std::vector<int64_t> mapping;
  for (uint32_t r = 0; r < shape_.num_reqs; ++r) {
    for (uint32_t i = 0; i < shape_.query_len; ++i) mapping.push_back(slot(r, shape_.seq_len - shape_.query_len + i));
  }
  slot_mapping_ = DeviceMemory(runtime, rows_.device(), mapping.size() * sizeof(int64_t));
  rows_.upload_plain(slot_mapping_, std::span<const int64_t>(mapping));
  q_rows_ = heads(q_, tokens, shape_.num_q_heads);
  k_rows_ = heads(k_, tokens, shape_.num_kv_heads);
  v_rows_ = heads(v_, tokens, shape_.num_kv_heads);
  out_rows_ = heads(out_, tokens, shape_.num_q_heads);
  slot_rows_ = slots(slot_mapping_, tokens);

  store_args_.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  store_args_.k = k_rows_;
  store_args_.v = v_rows_;
  store_args_.slot_mapping = slot_rows_;
  store_args_.cache = &cache_;
  forward_args_.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  forward_args_.softmax_scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_size));
  forward_args_.q = q_rows_;
  forward_args_.cache = &cache_;
  forward_args_.out = out_rows_;
}

uint32_t Workload::part() const {
  if (info_.needs_split == 0) return ANYATTN_PHASE_BOTH;
  return shape_.query_len <= info_.decode_threshold ? ANYATTN_PHASE_DECODE : ANYATTN_PHASE_PREFILL;
}

void Workload::update() { group_.update(part(), batch_); }

void Workload::store() { group_.kv_cache_update(store_args_); }

void Workload::forward() {
  group_.forward(part(), forward_args_);
  if (info_.device_kind != ANYATTN_DEVICE_CPU) runtime_.synchronize(rows_.device());
}

}  // namespace anyattn::tools::bench
