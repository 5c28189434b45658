// SPDX-License-Identifier: Apache-2.0
// Which outputs of codes the backends of a host take: E4M3 with one scale of the call, of keys that are whole.
#include <doctest/doctest.h>

#include <string>

#include "prebuild/absent_device.h"

namespace {

using anyattn::portable::OpenPlugin;
using anyattn::portable::problem_of;

constexpr uint64_t bit(uint32_t feature) { return uint64_t{1} << feature; }

std::string reasons(const char* backend, uint64_t features, uint32_t out_dtype) {
  static OpenPlugin portable(ANYATTN_PORTABLE_CPU_PLUGIN, {}), cpu(ANYATTN_CPU_PLUGIN, {});
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CPU;
  facts.architecture = facts.name = "cpu";
  const std::string name = backend;
  const bool latent = name.ends_with("_MLA");
  anyattn_problem problem = problem_of({8, latent ? 0u : 2u, 64, 16, ANYATTN_DTYPE_BFLOAT16});
  features |= latent ? bit(ANYATTN_FEATURE_MLA) : 0;
  problem.features = &features;
  problem.out_dtype = out_dtype;
  problem.cp_world_size = 2;
  problem.cp_interleave = 1;
  problem.out_block_size = 64;
  return (name.starts_with("CPU_") ? cpu : portable).reasons(facts, backend, problem);
}

}  // namespace

TEST_CASE("out_scale_takes_e4m3_codes_and_refuses_every_other_output_by_name") {
  constexpr uint64_t kScaled = bit(ANYATTN_FEATURE_OUT_SCALE);
  for (const char* backend : {"CPU_ATTN", "PORTABLE_ATTN"}) {
    CAPTURE(backend);
    CHECK(reasons(backend, 0, ANYATTN_DTYPE_BFLOAT16) == "");
    CHECK(reasons(backend, kScaled, ANYATTN_DTYPE_FLOAT8_E4M3FN) == "");

    CHECK(reasons(backend, kScaled, ANYATTN_DTYPE_BFLOAT16) ==
          "out_dtype=bfloat16 with out_scale (allowed: float8_e4m3fn with out_scale) ");
    CHECK(reasons(backend, kScaled, ANYATTN_DTYPE_FLOAT8_E5M2) ==
          "out_dtype=float8_e5m2 with out_scale (allowed: float8_e4m3fn with out_scale) ");
    CHECK(reasons(backend, 0, ANYATTN_DTYPE_FLOAT8_E4M3FN) == "out_dtype=float8_e4m3fn (allowed: float32, float16, bfloat16) ");
    CHECK(reasons(backend, kScaled | bit(ANYATTN_FEATURE_CP_DECODE), ANYATTN_DTYPE_FLOAT8_E4M3FN) ==
          "out_scale=with sharded keys (allowed: without) ");
    CHECK(reasons(backend, kScaled | bit(ANYATTN_FEATURE_OUT_BLOCK_SCALES), ANYATTN_DTYPE_FLOAT8_E4M3FN) ==
          "out_block_scales=on (allowed: off) ");
  }
  for (const char* backend : {"CPU_MLA", "PORTABLE_MLA"})
    CHECK(reasons(backend, kScaled, ANYATTN_DTYPE_FLOAT8_E4M3FN).find("out_scale=on (allowed: off) ") == 0);
}
