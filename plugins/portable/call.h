// SPDX-License-Identifier: Apache-2.0
// From checked tensors of a call's args to arguments of the kernels. Included by both backends.
#pragma once

#include "anyattn/call_checks.hpp"
#include "cache.h"
#include "worklist.h"

namespace anyattn::portable {

// Bytes of one call's scratch: the lanes' parts, then what the target itself needs.
uint64_t scratch_bytes(const Host& host, const Specialisation& spec);
float* parts_of(const Specialisation& spec, int lane, void* scratch);
void* workspace_of(const Specialisation& spec, void* scratch);

// A number of things as kernels and drivers count them; `call` is refused past 2^31 - 1 `what`.
int32_t counted(int64_t count, const char* call, const char* what);

Rows rows_of(const RawView<3>& view);
Rows rows_of(const RawView<2>& view);  // without heads

// Scale and scratch.
AttendArgs common_args(double softmax_scale, const void* scratch, uint64_t needed);
// lse may be absent; given without the LSE feature it is refused.
void set_lse(AttendArgs& args, const Plan& plan, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens);
// The out tensor. Four elements are stored at once, or two where a row is no multiple of four: rows start on so many.
void set_out(AttendArgs& args, const RawView<3>& out);
// The call's scale of K or V, or one a kv head: device memory; null where the problem has none.
const float* call_scale(const anyattn_tensor& tensor, const char* name, const Plan& plan);
int32_t scale_stride(const Plan& plan);
// Both launches of every lane in use.
void launch(const Plan& plan, const Kernels& kernels, const Worklist& work, AttendArgs args, void* scratch, void* stream);

void merge_states(const Plan& plan, const Kernels& kernels, const anyattn_merge_args& args);

}  // namespace anyattn::portable
