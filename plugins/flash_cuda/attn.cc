// SPDX-License-Identifier: Apache-2.0
#include "attn.h"

#include "anyattn/call_checks.hpp"
#include "cuda_common/memory.h"

namespace anyattn::flash {
namespace {

// The stride of a single row or head means nothing, but bulk copies want a multiple of 16.
Rows rows_of(const RawView<3>& view) {
  const auto stride = [&](size_t dim) { return view.shape[dim] > 1 ? view.stride_bytes[dim] : 16; };
  return {reinterpret_cast<char*>(view.data), stride(0), stride(1)};
}

Rows rows_of(const anyattn_cache& cache, const PlaneLayout& plane) {
  return {static_cast<char*>(cache.base) + plane.byte_offset, plane.token_bytes, plane.head_bytes};
}

}  // namespace

void FlashAttn::supports(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem, Reasons& reasons,
                         anyattn_support_report& report) {
  Plan plan;
  if (choose_plan(host, facts, problem, reasons, plan)) fill_report(plan, report);
}

void FlashAttn::kv_cache_spec(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                              const SpecSink& accept) {
  const Plan plan = require_plan(host, facts, problem);
  if (plan.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "ragged keys have no cache spec");
  give_plain_specs(plan.cache, accept);
}

FlashAttn::FlashAttn(const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                     const anyattn_kv_cache_spec* spec)
    : plan_(require_plan(host, facts, problem)) {
  if (!plan_.ragged) {
    layout_ = read_plain_spec(plan_.cache, spec);
    plan_.problem.head_major = layout_.k.token_bytes <= layout_.k.head_bytes || plan_.problem.num_kv_heads == 1;
    choose_families(host, plan_);
  }
  host.log(ANYATTN_LOG_DEBUG, text(kName, ": kernels ", describe_kernels(plan_), "; ", describe_cascade(plan_)));
}

void FlashAttn::memory(const anyattn_limits& limits, anyattn_memory& memory) const {
  memory.scratch_bytes = scratch_bytes(plan_, limits);
  memory.persistent_bytes = StepMetadata::persistent_bytes(plan_, limits);
}

uint32_t FlashAttn::warmup(const anyattn_limits& limits, void*, void*) {
  for (int i = 0; i < plan_.num_lanes; ++i) plan_.families[i]->prepare(plan_.lane(i, limits_of(limits)));
  if (plan_.cascade) plan_.cascade->prepare(plan_.cascade_lane(limits_of(limits)));
  return ANYATTN_GRAPH_ALWAYS;
}

// Null where the problem has no scales.
const float* FlashAttn::scale(const anyattn_tensor& tensor, const char* name) const {
  if (plan_.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD)) return read_per_head(tensor, name, plan_.problem.num_kv_heads);
  return plan_.has(ANYATTN_FEATURE_KV_SCALES) ? read_per_head(tensor, name, 1) : nullptr;
}

void FlashAttn::kv_cache_update(const anyattn_kv_cache_update_args& args) {
  if (plan_.ragged) throw Error(ANYATTN_INVALID_ARGUMENT, "the problem's keys are ragged: there is no cache to update");
  const TensorView<const int64_t, 1> slots(args.slot_mapping, {.name = "slot_mapping", .shape = {kAnySize}});
  const int64_t tokens = slots.shape(0);
  if (tokens == 0) return;
  const anyattn_cache cache = read_cache(layout_, args.cache);
  cuda::Store to{};
  const auto add = [&](int i, const anyattn_tensor& tensor, const char* name, uint32_t head_size, const PlaneLayout& plane,
                       const float* scales) {
    const auto rows = view<3>(tensor, {name, plan_.new_kv_dtype, {tokens, plan_.cache.num_kv_heads, head_size}, true});
    check_wide_rows(rows, name);
    to.rows[i] = {reinterpret_cast<const char*>(rows.data),
                  rows.stride_bytes[0],
                  rows.stride_bytes[1],
                  static_cast<int64_t>(plane.byte_offset),
                  plane.token_bytes,
                  plane.head_bytes,
                  plan_.problem.num_kv_heads,
                  static_cast<int32_t>(head_size),
                  scales};
  };
  add(0, args.k, "k", plan_.cache.head_size, layout_.k, scale(args.k_scale, "k_scale"));
  add(1, args.v, "v", plan_.cache.head_size_v, layout_.v, scale(args.v_scale, "v_scale"));
  to.base = static_cast<char*>(cache.base);
  to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  to.num_blocks = cache.num_blocks;
  to.slots = slots.data();
  to.num_tokens = static_cast<int32_t>(tokens);
  to.block_size = plan_.problem.block_size;
  to.dtype = plan_.new_kv_dtype;
  to.to_e4m3 = plan_.problem.kv_dtype == kE4M3;
  to.scales_per_head = plan_.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  cuda::store_rows(to, args.stream);
}

