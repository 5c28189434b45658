// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include "anyattn/call_checks.hpp"

namespace anyattn::cpu {
namespace {

char* bytes(const RawView<3>& view) { return reinterpret_cast<char*>(view.data); }

}  // namespace

int64_t check_ready(const Worklist& work) {
  if (!work.ready())
    throw Error(ANYATTN_INVALID_ARGUMENT, "the metadata holds no batch; needed: metadata_update before the call");
  return work.batch().num_tokens;
}

Call common_call(const Plan& plan, double softmax_scale, void* scratch) {
  check_softmax_scale(softmax_scale);
  check_scratch(scratch);
  Call call;
  call.scratch = scratch;
  call.unit.softmax_scale = static_cast<float>(softmax_scale);
  call.unit.value_scale = 1.f;
  call.unit.soft_cap = plan.soft_cap;
  call.unit.alibi = plan.alibi;
  call.unit.shard = plan.shard;
  call.unit.q_kind = plan.q_kind;
  call.unit.out_kind = plan.out_kind;
  call.unit.lse_factor = 1.f;
  return call;
}

void set_query(Call& call, int part, const RawView<3>& q) {
  call.unit.q[part] = bytes(q);
  call.unit.q_token_bytes[part] = q.stride_bytes[0];
  call.unit.q_head_bytes[part] = q.stride_bytes[1];
  call.unit.q_size[part] = static_cast<uint32_t>(q.shape[2]);
}

void set_out(Call& call, const Plan& plan, const RawView<3>& out) {
  call.unit.out = bytes(out);
  call.unit.out_token_bytes = out.stride_bytes[0];
  call.unit.out_head_bytes = out.stride_bytes[1];
  call.unit.out_kind = plan.out_kind;
  call.unit.head_size_v = static_cast<uint32_t>(out.shape[2]);
}

void set_lse(Call& call, const Plan& plan, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens) {
  const LseOut to = read_lse(plan.has(ANYATTN_FEATURE_LSE), lse, lse_base, tokens, plan.num_q_heads);
  call.unit.lse = to.data;
  call.unit.lse_token_stride = to.token_stride;
  call.unit.lse_head_stride = to.head_stride;
  call.unit.lse_factor = static_cast<float>(to.factor);
}

void set_paged(Call& call, const Plan& plan, const CacheLayout& layout, const anyattn_cache& cache) {
  KeySource& keys = call.unit.keys;
  call.unit.load_row = plan.load_row();
  const char* base = static_cast<const char*>(cache.base);
  keys.k = base + layout.k.byte_offset;
  keys.v = base + layout.v.byte_offset;
  keys.k_block_bytes = keys.v_block_bytes = static_cast<int64_t>(cache.block_stride_bytes);
  keys.k_token_bytes = layout.k.token_bytes;
  keys.v_token_bytes = layout.v.token_bytes;
  keys.num_blocks = cache.num_blocks;
  keys.block_size = layout.block_size;
  call.k_head_bytes = layout.k.head_bytes;
  call.v_head_bytes = layout.v.head_bytes;
}

const float* call_scale(const anyattn_tensor& tensor, const char* name, const Plan& plan) {
  if (!plan.scaled()) return nullptr;
  const int64_t count = plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) ? plan.num_kv_heads : 1;
  return TensorView<const float, 1>(tensor, {.name = name, .shape = {count}}).data();
}

void set_scales(Call& call, const Plan& plan, const anyattn_tensor& k_scale, const anyattn_tensor* v_scale) {
  call.k_scales = call_scale(k_scale, "k_scale", plan);
  call.v_scales = v_scale ? call_scale(*v_scale, "v_scale", plan) : call.k_scales;
  call.scale_stride = plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) ? 1 : 0;
}

void set_ragged(Call& call, const RawView<3>& k, const RawView<3>& v) {
  call.unit.keys.k = bytes(k);
  call.unit.keys.v = bytes(v);
  call.unit.keys.k_token_bytes = k.stride_bytes[0];
  call.unit.keys.v_token_bytes = v.stride_bytes[0];
  call.k_head_bytes = k.stride_bytes[1];
  call.v_head_bytes = v.stride_bytes[1];
}

}  // namespace anyattn::cpu
