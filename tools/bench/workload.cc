// SPDX-License-Identifier: Apache-2.0
#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "common/runtime.h"

namespace anyattn::tools::bench {
namespace {

constexpr uint32_t kFillTokens = 1024;
constexpr uint32_t kDeviceToDevice = 3;  // ANYATTN_COPY_* of device.h

// Finite values of both signs around 1, different from row to row; their distribution is of no account for time.
std::vector<float> values(size_t count, double phase) {
  std::vector<float> row(count);
  for (size_t i = 0; i < count; ++i) row[i] = static_cast<float>(std::sin(phase + 0.37 * static_cast<double>(i)));
  return row;
}

constexpr uint32_t kGraphCapture = 2;  // metadata_mode of runtime.h

// max_tokens: of the batch, or more.
Group make_group(const Runtime& runtime, const WorkloadOptions& given, const Point& point, uint32_t max_tokens, void* stream,
                 uint32_t metadata_mode = 0) {
  Group::Options options;
  options.problem = point.problem.view();
  options.limits.struct_size = ANYATTN_LIMITS_SIZE;
  options.limits.max_num_reqs = point.num_reqs;
  options.limits.max_num_tokens = std::max(point.num_reqs * point.query_len, max_tokens);
  options.limits.max_query_len = point.query_len;
  options.limits.max_seq_len = point.seq_len;
  options.device = given.device;
  options.backend = given.backend;
  options.label = point.phase;
  options.stream = stream;
  options.metadata_mode = metadata_mode;
  return Group(runtime, options);
}

DeviceStream make_stream(const Runtime& runtime, const std::string& device) {
  const Device resolved = runtime.resolve_device(device);
  return resolved.kind == ANYATTN_DEVICE_CPU ? DeviceStream() : DeviceStream(runtime, resolved);
}

uint64_t rounded_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

Workload::Workload(const Runtime& runtime, const WorkloadOptions& options, const Point& point, Arena& arena)
    : runtime_(runtime),
      point_(point),
      arena_(arena),
      stream_(make_stream(runtime, options.device)),
      // The caches are filled that many tokens at once.
      group_(make_group(runtime, options, point, kFillTokens, stream_.get())),
      info_(group_.info()),
      rows_(runtime, {info_.device_kind, info_.device_ordinal}, point.problem.fields.q_dtype) {
  make_caches(options);
  make_for_capture(options);
  make_batch();
  if (info_.is_mla) {
    make_mla_args();
  } else {
    make_args();
  }
}

// A group whose launches follow from limits that are the batch's own, where the level that was reached allows a capture of it.
void Workload::make_for_capture(const WorkloadOptions& options) {
  const uint32_t needed = point_.query_len == 1 ? ANYATTN_GRAPH_SINGLE_TOKEN_DECODE : ANYATTN_GRAPH_ALWAYS;
  if (on_cpu() || info_.graph_level < needed) return;
  const uint64_t digest = info_.spec->digest;
  group_ = make_group(runtime_, options, point_, 0, stream_.get(), kGraphCapture);
  info_ = group_.info();
  cache_.spec = info_.spec;
  captures_ = info_.spec->digest == digest;
  if (!captures_) throw RuntimeError(ANYATTN_UNSUPPORTED, std::string(info_.backend) + ": another cache in graph mode");
}

void Workload::make_caches(const WorkloadOptions& options) {
  blocks_per_req_ = (point_.seq_len + info_.block_size - 1) / info_.block_size;
  cache_.struct_size = ANYATTN_CACHE_SIZE;
  cache_.spec = info_.spec;
  cache_.block_stride_bytes = info_.spec->block_bytes;
  // Caches begin where one may: 256 bytes.
  cache_.num_blocks = uint64_t{point_.num_reqs} * blocks_per_req_;
  while (cache_bytes() % 256 != 0) ++cache_.num_blocks;
  if (point_.cold) num_caches_ = static_cast<uint32_t>(1 + (options.cold_bytes + cache_bytes() - 1) / cache_bytes());
  const uint64_t bytes = std::max(num_caches_ * cache_bytes(),
                                  rounded_up(kFillTokens, info_.block_size) / info_.block_size * info_.spec->block_bytes);
  arena_.reserve(runtime_, rows_.device(), bytes);
  if (arena_.filled_bytes(info_.spec->digest) < bytes) fill_caches(arena_.bytes());
  cache_.base = arena_.data();
}

// The first blocks are written by the backend, all others are copies of them.
void Workload::fill_caches(uint64_t bytes) {
  const anyattn_problem& fields = point_.problem.fields;
  const auto tokens = static_cast<uint32_t>(rounded_up(kFillTokens, info_.block_size));
  const uint64_t written = uint64_t{tokens} / info_.block_size * info_.spec->block_bytes;
  const uint32_t rope = info_.is_mla ? fields.qk_rope_head_dim : 0;
  const DeviceMemory k = filled(uint64_t{kFillTokens} * fields.num_kv_heads * fields.head_size, 1.0),
                     v = filled(uint64_t{kFillTokens} * fields.num_kv_heads * std::max(fields.head_size_v, rope), 2.0),
                     mapping_device(runtime_, rows_.device(), kFillTokens * sizeof(int64_t));
  anyattn_cache first = cache_;
  first.base = arena_.data();
  first.num_blocks = tokens / info_.block_size;
  const Device device = rows_.device();
  for (uint32_t at = 0; at < tokens; at += kFillTokens) {
    const uint32_t count = std::min(kFillTokens, tokens - at);
    std::vector<int64_t> mapping(count);
    std::iota(mapping.begin(), mapping.end(), int64_t{at});
    rows_.upload_plain(mapping_device, std::span<const int64_t>(mapping));
    const Tensor slots(mapping_device.get(), ANYATTN_DTYPE_INT64, {count}, device.kind, device.ordinal);
    const Tensor k_rows = info_.is_mla ? plain_rows(k, count, fields.kv_lora_rank)
                                       : rows_of(k, count, fields.num_kv_heads, fields.head_size),
                 v_rows =
                     info_.is_mla ? plain_rows(v, count, rope) : rows_of(v, count, fields.num_kv_heads, fields.head_size_v);
    anyattn_kv_cache_update_args args{};
    args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    (info_.is_mla ? args.kv_c : args.k) = k_rows;
    (info_.is_mla ? args.k_pe : args.v) = v_rows;
    args.slot_mapping = slots;
    args.cache = &first;
    group_.kv_cache_update(args);
    runtime_.synchronize(device);
  }
  for (uint64_t at = written; at < bytes; at += written)
    runtime_.copy(device, arena_.data() + at, arena_.data(), std::min(written, bytes - at), kDeviceToDevice);
  runtime_.synchronize(device);
  arena_.set_filled(info_.spec->digest, bytes);
}

std::pair<const char*, uint64_t> Workload::take_caches(uint64_t count) {
  count = std::min<uint64_t>(std::max<uint64_t>(count, 1), num_caches_);
  if (next_cache_ + count > num_caches_) next_cache_ = 0;
  const char* start = arena_.data() + next_cache_ * cache_bytes();
  next_cache_ = static_cast<uint32_t>((next_cache_ + count) % num_caches_);
  return {start, count * cache_bytes()};
}

DeviceMemory Workload::uploaded(const std::vector<int32_t>& numbers) const {
  DeviceMemory memory(runtime_, rows_.device(), numbers.size() * sizeof(int32_t));
  rows_.upload_plain(memory, std::span<const int32_t>(numbers));
  return memory;
}

void Workload::make_batch() {
  table_.resize(uint64_t{point_.num_reqs} * blocks_per_req_);
  std::iota(table_.begin(), table_.end(), 0);
  if (point_.shuffled) std::shuffle(table_.begin(), table_.end(), std::mt19937_64(1));
  for (uint32_t r = 0; r <= point_.num_reqs; ++r) query_start_loc_.push_back(static_cast<int32_t>(r * point_.query_len));
  seq_lens_.assign(point_.num_reqs, static_cast<int32_t>(point_.seq_len));
  table_device_ = uploaded(table_);
  query_start_loc_device_ = uploaded(query_start_loc_);
  seq_lens_device_ = uploaded(seq_lens_);

  batch_.struct_size = ANYATTN_BATCH_SIZE;
  batch_.num_reqs = point_.num_reqs;
  batch_.num_tokens = point_.num_reqs * point_.query_len;
  batch_.max_query_len = point_.query_len;
  batch_.max_seq_len = point_.seq_len;
  batch_.query_start_loc = static_cast<const int32_t*>(query_start_loc_device_.get());
  batch_.seq_lens = static_cast<const int32_t*>(seq_lens_device_.get());
  batch_.block_table = static_cast<const int32_t*>(table_device_.get());
  batch_.block_table_stride = blocks_per_req_;
  batch_.query_start_loc_host = query_start_loc_.data();
  batch_.seq_lens_host = seq_lens_.data();

  std::vector<int64_t> mapping;
  for (uint32_t r = 0; r < point_.num_reqs; ++r) {
    for (uint32_t i = 0; i < point_.query_len; ++i) mapping.push_back(slot(r, point_.seq_len - point_.query_len + i));
  }
  slot_mapping_ = DeviceMemory(runtime_, rows_.device(), mapping.size() * sizeof(int64_t));
  rows_.upload_plain(slot_mapping_, std::span<const int64_t>(mapping));
  const Device device = rows_.device();
  slot_rows_ =
      Tensor(slot_mapping_.get(), ANYATTN_DTYPE_INT64, {static_cast<int64_t>(mapping.size())}, device.kind, device.ordinal);
  store_args_.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  store_args_.slot_mapping = slot_rows_;
  store_args_.cache = &cache_;
  store_args_.stream = stream_.get();
}

int64_t Workload::slot(uint32_t request, uint32_t position) const {
  const int64_t block = table_[uint64_t{request} * blocks_per_req_ + position / info_.block_size];
  return block * info_.block_size + position % info_.block_size;
}

DeviceMemory Workload::filled(uint64_t num_values, double phase) {
  DeviceMemory memory = rows_.allocate(num_values);
  rows_.upload(memory, values(num_values, phase));
  return memory;
}

Tensor Workload::rows_of(const DeviceMemory& memory, int64_t num_rows, uint32_t num_heads, uint32_t head_size) const {
  const Device device = rows_.device();
  return Tensor(memory.get(), rows_.dtype(), {num_rows, num_heads, head_size}, device.kind, device.ordinal);
}

Tensor Workload::plain_rows(const DeviceMemory& memory, int64_t num_rows, uint32_t size) const {
  const Device device = rows_.device();
  return Tensor(memory.get(), rows_.dtype(), {num_rows, size}, device.kind, device.ordinal);
}

void Workload::make_args() {
  const anyattn_problem& fields = point_.problem.fields;
  const int64_t tokens = batch_.num_tokens;
  const Device device = rows_.device();
  q_ = filled(batch_.num_tokens * uint64_t{fields.num_q_heads} * fields.head_size, 3.0);
  k_ = filled(batch_.num_tokens * uint64_t{fields.num_kv_heads} * fields.head_size, 4.0);
  v_ = filled(batch_.num_tokens * uint64_t{fields.num_kv_heads} * fields.head_size_v, 5.0);
  out_ = filled(batch_.num_tokens * uint64_t{fields.num_q_heads} * fields.head_size_v, 6.0);
  // Slopes of ALiBi, logits of sinks: any of the right size.
  std::vector<float> head_values(fields.num_q_heads);
  for (uint32_t h = 0; h < fields.num_q_heads; ++h)
    head_values[h] = static_cast<float>(std::exp2(-8.0 * (h + 1) / fields.num_q_heads));
  head_values_ = DeviceMemory(runtime_, device, head_values.size() * sizeof(float));
  rows_.upload_plain(head_values_, std::span<const float>(head_values));

  q_rows_ = rows_of(q_, tokens, fields.num_q_heads, fields.head_size);
  k_rows_ = rows_of(k_, tokens, fields.num_kv_heads, fields.head_size);
  v_rows_ = rows_of(v_, tokens, fields.num_kv_heads, fields.head_size_v);
  out_rows_ = rows_of(out_, tokens, fields.num_q_heads, fields.head_size_v);
  head_rows_ = Tensor(head_values_.get(), ANYATTN_DTYPE_FLOAT32, {fields.num_q_heads}, device.kind, device.ordinal);

  store_args_.k = k_rows_;
  store_args_.v = v_rows_;
  forward_args_.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  forward_args_.stream = stream_.get();
  forward_args_.softmax_scale = point_.softmax_scale;
  forward_args_.q = q_rows_;
  forward_args_.cache = &cache_;
  forward_args_.out = out_rows_;
  const Problem& problem = point_.problem;
  if (problem.has(ANYATTN_FEATURE_SINKS)) forward_args_.sinks = head_rows_;
  if (problem.has(ANYATTN_FEATURE_ALIBI) || problem.has(ANYATTN_FEATURE_ALIBI_SQRT) ||
      problem.has(ANYATTN_FEATURE_ALIBI_SYMMETRIC))
    forward_args_.alibi_slopes = head_rows_;
}

// Decode: q as latent and rope parts, out latent. Prefill: every head has keys and values of its own, expanded from the latent.
void Workload::make_mla_args() {
  const anyattn_problem& fields = point_.problem.fields;
  const uint32_t heads = fields.num_q_heads, rank = fields.kv_lora_rank, rope = fields.qk_rope_head_dim;
  const uint64_t tokens = batch_.num_tokens;
  const auto rows = static_cast<int64_t>(tokens);
  const bool decode = part() == ANYATTN_PHASE_DECODE;
  const uint32_t q_size = decode ? rank : fields.qk_nope_head_dim + rope, k_size = decode ? rope : q_size,
                 out_size = decode ? rank : fields.v_head_dim;
  q_ = filled(tokens * heads * q_size, 3.0);
  k_ = filled(tokens * heads * k_size, 4.0);
  v_ = filled(tokens * std::max<uint64_t>(rank + rope, uint64_t{heads} * fields.v_head_dim), 5.0);
  out_ = filled(tokens * heads * out_size, 6.0);
  q_rows_ = rows_of(q_, rows, heads, q_size);
  k_rows_ = rows_of(k_, rows, heads, k_size);
  v_rows_ = rows_of(v_, rows, heads, fields.v_head_dim);
  out_rows_ = rows_of(out_, rows, heads, out_size);
  kv_c_rows_ = plain_rows(v_, rows, rank);
  k_pe_rows_ = plain_rows(k_, rows, rope);
  store_args_.kv_c = kv_c_rows_;
  store_args_.k_pe = k_pe_rows_;

  mqa_args_.struct_size = ANYATTN_MQA_ARGS_SIZE;
  mqa_args_.stream = mha_args_.stream = stream_.get();
  mqa_args_.softmax_scale = point_.softmax_scale;
  mqa_args_.q_latent = q_rows_;
  mqa_args_.q_pe = k_rows_;
  mqa_args_.cache = &cache_;
  mqa_args_.out = out_rows_;
  mha_args_.struct_size = ANYATTN_MHA_ARGS_SIZE;
  mha_args_.softmax_scale = point_.softmax_scale;
  mha_args_.num_reqs = point_.num_reqs;
  mha_args_.causal = 1;
  mha_args_.max_query_len = mha_args_.max_key_len = point_.query_len;
  mha_args_.query_start_loc = mha_args_.key_start_loc = batch_.query_start_loc;
  mha_args_.q = q_rows_;
  mha_args_.k = k_rows_;
  mha_args_.v = v_rows_;
  mha_args_.out = out_rows_;
}

double Workload::bytes_a_key() const { return static_cast<double>(info_.spec->block_bytes) / info_.block_size; }

uint32_t Workload::part() const {
  if (info_.needs_split == 0) return ANYATTN_PHASE_BOTH;
  return point_.query_len <= info_.decode_threshold ? ANYATTN_PHASE_DECODE : ANYATTN_PHASE_PREFILL;
}

void Workload::update() { group_.update(part(), batch_, stream_.get()); }

void Workload::store() { group_.kv_cache_update(store_args_); }

void Workload::call() {
  if (!info_.is_mla) return group_.forward(part(), forward_args_);
  if (part() == ANYATTN_PHASE_DECODE) return group_.forward_mqa(mqa_args_);
  group_.forward_mha(mha_args_);
}

void Workload::queue() {
  cache_.base = arena_.data() + next_cache_ * cache_bytes();
  if (++next_cache_ == num_caches_) next_cache_ = 0;
  call();
}

void Workload::forward() {
  queue();
  if (!on_cpu()) runtime_.synchronize(rows_.device(), stream_.get());
}

}  // namespace anyattn::tools::bench
