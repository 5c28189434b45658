// SPDX-License-Identifier: Apache-2.0
#include "merge.h"

#include <array>
#include <cmath>
#include <limits>

#include "anyattn/backend.hpp"
#include "anyattn/tensor_view.hpp"

namespace anyattn::cpu {
namespace {

constexpr double kLn2 = 0.69314718055994530942;

double to_natural(uint32_t base, const char* name) {
  if (base == ANYATTN_LSE_NATURAL) return 1.0;
  if (base == ANYATTN_LSE_BASE2) return kLn2;
  throw Error(ANYATTN_INVALID_ARGUMENT, name, " ", base, "; allowed: ", ANYATTN_LSE_NATURAL, " (natural), ", ANYATTN_LSE_BASE2,
              " (base 2)");
}

struct Part {
  RawView<3> out;
  TensorView<const float, 2> lse;
  double factor;  // to the natural logarithm
};

RawView<3> float_view(const anyattn_tensor& tensor, const char* name, const std::array<int64_t, 3>& shape) {
  RawView<3> out = view<3>(tensor, {.name = name, .shape = shape});
  if (out.dtype != ANYATTN_DTYPE_FLOAT32 && out.dtype != ANYATTN_DTYPE_FLOAT16 && out.dtype != ANYATTN_DTYPE_BFLOAT16)
    throw Error(ANYATTN_INVALID_ARGUMENT, name, ": dtype ", dtype_name(out.dtype), "; needed: float32, float16 or bfloat16");
  return out;
}

}  // namespace

void merge_states(const Host& host, const Plan& plan, const anyattn_merge_args& args) {
  if (args.num_states == 0 || args.num_states > kMaxStates)
    throw Error(ANYATTN_INVALID_ARGUMENT, "num_states ", args.num_states, "; allowed: 1 to ", kMaxStates);
  if (!args.states) throw Error(ANYATTN_INVALID_ARGUMENT, "states is null");
  const RawView<3> out = float_view(args.out, "out", {kAnySize, plan.num_q_heads, kAnySize});
  const int64_t tokens = out.shape[0];
  TensorView<float, 2> lse;
  double from_natural = 1.0;
  if (args.lse.data) {
    lse = TensorView<float, 2>(args.lse, {.name = "lse", .shape = {tokens, plan.num_q_heads}, .rows_at_least = true});
    from_natural = 1.0 / to_natural(args.lse_base, "lse_base");
  }
  std::array<Part, kMaxStates> parts;
  for (uint32_t i = 0; i < args.num_states; ++i) {
    const Received state(
        reinterpret_cast<const anyattn_state*>(reinterpret_cast<const char*>(args.states) + size_t{i} * args.state_stride),
        ANYATTN_STATE_SIZE, "a state");
    parts[i].out = float_view(state->out, "a state's out", {tokens, plan.num_q_heads, out.shape[2]});
    if (parts[i].out.dtype != parts[0].out.dtype)
      throw Error(ANYATTN_INVALID_ARGUMENT, "states have dtypes ", dtype_name(parts[0].out.dtype), " and ",
                  dtype_name(parts[i].out.dtype), "; needed: one dtype");
    parts[i].lse = TensorView<const float, 2>(
        state->lse, {.name = "a state's lse", .shape = {tokens, plan.num_q_heads}, .rows_at_least = true});
    parts[i].factor = to_natural(state->lse_base, "a state's lse_base");
  }

  host.parallel_for(static_cast<uint64_t>(tokens), 4, [&](uint64_t begin, uint64_t end, uint32_t) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    std::array<const char*, kMaxStates> rows;
    std::array<double, kMaxStates> logs;
    std::array<float, kMaxStates> weights;
    for (auto t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); ++t) {
      for (int64_t head = 0; head < plan.num_q_heads; ++head) {
        double top = kNone;
        for (uint32_t i = 0; i < args.num_states; ++i) {
          rows[i] = reinterpret_cast<const char*>(parts[i].out.at(t, head));
          logs[i] = parts[i].lse(t, head) * parts[i].factor;
          if (logs[i] == -kNone) logs[i] = kNone;
          if (!(logs[i] <= top)) top = logs[i];
        }
        double total = 0;
        for (uint32_t i = 0; i < args.num_states; ++i) total += logs[i] == kNone ? 0 : std::exp(logs[i] - top);
        for (uint32_t i = 0; i < args.num_states; ++i)
          weights[i] = logs[i] == kNone ? 0.f : static_cast<float>(std::exp(logs[i] - top) / total);
        const MergeRow row{rows.data(),
                           weights.data(),
                           args.num_states,
                           static_cast<uint32_t>(out.shape[2]),
                           element_kind(parts[0].out.dtype),
                           element_kind(out.dtype),
                           reinterpret_cast<char*>(out.at(t, head))};
        plan.kernels->merge_row(&row);
        if (lse) lse(t, head) = static_cast<float>(top == kNone ? kNone : (top + std::log(total)) * from_natural);
      }
    }
  });
}

}  // namespace anyattn::cpu
