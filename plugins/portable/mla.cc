// SPDX-License-Identifier: Apache-2.0
#include "mla.h"

#include <algorithm>

#include "anyattn/tensor_view.hpp"
#include "call.h"

namespace anyattn::portable {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

// Rows a request may have and still be decode: as CPU_MLA, for the same reason (mla.cc there).
constexpr uint32_t kDecodeThreshold = 8;

Rows wide_rows(const RawView<2>& view, const char* name) {
  if (view.shape[0] > 1 && view.stride_bytes[0] % 16 != 0)
    throw Error(kWrong, name, ": stride of ", view.stride_bytes[0], " bytes of dim 0; needed: a multiple of 16");
  return rows_of(view);
}

}  // namespace

void PortableMla::supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                           Reasons& reasons, anyattn_support_report& report) {
  Plan plan;
  if (!choose_plan(Family::kMla, host, facts, problem, reasons, plan)) return;
  fill_report(plan, report);
  report.decode_threshold = kDecodeThreshold;
}

void PortableMla::kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                                const SpecSink& accept) {
  const Plan plan = require_plan(Family::kMla, host, facts, problem);
  give_latent_spec(*plan.format, cache_sizes(plan), accept);
}

PortableMla::PortableMla(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                         const anyattn_kv_cache_spec* spec)
    : host_(host),
      plan_(require_plan(Family::kMla, host, facts, problem)),
      kernels_(host, facts, plan_.main),
      mha_kernels_(host, facts, plan_.mha),
      layout_(read_latent_spec(*plan_.format, cache_sizes(plan_), spec)) {}

void PortableMla::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = std::max(scratch_bytes(host_, plan_.main), scratch_bytes(host_, plan_.mha));
  memory.persistent_bytes = Worklist::persistent_bytes(plan_, limits);
}

uint32_t PortableMla::warmup(const anyattn_limits& limits, void*, void*) {
  const int lanes = lanes_for(plan_.main, limits.max_query_len);
  kernels_.begin(lanes);
  mha_kernels_.begin(plan_.mha.num_lanes);
  const bool loaded = kernels_.prepare(lanes) && mha_kernels_.prepare(plan_.mha.num_lanes);
  return kTargetDevice == ANYATTN_DEVICE_CPU || !loaded ? ANYATTN_GRAPH_NEVER : ANYATTN_GRAPH_ALWAYS;
}

void PortableMla::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  const TensorView<const int64_t, 1> slots(args.slot_mapping, {.name = "slot_mapping", .shape = {kAnySize}});
  const int64_t tokens = slots.shape(0);
  if (tokens == 0) return;
  const anyattn_cache cache = read_cache(layout_, args.cache);
  StoreArgs to{};
  to.from[0] = wide_rows(view<2>(args.kv_c, {"kv_c", plan_.dtype, {tokens, plan_.kv_lora_rank}, true}), "kv_c");
  to.from[1] = wide_rows(view<2>(args.k_pe, {"k_pe", plan_.dtype, {tokens, plan_.rope}, true}), "k_pe");
  to.to[0] = to.to[1] = plane_rows(cache, layout_.k);
  if (plan_.format->coding != Coding::kRecord)  // a record's parts know their places
    to.to[1].data += int64_t{plan_.kv_lora_rank} * dtype_bytes(plan_.format->dtype);
  to.scales[0] = to.scales[1] = call_scale(args.k_scale, "k_scale", plan_);
  to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  to.num_blocks = cache.num_blocks;
  to.slots = slots.data();
  kernels_.store(to, counted(tokens, "kv_cache_update", "tokens"), args.stream);
}

void PortableMla::forward_mqa(const Metadata& metadata, const anyattn_mqa_args& args) {
  const int64_t tokens = metadata.ready_tokens();
  if (tokens == 0) throw Error(kWrong, "forward_mqa without decode rows: the metadata's batch has no token");
  AttendArgs to = common_args(args.softmax_scale, args.scratch, scratch_bytes(host_, plan_.main));
  const auto latent = view<3>(args.q_latent, {"q_latent", plan_.dtype, {tokens, plan_.num_q_heads, plan_.kv_lora_rank}, true});
  const auto rope = view<3>(args.q_pe, {"q_pe", plan_.dtype, {tokens, plan_.num_q_heads, plan_.rope}, true});
  check_wide_rows(latent, "q_latent");
  check_wide_rows(rope, "q_pe");
  to.q[0] = rows_of(latent);
  to.q[1] = rows_of(rope);
  set_out(to, view<3>(args.out, {"out", plan_.out_dtype, {tokens, plan_.num_q_heads, plan_.kv_lora_rank}, true}));
  set_lse(to, plan_, args.lse, args.lse_base, tokens);
  const anyattn_cache cache = read_cache(layout_, args.cache);
  to.k = to.v = plane_rows(cache, layout_.k);
  to.k_scales = to.v_scales = call_scale(args.k_scale, "k_scale", plan_);
  to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  to.num_blocks = cache.num_blocks;
  launch(plan_, kernels_, metadata, to, args.scratch, args.stream);
}

