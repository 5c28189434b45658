// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows, three instructions where a kernel's own takes some twenty. Included by .cu units, as part
// of what kernels are passed. Not for negative numbers.
#pragma once

#include <bit>
#include <cstdint>

namespace anyattn::cuda {

// Granlund and Montgomery, "Division by invariant integers using multiplication", 1994.
struct Divisor {
  int32_t by = 1;
  uint32_t multiplier = 1;
  int32_t shift = 0;

  Divisor() = default;
  // number >= 1.
  explicit Divisor(int32_t number)
      : by(number), shift(static_cast<int32_t>(std::bit_width(static_cast<uint32_t>(number - 1)))) {
    const uint64_t rest = (uint64_t{1} << shift) - static_cast<uint64_t>(number);
    multiplier = static_cast<uint32_t>((rest << 32) / static_cast<uint64_t>(number) + 1);
  }
  // n / by, n >= 0.
  __device__ __forceinline__ int quotient(int n) const {
    return static_cast<int>((__umulhi(static_cast<uint32_t>(n), multiplier) + static_cast<uint32_t>(n)) >> shift);
  }
};

}  // namespace anyattn::cuda
