// SPDX-License-Identifier: Apache-2.0
// Checks of one step's batch and of one call's args that do not depend on the kernels: limits, scale, scratch, log-sum-exp, the
// parts of a merge. Included by plugins. Every function throws anyattn::Error with one sentence; none reads device memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "anyattn/attention.h"
#include "anyattn/backend.hpp"
#include "anyattn/tensor_view.hpp"

namespace anyattn {

// What of a batch depends on the problem.
struct BatchRules {
  bool ragged = false, per_request_causal = false, mm_prefix = false;
};

// Counts within the limits, arrays there where the problem needs them (null where no request is). Contents are not read.
inline void check_batch(const anyattn_batch& batch, const anyattn_limits& limits, const BatchRules& rules) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (batch.num_reqs > limits.max_num_reqs)
    throw Error(kWrong, "batch.num_reqs ", batch.num_reqs, "; allowed: up to max_num_reqs ", limits.max_num_reqs);
  if (batch.num_tokens > limits.max_num_tokens)
    throw Error(kWrong, "batch.num_tokens ", batch.num_tokens, "; allowed: up to max_num_tokens ", limits.max_num_tokens);
  if (batch.num_reqs == 0) return;
  if (!batch.query_start_loc || !batch.seq_lens) throw Error(kWrong, "batch.query_start_loc or seq_lens is null");
  if (rules.ragged && !batch.key_start_loc) throw Error(kWrong, "batch.key_start_loc is null; needed where keys are ragged");
  if (!rules.ragged && !batch.block_table) throw Error(kWrong, "batch.block_table is null; needed where keys are paged");
  if (rules.per_request_causal != (batch.causal != nullptr))
    throw Error(kWrong, "batch.causal is ", batch.causal ? "set" : "null", "; needed exactly with per_request_causal");
  if (rules.mm_prefix ? !batch.mm_prefix_start_loc : batch.mm_prefix_start_loc || batch.mm_prefix_ranges)
    throw Error(kWrong, "batch.mm_prefix_start_loc is ", rules.mm_prefix ? "null" : "set", "; needed exactly with mm_prefix");
}

inline void check_softmax_scale(double softmax_scale) {
  if (!(softmax_scale > 0) || !std::isfinite(softmax_scale))
    throw Error(ANYATTN_INVALID_ARGUMENT, "softmax_scale ", softmax_scale, "; needed: above 0");
}

// Scratch that is needed is there; what is there is aligned to 256 bytes.
inline void check_scratch_block(const void* scratch, uint64_t needed_bytes) {
  if (needed_bytes > 0 && !scratch) throw Error(ANYATTN_INVALID_ARGUMENT, "scratch is null; needed: ", needed_bytes, " bytes");
  if (reinterpret_cast<uintptr_t>(scratch) % 256 != 0)
    throw Error(ANYATTN_INVALID_ARGUMENT, "scratch is ", reinterpret_cast<uintptr_t>(scratch) % 256,
                " bytes past a multiple of 256");
}

// Rows that are read or written 16 bytes at a time: strides and first element on multiples of 16, strides not negative.
inline void check_wide_rows(const RawView<3>& view, const char* name) {
  for (int dim = 0; dim < 2; ++dim) {
    const int64_t stride = view.stride_bytes[static_cast<size_t>(dim)];
    if (view.shape[static_cast<size_t>(dim)] > 1 && (stride % 16 != 0 || stride < 0))
      throw Error(ANYATTN_INVALID_ARGUMENT, name, ": stride of ", stride, " bytes of dim ", dim,
                  "; needed: a multiple of 16, 0 or more");
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0)
    throw Error(ANYATTN_INVALID_ARGUMENT, name, ": byte_offset leaves the first element ",
                reinterpret_cast<uintptr_t>(view.data) % 16, " bytes past a multiple of 16");
}

// [num_heads] f32, dense.
inline const float* read_per_head(const anyattn_tensor& tensor, const char* name, int64_t num_heads) {
  return TensorView<const float, 1>(tensor, {.name = name, .shape = {num_heads}}).data();
}

