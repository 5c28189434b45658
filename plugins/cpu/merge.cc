// SPDX-License-Identifier: Apache-2.0
#include "merge.h"

#include <array>
#include <cmath>
#include <limits>

#include "anyattn/call_checks.hpp"

namespace anyattn::cpu {
namespace {

struct Part {
  RawView<3> out;
  TensorView<const float, 2> lse;
  double factor;  // to the natural logarithm
};

}  // namespace

void merge_states(const Host& host, const Plan& plan, const anyattn_merge_args& args) {
  std::array<Part, kMaxStates> parts;
  const auto add = [&](uint32_t i, const RawView<3>& rows, const TensorView<const float, 2>& row_lse, double factor) {
    parts[i] = {rows, row_lse, factor};
  };
  const MergeOut to = read_merge(args, plan.num_q_heads, kMaxStates, add);
  const RawView<3>& out = to.out;
  const int64_t tokens = out.shape[0];

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
        if (to.lse.data)
          to.lse.data[t * to.lse.token_stride + head * to.lse.head_stride] =
              static_cast<float>(top == kNone ? kNone : (top + std::log(total)) * to.lse.factor);
      }
    }
  });
}

}  // namespace anyattn::cpu
