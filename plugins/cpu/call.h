// SPDX-License-Identifier: Apache-2.0
// From checked tensors of a call's args to what its units share. Included by both backends.
#pragma once

#include "anyattn/call_checks.hpp"
#include "cache.h"
#include "run.h"

namespace anyattn::cpu {

// num_tokens of the metadata's batch; throws before its first good update.
int64_t check_ready(const Worklist& work);

// Scale, cap, bias, shard, dtypes and scratch.
Call common_call(const Plan& plan, double softmax_scale, void* scratch);

void set_query(Call& call, int part, const RawView<3>& q);
void set_out(Call& call, const Plan& plan, const RawView<3>& out);
// lse may be absent; given without the LSE feature it is refused.
void set_lse(Call& call, const Plan& plan, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens);
void set_paged(Call& call, const Plan& plan, const CacheLayout& layout, const anyattn_cache& cache);
// k_scale and, but for MLA, v_scale of the args, where the problem has them; MLA's values are the front of its keys.
void set_scales(Call& call, const Plan& plan, const anyattn_tensor& k_scale, const anyattn_tensor* v_scale);
// [1], with KV_SCALES_PER_HEAD [num_kv_heads] f32, dense; null where the problem has no scales.
const float* call_scale(const anyattn_tensor& tensor, const char* name, const Plan& plan);
void set_ragged(Call& call, const RawView<3>& k, const RawView<3>& v);

}  // namespace anyattn::cpu