void FlashAttn::forward(const Metadata& metadata, const anyattn_forward_args& args) {
  const int64_t tokens = metadata.ready_tokens();
  if (tokens == 0) return;
  check_softmax_scale(args.softmax_scale);
  check_scratch_block(args.scratch, metadata.scratch_bytes());
  const Problem& problem = plan_.problem;
  Forward to{};
  to.scratch = args.scratch;
  to.softmax_scale = static_cast<float>(args.softmax_scale);
  const auto q = view<3>(args.q, {"q", plan_.q_dtype, {tokens, problem.num_q_heads, problem.head_size}, true});
  check_wide_rows(q, "q");
  to.q = rows_of(q);
  to.num_tokens = q.shape[0];
  const auto out = view<3>(args.out, {"out", plan_.out_dtype, {tokens, problem.num_q_heads, problem.head_size_v}, true});
  check_wide_rows(out, "out");
  to.out = rows_of(out);
  const LseOut lse = read_lse(problem.lse != 0, args.lse, args.lse_base, tokens, problem.num_q_heads);
  to.lse = lse.data;
  to.lse_token_stride = lse.token_stride;
  to.lse_head_stride = lse.head_stride;
  to.lse_factor = static_cast<float>(lse.factor);
  if (plan_.quantised_query()) {
    to.q_scales_per_head = args.q_scale.ndim == 1 && args.q_scale.shape != nullptr && args.q_scale.shape[0] != 1;
    to.q_scale = read_per_head(args.q_scale, "q_scale", to.q_scales_per_head ? problem.num_kv_heads : 1);
  }
  if (problem.sinks) to.sinks = read_per_head(args.sinks, "sinks", problem.num_q_heads);
  if (problem.alibi != kAlibiNone) to.slopes = read_per_head(args.alibi_slopes, "alibi_slopes", problem.num_q_heads);
  if (plan_.ragged) {
    const auto k = view<3>(args.k, {"k", plan_.q_dtype, {kAnySize, problem.num_kv_heads, problem.head_size}, true});
    const auto v = view<3>(args.v, {"v", plan_.q_dtype, {kAnySize, problem.num_kv_heads, problem.head_size_v}, true});
    check_wide_rows(k, "k");
    check_wide_rows(v, "v");
    to.k = rows_of(k);
    to.v = rows_of(v);
    to.num_keys = std::min(k.shape[0], v.shape[0]);
  } else {
    const anyattn_cache cache = read_cache(layout_, args.cache);
    to.k = rows_of(cache, layout_.k);
    to.v = rows_of(cache, layout_.v);
    to.block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
    to.num_blocks = cache.num_blocks;
    to.k_scale = scale(args.k_scale, "k_scale");
    to.v_scale = scale(args.v_scale, "v_scale");
    to.scales_per_head = plan_.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD);
  }
  metadata.forward(to, args.stream);
}

void FlashAttn::merge_states(const anyattn_merge_args& args) {
  cuda::Merge to{};
  const auto add = [&](uint32_t i, const RawView<3>& part, const TensorView<const float, 2>& lse, double to_natural) {
    to.dtype = part.dtype;
    to.states[i] = {reinterpret_cast<const char*>(part.data),
                    part.stride_bytes[0],
                    part.stride_bytes[1],
                    lse.data(),
                    lse.stride(0),
                    lse.stride(1),
                    to_natural};
  };
  const auto [out, lse] = read_merge(args, plan_.problem.num_q_heads, cuda::kMaxStates, add);
  to.num_states = static_cast<int32_t>(args.num_states);
  to.out_dtype = out.dtype;
  to.num_tokens = static_cast<int32_t>(out.shape[0]);
  to.num_heads = plan_.problem.num_q_heads;
  to.head_size = static_cast<int32_t>(out.shape[2]);
  to.out = reinterpret_cast<char*>(out.data);
  to.token_bytes = out.stride_bytes[0];
  to.head_bytes = out.stride_bytes[1];
  to.lse = lse.data;
  to.lse_token_stride = lse.token_stride;
  to.lse_head_stride = lse.head_stride;
  to.from_natural = lse.factor;
  cuda::merge_states(to, args.stream);
}

}  // namespace anyattn::flash