// From a logarithm in this base to the natural one.
inline double natural_factor(uint32_t base, const char* name) {
  if (base == ANYATTN_LSE_NATURAL) return 1.0;
  if (base == ANYATTN_LSE_BASE2) return 0.69314718055994530942;
  throw Error(ANYATTN_INVALID_ARGUMENT, name, " ", base, "; allowed: ", ANYATTN_LSE_NATURAL, " (natural), ", ANYATTN_LSE_BASE2,
              " (base 2)");
}

// Where a call's log-sum-exp goes.
struct LseOut {
  float* data = nullptr;  // null: not wanted
  int64_t token_stride = 0, head_stride = 0;
  double factor = 1.0;  // times the natural logarithm
};

// lse may be absent; given without the LSE feature it is refused.
inline LseOut read_lse(bool has_feature, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens, int64_t num_heads) {
  if (!lse.data) return {};
  if (!has_feature) throw Error(ANYATTN_INVALID_ARGUMENT, "lse is given; the problem does not carry the lse feature");
  const double factor = 1.0 / natural_factor(lse_base, "lse_base");
  const TensorView<float, 2> out(lse, {.name = "lse", .shape = {tokens, num_heads}, .rows_at_least = true});
  return {out.data(), out.stride(0), out.stride(1), factor};
}

// The checked args of merge_states. Hands every state to add(index, its out, its lse, natural_factor of its base).
struct MergeOut {
  RawView<3> out;  // [tokens, num_heads, any head size], one of the three float dtypes
  LseOut lse;
};

inline RawView<3> read_float_rows(const anyattn_tensor& tensor, const char* name, const std::array<int64_t, 3>& shape) {
  RawView<3> rows = view<3>(tensor, {.name = name, .shape = shape});
  if (rows.dtype != ANYATTN_DTYPE_FLOAT32 && rows.dtype != ANYATTN_DTYPE_FLOAT16 && rows.dtype != ANYATTN_DTYPE_BFLOAT16)
    throw Error(ANYATTN_INVALID_ARGUMENT, name, ": dtype ", dtype_name(rows.dtype), "; needed: float32, float16 or bfloat16");
  return rows;
}

template <class Add>
MergeOut read_merge(const anyattn_merge_args& args, int64_t num_heads, uint32_t max_states, Add&& add) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (args.num_states == 0 || args.num_states > max_states)
    throw Error(kWrong, "num_states ", args.num_states, "; allowed: 1 to ", max_states);
  if (!args.states) throw Error(kWrong, "states is null");
  MergeOut to{read_float_rows(args.out, "out", {kAnySize, num_heads, kAnySize}), {}};
  const int64_t tokens = to.out.shape[0];
  to.lse = read_lse(true, args.lse, args.lse_base, tokens, num_heads);
  uint32_t dtype = ANYATTN_DTYPE_NONE;
  for (uint32_t i = 0; i < args.num_states; ++i) {
    const Received state(
        reinterpret_cast<const anyattn_state*>(reinterpret_cast<const char*>(args.states) + size_t{i} * args.state_stride),
        ANYATTN_STATE_SIZE, "a state");
    const RawView<3> part = read_float_rows(state->out, "a state's out", {tokens, num_heads, to.out.shape[2]});
    if (i > 0 && part.dtype != dtype)
      throw Error(kWrong, "states have dtypes ", dtype_name(dtype), " and ", dtype_name(part.dtype), "; needed: one dtype");
    dtype = part.dtype;
    const TensorView<const float, 2> lse(state->lse,
                                         {.name = "a state's lse", .shape = {tokens, num_heads}, .rows_at_least = true});
    add(i, part, lse, natural_factor(state->lse_base, "a state's lse_base"));
  }
  return to;
}

// Hands out pieces of one block of memory, each aligned to 256 bytes; counts only where the block is null.
class Carver {
 public:
  explicit Carver(void* block) : base_(static_cast<char*>(block)) {}
  template <class T>
  T* take(uint64_t count) {
    char* at = base_ ? base_ + used_ : nullptr;
    used_ += (count * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T*>(at);
  }
  uint64_t used() const { return used_; }

 private:
  char* base_;
  uint64_t used_ = 0;
};

}  // namespace anyattn
