// SPDX-License-Identifier: Apache-2.0
#include "attn.h"

#include "anyattn/tensor_view.hpp"
#include "call.h"
#include "merge.h"
#include "run.h"

namespace anyattn::cpu {

void CpuAttn::supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                       anyattn_support_report& report) {
  Plan plan;
  if (choose_plan(Family::kPlain, host, facts, problem, reasons, plan)) fill_report(plan, report);
}

void CpuAttn::kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            const SpecSink& accept) {
  const Plan plan = require_plan(Family::kPlain, host, facts, problem);
  if (plan.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "ragged keys have no cache spec");
  give_format_specs(*plan.format, cache_sizes(plan), accept);
}

CpuAttn::CpuAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                 const anyattn_kv_cache_spec* spec)
    : host_(host), plan_(require_plan(Family::kPlain, host, facts, problem)) {
  if (!plan_.ragged) layout_ = read_format_spec(*plan_.format, cache_sizes(plan_), spec);
  host_.log(ANYATTN_LOG_DEBUG, text(kName, ": kernels ", plan_.kernels->name));
}

void CpuAttn::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(scratch_shape(plan_));
  memory.persistent_bytes = Worklist::persistent_bytes(plan_, limits);
}

uint32_t CpuAttn::warmup(const anyattn_limits&, void*, void*) { return ANYATTN_GRAPH_NEVER; }

void CpuAttn::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  if (plan_.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "the problem's keys are ragged: there is no cache to update");
  const TensorView<const int64_t, 1> slots(args.slot_mapping, {.name = "slot_mapping", .shape = {kAnySize}});
  const int64_t tokens = slots.shape(0);
  if (tokens == 0) return;
  const anyattn_cache cache = read_cache(layout_, args.cache);
  const StoredRows rows[2] = {{view<3>(args.k, {"k", plan_.q_dtype, {tokens, plan_.num_kv_heads, plan_.head_size}, true}),
                               layout_.k, call_scale(args.k_scale, "k_scale", plan_)},
                              {view<3>(args.v, {"v", plan_.q_dtype, {tokens, plan_.num_kv_heads, plan_.head_size_v}, true}),
                               layout_.v, call_scale(args.v_scale, "v_scale", plan_)}};
  store_rows(host_, plan_, layout_, cache, rows, slots);
}

void CpuAttn::forward(const Metadata& metadata, const anyattn_forward_args& args) {
  const int64_t tokens = check_ready(metadata);
  if (tokens == 0) return;
  Call call = common_call(plan_, args.softmax_scale, args.scratch);
  call.attend = plan_.attend();
  set_query(call, 0, view<3>(args.q, {"q", plan_.q_dtype, {tokens, plan_.num_q_heads, plan_.head_size}, true}));
  set_out(call, plan_, view<3>(args.out, {"out", plan_.out_dtype, {tokens, plan_.num_q_heads, plan_.head_size_v}, true}));
  set_lse(call, plan_, args.lse, args.lse_base, tokens);
  if (plan_.has(ANYATTN_FEATURE_OUT_SCALE)) call.unit.value_scale = 1.f / *read_per_head(args.out_scale, "out_scale", 1);
  if (plan_.has(ANYATTN_FEATURE_SINKS)) call.unit.sinks = read_per_head(args.sinks, "sinks", plan_.num_q_heads);
  if (plan_.alibi != kAlibiNone) call.unit.alibi_slopes = read_per_head(args.alibi_slopes, "alibi_slopes", plan_.num_q_heads);
  if (plan_.ragged) {
    const auto& batch = metadata.batch();
    const int64_t keys = batch.num_reqs ? batch.key_start_loc[batch.num_reqs] : 0;
    if (keys > 0)
      set_ragged(call, view<3>(args.k, {"k", plan_.q_dtype, {keys, plan_.num_kv_heads, plan_.head_size}, true}),
                 view<3>(args.v, {"v", plan_.q_dtype, {keys, plan_.num_kv_heads, plan_.head_size_v}, true}));
  } else {
    set_paged(call, plan_, layout_, read_cache(layout_, args.cache));
    set_scales(call, plan_, args.k_scale, &args.v_scale);
  }
  run_worklist(host_, plan_, metadata, call);
}

void CpuAttn::merge_states(const anyattn_merge_args& args) { cpu::merge_states(host_, plan_, args); }

}  // namespace anyattn::cpu
