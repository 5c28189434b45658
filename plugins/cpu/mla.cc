// SPDX-License-Identifier: Apache-2.0
#include "mla.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "anyattn/tensor_view.hpp"
#include "call.h"
#include "merge.h"
#include "run.h"

namespace anyattn::cpu {
namespace {

// Rows a request may have and still be decode: absorbed attention does about 4 times the products of the expanded form, but
// needs no expansion of the context, which costs the engine more up to about this many rows.
constexpr uint32_t kDecodeThreshold = 8;

// [tokens, size] as [tokens, 1, size].
RawView<3> with_head(const RawView<2>& rows) {
  return {rows.data, rows.dtype, {rows.shape[0], 1, rows.shape[1]}, {rows.stride_bytes[0], 0, rows.stride_bytes[1]}};
}

}  // namespace

void CpuMla::supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                      anyattn_support_report& report) {
  Plan plan;
  if (!choose_plan(Family::kMla, host, facts, problem, reasons, plan)) return;
  fill_report(plan, report);
  report.decode_threshold = kDecodeThreshold;
}

void CpuMla::kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                           const SpecSink& accept) {
  const Plan plan = require_plan(Family::kMla, host, facts, problem);
  give_latent_spec(*plan.format, cache_sizes(plan), accept);
}

CpuMla::CpuMla(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
               const anyattn_kv_cache_spec* spec)
    : host_(host),
      plan_(require_plan(Family::kMla, host, facts, problem)),
      layout_(read_latent_spec(*plan_.format, cache_sizes(plan_), spec)) {
  host_.log(ANYATTN_LOG_DEBUG, text(kName, ": kernels ", plan_.kernels->name));
}

void CpuMla::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = std::max(scratch_bytes(scratch_shape(plan_)), scratch_bytes(mha_scratch_shape(plan_)));
  memory.persistent_bytes = Worklist::persistent_bytes(plan_, limits);
}

uint32_t CpuMla::warmup(const anyattn_limits&, void*, void*) { return ANYATTN_GRAPH_NEVER; }

void CpuMla::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  const TensorView<const int64_t, 1> slots(args.slot_mapping, {.name = "slot_mapping", .shape = {kAnySize}});
  const int64_t tokens = slots.shape(0);
  if (tokens == 0) return;
  const anyattn_cache cache = read_cache(layout_, args.cache);
  const float* scale = call_scale(args.k_scale, "k_scale", plan_);
  const StoredRows rows[2] = {
      {with_head(view<2>(args.kv_c, {"kv_c", plan_.q_dtype, {tokens, plan_.kv_lora_rank}, true})), layout_.k, scale},
      {with_head(view<2>(args.k_pe, {"k_pe", plan_.q_dtype, {tokens, plan_.rope}, true})), layout_.k, scale,
       plan_.kv_lora_rank}};
  store_rows(host_, plan_, layout_, cache, rows, slots);
}

void CpuMla::forward_mqa(const Metadata& metadata, const anyattn_mqa_args& args) {
  const int64_t tokens = check_ready(metadata);
  if (tokens == 0) throw Error(ANYATTN_INVALID_ARGUMENT, "forward_mqa without decode rows: the metadata's batch has no token");
  Call call = common_call(plan_, args.softmax_scale, args.scratch);
  call.attend = plan_.attend();
  set_query(call, 0,
            view<3>(args.q_latent, {"q_latent", plan_.q_dtype, {tokens, plan_.num_q_heads, plan_.kv_lora_rank}, true}));
  set_query(call, 1, view<3>(args.q_pe, {"q_pe", plan_.q_dtype, {tokens, plan_.num_q_heads, plan_.rope}, true}));
  set_out(call, plan_, view<3>(args.out, {"out", plan_.out_dtype, {tokens, plan_.num_q_heads, plan_.kv_lora_rank}, true}));
  set_lse(call, plan_, args.lse, args.lse_base, tokens);
  set_paged(call, plan_, layout_, read_cache(layout_, args.cache));
  set_scales(call, plan_, args.k_scale, nullptr);
  run_worklist(host_, plan_, metadata, call);
}

