// SPDX-License-Identifier: Apache-2.0
// What a cache of each format takes of memory, as the spec says it, and that its planes are the ones of ABI.md.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "anyattn/kv_cache.hpp"
#include "attn_case.h"
#include "small_host.h"

using namespace anyattn::cpu_test;

namespace {

struct Spec {
  uint64_t block_bytes = 0;
  std::map<uint32_t, anyattn_plane> planes;
  std::string name;
};

std::vector<Spec> specs_of(const char* backend, const anyattn_problem& problem) {
  const SmallHost host;
  std::vector<Spec> specs;
  const auto accept = [](void* context, const anyattn_kv_cache_spec* spec) {
    Spec& into = static_cast<std::vector<Spec>*>(context)->emplace_back();
    into.block_bytes = spec->block_bytes;
    into.name = spec->name;
    for (uint32_t i = 0; i < spec->num_planes; ++i) into.planes[spec->planes[i].role] = spec->planes[i];
  };
  REQUIRE(host.backend(backend).kv_cache_spec(host.get(), &cpu_device(), &problem, accept, &specs, nullptr) == ANYATTN_OK);
  return specs;
}

}  // namespace

TEST_CASE("specs_take_the_bytes_of_their_format_and_place_scales_behind_rows") {
  AttnCase test;
  const char* dtype_text = nullptr;
  uint64_t features = 0;
  anyattn_problem problem = problem_of(test, features, dtype_text);
  problem.head_size = problem.head_size_v = 128;
  problem.num_q_heads = 8;
  problem.num_kv_heads = 2;
  problem.block_size = 16;
  const std::pair<const char*, int64_t> rows[] = {{"bfloat16", 256},           {"fp8_e4m3", 128},
                                                  {"fp8_e5m2", 128},           {"int8_per_token_head", 132},
                                                  {"fp8_per_token_head", 132}, {"int4_per_token_head", 68}};
  for (const auto& [name, row] : rows) {
    CAPTURE(name);
    problem.kv_cache_dtype = name;
    const auto specs = specs_of("CPU_ATTN", problem);
    REQUIRE(specs.size() == 2);
    CHECK(specs[0].name == "HND");
    for (const Spec& spec : specs) {
      CHECK(spec.block_bytes == static_cast<uint64_t>(2 * 2 * 16 * row));
      const anyattn_plane &k = spec.planes.at(ANYATTN_PLANE_K), &v = spec.planes.at(ANYATTN_PLANE_V);
      CHECK(v.byte_offset == spec.block_bytes / 2);
      CHECK((spec.name == "HND" ? k.strides[1] : k.strides[2]) == row);
      const bool scaled = std::string(name).ends_with("_per_token_head");
      CHECK(spec.planes.size() == (scaled ? 4 : 2));
      if (!scaled) continue;
      CHECK(spec.planes.at(ANYATTN_PLANE_K_SCALE).byte_offset == static_cast<uint64_t>(row - 4));
      CHECK(spec.planes.at(ANYATTN_PLANE_V_SCALE).byte_offset == v.byte_offset + static_cast<uint64_t>(row - 4));
    }
  }
}