void PortableMla::context_gather(const Metadata& metadata, const anyattn_context_chunk& chunk,
                                 const anyattn_context_gather_args& args) {
  metadata.ready_tokens();
  if (chunk.num_reqs != metadata.batch().num_reqs)
    throw Error(kWrong, "chunk.num_reqs ", chunk.num_reqs, "; needed: the ", metadata.batch().num_reqs,
                " of the metadata's batch");
  if (chunk.num_rows == 0) return;
  if (!chunk.row_start_loc || !chunk.context_start) throw Error(kWrong, "chunk.row_start_loc or context_start is null");
  const anyattn_cache cache = read_cache(layout_, args.cache);
  const int64_t rows = chunk.num_rows;
  GatherArgs to{};
  to.kept = metadata.kept();
  to.row_start = chunk.row_start_loc;
  to.context_start = chunk.context_start;
  to.to[0] = wide_rows(view<2>(args.kv_c, {"kv_c", plan_.dtype, {rows, plan_.kv_lora_rank}, true}), "kv_c");
  to.to[1] = wide_rows(view<2>(args.k_pe, {"k_pe", plan_.dtype, {rows, plan_.rope}, true}), "k_pe");
  to.scale = call_scale(args.k_scale, "k_scale", plan_);
  to.from = plane_rows(cache, layout_.k);
  to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  to.num_blocks = cache.num_blocks;
  to.num_reqs = static_cast<int32_t>(chunk.num_reqs);
  kernels_.gather(to, counted(rows, "context_gather", "rows"), args.stream);
}

void PortableMla::forward_mha(const anyattn_mha_args& args) {
  if (args.num_reqs > 0 && (!args.query_start_loc || !args.key_start_loc))
    throw Error(kWrong, "query_start_loc or key_start_loc is null");
  if (args.causal > 1) throw Error(kWrong, "causal ", args.causal, "; allowed: 0, 1");
  AttendArgs to = common_args(args.softmax_scale, args.scratch, scratch_bytes(host_, plan_.mha));
  const uint32_t head = plan_.mha_head_size, head_v = plan_.mha_head_size_v;
  const auto q = view<3>(args.q, {"q", plan_.dtype, {kAnySize, plan_.num_q_heads, head}});
  if (q.shape[0] == 0) return;
  const auto k = view<3>(args.k, {"k", plan_.dtype, {kAnySize, plan_.num_q_heads, head}});
  const auto v = view<3>(args.v, {"v", plan_.dtype, {kAnySize, plan_.num_q_heads, head_v}});
  check_wide_rows(q, "q");
  check_wide_rows(k, "k");
  if (head_v * dtype_bytes(plan_.dtype) % 16 == 0) check_wide_rows(v, "v");
  to.q[0] = rows_of(q);
  to.k = rows_of(k);
  to.v = rows_of(v);
  set_out(to, view<3>(args.out, {"out", plan_.out_dtype, {q.shape[0], plan_.num_q_heads, head_v}, true}));
  set_lse(to, plan_, args.lse, args.lse_base, q.shape[0]);
  const Tile& tile = plan_.mha.lanes[0];
  to.batch.query_start_loc = args.query_start_loc;
  to.batch.key_start_loc = args.key_start_loc;
  constexpr const char* kCall = "forward_mha";
  to.batch.num_reqs = counted(args.num_reqs, kCall, "requests");
  to.batch.num_tokens = counted(q.shape[0], kCall, "tokens");
  to.causal = static_cast<int32_t>(args.causal);
  to.blocks_per_req = counted((int64_t{args.max_query_len} + tile.tokens - 1) / tile.tokens, kCall, "blocks of rows");
  const int blocks = counted(int64_t{to.blocks_per_req} * args.num_reqs, kCall, "blocks of rows");
  // One more program clears rows past the last request.
  const int programs = counted(int64_t{blocks} * tile.head_units + 1, kCall, "programs");
  mha_kernels_.direct(0, to, programs, workspace_of(plan_.mha, args.scratch), args.stream);
}

void PortableMla::merge_states(const anyattn_merge_args& args) { portable::merge_states(plan_, kernels_, args); }

}  // namespace anyattn::portable