void CpuMla::context_gather(const Metadata& metadata, const anyattn_context_chunk& chunk,
                            const anyattn_context_gather_args& args) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  check_ready(metadata);
  const anyattn_batch& batch = metadata.batch();
  if (chunk.num_reqs != batch.num_reqs)
    throw Error(kWrong, "chunk.num_reqs ", chunk.num_reqs, "; needed: the ", batch.num_reqs, " of the metadata's batch");
  if (chunk.num_rows == 0) return;
  if (!chunk.row_start_loc || !chunk.context_start) throw Error(kWrong, "chunk.row_start_loc or context_start is null");
  for (uint32_t r = 0; r < chunk.num_reqs; ++r) {
    const int64_t rows = chunk.row_start_loc[r + 1] - chunk.row_start_loc[r], start = chunk.context_start[r];
    if (rows < 0 || (rows > 0 && (start < 0 || start + rows > std::min<int64_t>(batch.seq_lens[r], metadata.table_room()))))
      throw Error(kWrong, "the chunk takes ", rows, " rows from position ", start, " of request ", r, ", which has ",
                  batch.seq_lens[r], " keys in a table row of ", metadata.table_room());
  }
  const int64_t rows = chunk.row_start_loc[chunk.num_reqs];
  if (chunk.row_start_loc[0] != 0 || rows > chunk.num_rows)
    throw Error(kWrong, "chunk.row_start_loc runs from ", chunk.row_start_loc[0], " to ", rows,
                "; needed: 0 to at most num_rows ", chunk.num_rows);
  const anyattn_cache cache = read_cache(layout_, args.cache);
  const auto kv_c = view<2>(args.kv_c, {"kv_c", plan_.q_dtype, {rows, plan_.kv_lora_rank}, true});
  const auto k_pe = view<2>(args.k_pe, {"k_pe", plan_.q_dtype, {rows, plan_.rope}, true});
  const char* base = static_cast<const char*>(cache.base) + layout_.k.byte_offset;
  const float* scale = call_scale(args.k_scale, "k_scale", plan_);
  std::atomic<int64_t> bad_request{-1};
  host_.parallel_for(static_cast<uint64_t>(rows), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    const int32_t* starts = chunk.row_start_loc;
    auto r = static_cast<uint32_t>(std::upper_bound(starts, starts + chunk.num_reqs, static_cast<int32_t>(begin)) - starts - 1);
    for (auto row = static_cast<int64_t>(begin); row < static_cast<int64_t>(end); ++row) {
      while (row >= starts[r + 1]) ++r;
      const int64_t position = chunk.context_start[r] + row - starts[r];
      const int64_t block = batch.block_table[r * batch.block_table_stride + position / layout_.block_size];
      if (block < 0 || static_cast<uint64_t>(block) >= cache.num_blocks) {
        bad_request.store(r, std::memory_order_relaxed);
        return;
      }
      const char* from = base + static_cast<uint64_t>(block) * cache.block_stride_bytes +
                         position % layout_.block_size * layout_.k.token_bytes;
      float values[kMaxHeadSize];
      plan_.kernels->load_row[rows_of(*plan_.format)](from, plan_.head_size, values);
      if (scale)
        for (uint32_t i = 0; i < plan_.head_size; ++i) values[i] *= *scale;
      const auto give = [&](std::byte* to, uint32_t first, uint32_t count) {
        plan_.kernels->convert(reinterpret_cast<char*>(to), plan_.q_kind, reinterpret_cast<const char*>(values + first), kF32,
                               count);
      };
      give(kv_c.at(row), 0, plan_.kv_lora_rank);
      give(k_pe.at(row), plan_.kv_lora_rank, plan_.rope);
    }
  });
  if (const int64_t r = bad_request.load(); r >= 0)
    throw Error(kWrong, "block_table row ", r, " has an entry that the chunk needs and that is not below num_blocks ",
                cache.num_blocks);
}

void CpuMla::forward_mha(const anyattn_mha_args& args) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (args.num_reqs > 0 && (!args.query_start_loc || !args.key_start_loc))
    throw Error(kWrong, "query_start_loc or key_start_loc is null");
  if (args.causal > 1) throw Error(kWrong, "causal ", args.causal, "; allowed: 0, 1");
  for (uint32_t r = 0; r < args.num_reqs; ++r)
    if (args.query_start_loc[r + 1] < args.query_start_loc[r] || args.key_start_loc[r + 1] < args.key_start_loc[r])
      throw Error(kWrong, "query_start_loc or key_start_loc decreases at request ", r);
  const int64_t tokens = args.num_reqs ? args.query_start_loc[args.num_reqs] : 0,
                keys = args.num_reqs ? args.key_start_loc[args.num_reqs] : 0;
  if (args.num_reqs && (args.query_start_loc[0] != 0 || args.key_start_loc[0] < 0))
    throw Error(kWrong, "query_start_loc starts at ", args.query_start_loc[0], ", key_start_loc at ", args.key_start_loc[0],
                "; needed: 0 and not below 0");
  const auto q = view<3>(args.q, {"q", plan_.q_dtype, {tokens, plan_.num_q_heads, plan_.mha_head_size}, true});
  Call call = common_call(plan_, args.softmax_scale, args.scratch);
  call.attend = plan_.attend_mha();
  set_query(call, 0, q);
  set_out(call, plan_,
          view<3>(args.out, {"out", plan_.out_dtype, {q.shape[0], plan_.num_q_heads, plan_.mha_head_size_v}, true}));
  set_lse(call, plan_, args.lse, args.lse_base, q.shape[0]);
  call.unit.shard = {1, 0, 1};
  if (keys > 0)
    set_ragged(call, view<3>(args.k, {"k", plan_.q_dtype, {keys, plan_.num_q_heads, plan_.mha_head_size}, true}),
               view<3>(args.v, {"v", plan_.q_dtype, {keys, plan_.num_q_heads, plan_.mha_head_size_v}, true}));
  run_mha(host_, plan_, {args.query_start_loc, args.key_start_loc, args.num_reqs, args.causal != 0, q.shape[0]}, call);
}

void CpuMla::merge_states(const anyattn_merge_args& args) { cpu::merge_states(host_, plan_, args); }

}  // namespace anyattn::cpu
