// SPDX-License-Identifier: Apache-2.0
#include "attn.h"

#include "anyattn/tensor_view.hpp"
#include "call.h"

namespace anyattn::portable {

void PortableAttn::supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                            Reasons& reasons, anyattn_support_report& report) {
  Plan plan;
  if (choose_plan(Family::kPlain, host, facts, problem, reasons, plan)) fill_report(plan, report);
}

void PortableAttn::kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                                 const SpecSink& accept) {
  const Plan plan = require_plan(Family::kPlain, host, facts, problem);
  if (plan.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "ragged keys have no cache spec");
  give_format_specs(*plan.format, cache_sizes(plan), accept);
}

PortableAttn::PortableAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                           const anyattn_kv_cache_spec* spec)
    : host_(host), plan_(require_plan(Family::kPlain, host, facts, problem)), kernels_(host, facts, plan_.main) {
  if (!plan_.ragged) layout_ = read_format_spec(*plan_.format, cache_sizes(plan_), spec);
}

void PortableAttn::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(host_, plan_.main);
  memory.persistent_bytes = Worklist::persistent_bytes(plan_, limits);
}

uint32_t PortableAttn::warmup(const anyattn_limits& limits, void*, void*) {
  const bool loaded = kernels_.prepare(lanes_for(plan_.main, limits.max_query_len));
  return kTargetDevice == ANYATTN_DEVICE_CPU || !loaded ? ANYATTN_GRAPH_NEVER : ANYATTN_GRAPH_ALWAYS;
}

void PortableAttn::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  if (plan_.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "the problem's keys are ragged: there is no cache to update");
  const TensorView<const int64_t, 1> slots(args.slot_mapping, {.name = "slot_mapping", .shape = {kAnySize}});
  const int64_t tokens = slots.shape(0);
  if (tokens == 0) return;
  const anyattn_cache cache = read_cache(layout_, args.cache);
  const auto k = view<3>(args.k, {"k", plan_.dtype, {tokens, plan_.num_kv_heads, plan_.head_size}, true});
  const auto v = view<3>(args.v, {"v", plan_.dtype, {tokens, plan_.num_kv_heads, plan_.head_size_v}, true});
  check_wide_rows(k, "k");
  if (plan_.head_size_v * dtype_bytes(plan_.dtype) % 16 == 0) check_wide_rows(v, "v");
  StoreArgs to{};
  to.from[0] = rows_of(k);
  to.from[1] = rows_of(v);
  to.to[0] = plane_rows(cache, layout_.k);
  to.to[1] = plane_rows(cache, layout_.v);
  to.scales[0] = call_scale(args.k_scale, "k_scale", plan_);
  to.scales[1] = call_scale(args.v_scale, "v_scale", plan_);
  to.scale_stride = scale_stride(plan_);
  to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  to.num_blocks = cache.num_blocks;
  to.slots = slots.data();
  kernels_.store(to, counted(tokens, "kv_cache_update", "tokens"), args.stream);
}

void PortableAttn::forward(const Metadata& metadata, const anyattn_forward_args& args) {
  const int64_t tokens = metadata.ready_tokens();
  if (tokens == 0) return;
  AttendArgs to = common_args(args.softmax_scale, args.scratch, scratch_bytes(host_, plan_.main));
  const auto q = view<3>(args.q, {"q", plan_.dtype, {tokens, plan_.num_q_heads, plan_.head_size}, true});
  check_wide_rows(q, "q");
  to.q[0] = rows_of(q);
  set_out(to, view<3>(args.out, {"out", plan_.out_dtype, {tokens, plan_.num_q_heads, plan_.head_size_v}, true}));
  set_lse(to, plan_, args.lse, args.lse_base, tokens);
  if (plan_.has(ANYATTN_FEATURE_OUT_SCALE)) to.out_scale = read_per_head(args.out_scale, "out_scale", 1);
  if (plan_.has(ANYATTN_FEATURE_SINKS)) to.sinks = read_per_head(args.sinks, "sinks", plan_.num_q_heads);
  if (plan_.main.cfg.alibi != kAlibiNone) to.slopes = read_per_head(args.alibi_slopes, "alibi_slopes", plan_.num_q_heads);
  const bool wide_v = plan_.head_size_v * dtype_bytes(plan_.dtype) % 16 == 0;
  if (plan_.ragged) {
    const auto k = view<3>(args.k, {"k", plan_.dtype, {kAnySize, plan_.num_kv_heads, plan_.head_size}, true});
    const auto v = view<3>(args.v, {"v", plan_.dtype, {kAnySize, plan_.num_kv_heads, plan_.head_size_v}, true});
    check_wide_rows(k, "k");
    if (wide_v) check_wide_rows(v, "v");
    to.k = rows_of(k);
    to.v = rows_of(v);
  } else {
    const anyattn_cache cache = read_cache(layout_, args.cache);
    to.k = plane_rows(cache, layout_.k);
    to.v = plane_rows(cache, layout_.v);
    to.k_scales = call_scale(args.k_scale, "k_scale", plan_);
    to.v_scales = call_scale(args.v_scale, "v_scale", plan_);
    to.scale_stride = scale_stride(plan_);
    to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
    to.num_blocks = cache.num_blocks;
  }
  launch(plan_, kernels_, metadata, to, args.scratch, args.stream);
}

void PortableAttn::merge_states(const anyattn_merge_args& args) { portable::merge_states(plan_, kernels_, args); }

}  // namespace anyattn::portable
