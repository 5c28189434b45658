// SPDX-License-Identifier: Apache-2.0
// exp and tanh of the kernels against the C library in double, and every conversion lane by lane. Built for the baseline
// instruction set; the others compile the same text.
#include <cmath>
#include <cstring>

#include "anyattn/conformance/numbers.h"
#include "doctest/doctest.h"
#include "simd-inl.h"

namespace cpu = anyattn::cpu;

namespace {

float one(cpu::Vec value) { return value[0]; }

double ulp(double value) { return std::ldexp(1.0, std::ilogb(value) - 23); }

}  // namespace

TEST_CASE("kernel_exp_is_within_2e_7_and_zero_below_the_smallest_normal") {
  double worst = 0;
  for (int i = 0; i < 2000000; ++i) {
    const float x = -87.29f * static_cast<float>(i) / 2000000.f;
    worst = std::max(worst, std::abs(one(cpu::exp(cpu::splat(x))) / std::exp(static_cast<double>(x)) - 1));
  }
  CHECK_MESSAGE(worst < 2e-7, worst);
  CHECK(one(cpu::exp(cpu::splat(0.f))) == 1.f);
  CHECK(one(cpu::exp(cpu::splat(-87.31f))) == 0.f);
  CHECK(one(cpu::exp(cpu::splat(-INFINITY))) == 0.f);
}

TEST_CASE("kernel_tanh_is_within_2_ulp_and_never_overflows") {
  double worst = 0;
  for (int i = 1; i < 1000000; ++i) {
    const float x = 12.f * static_cast<float>(i) / 1000000.f;
    const double right = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::abs(one(cpu::tanh(cpu::splat(x))) - right) / ulp(right));
    worst = std::max(worst, std::abs(one(cpu::tanh(cpu::splat(-x))) + right) / ulp(right));
  }
  CHECK_MESSAGE(worst < 2.0, worst);
  for (const float x : {20.f, 100.f, 1e30f, INFINITY}) {
    CHECK(one(cpu::tanh(cpu::splat(x))) == 1.f);
    CHECK(one(cpu::tanh(cpu::splat(-x))) == -1.f);
  }
  CHECK(one(cpu::tanh(cpu::splat(0.f))) == 0.f);
}

TEST_CASE("kernel_conversions_agree_with_the_kit_on_every_pattern") {
  int wrong = 0;
  const auto differs = [](float a, float b) { return !(a == b || (std::isnan(a) && std::isnan(b))); };
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const cpu::HalfVec lanes = cpu::HalfVec{} + bits;
    wrong += differs(one(cpu::widen(lanes, cpu::F16{})), anyattn::conformance::float_of_float16(bits));
    wrong += differs(one(cpu::widen(lanes, cpu::BF16{})), anyattn::conformance::float_of_bfloat16(bits));
  }
  anyattn::conformance::SplitMix64 dice(4);
  for (int i = 0; i < 300000; ++i) {
    const auto bits = static_cast<uint32_t>(dice.next());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (i % 2) value = std::ldexp(static_cast<float>(dice.next() >> 40), -static_cast<int>(dice.below(50)));
    const auto half = static_cast<uint16_t>(cpu::narrow(cpu::splat(value), cpu::F16{})[0]);
    const auto brain = static_cast<uint16_t>(cpu::narrow(cpu::splat(value), cpu::BF16{})[0]);
    wrong += differs(anyattn::conformance::float_of_float16(half), anyattn::conformance::rounded(ANYATTN_DTYPE_FLOAT16, value));
    wrong +=
        differs(anyattn::conformance::float_of_bfloat16(brain), anyattn::conformance::rounded(ANYATTN_DTYPE_BFLOAT16, value));
  }
  CHECK(wrong == 0);
}
