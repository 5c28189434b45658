// SPDX-License-Identifier: Apache-2.0
// Block sizes and cache specs: the backend's preference where nobody said one, the user's value never rewritten.
#include <doctest/doctest.h>

#include <functional>

#include "unit/selection/world.h"

using namespace anyattn::selector;
using anyattn::test::FakePlugin;
using anyattn::test::plain_plugin;
using anyattn::test::Problem;
using anyattn::test::World;

namespace {

FakePlugin only_32_and_64() {
  FakePlugin plugin = plain_plugin("org.list", "LIST");
  plugin.behaviour->preferred_block_size = 64;
  plugin.behaviour->block_size_multiple = 0;
  plugin.behaviour->block_sizes = {32, 64};
  return plugin;
}

Problem sized(uint32_t block_size) {
  Problem problem;
  problem.c.block_size = block_size;
  return problem;
}

}  // namespace

TEST_CASE("an_unset_block_size_becomes_the_backends_preference_and_says_so") {
  World world;
  world.add({only_32_and_64(), plain_plugin("org.any", "MULTIPLES")});
  const Decision list = world.select(Problem(), "LIST");
  CHECK(list.problem.block_size() == 64);
  CHECK(list.block_size_origin == "backend");
  CHECK(list.specs.at(0).block_size() == 64);
  CHECK(world.select(Problem(), "MULTIPLES").problem.block_size() == 16);
}

TEST_CASE("a_set_block_size_is_kept_or_refused_with_the_sizes") {
  World world;
  world.add({only_32_and_64(), plain_plugin("org.any", "MULTIPLES")});
  const Decision kept = world.select(sized(48), "MULTIPLES");
  CHECK(kept.problem.block_size() == 48);
  CHECK(kept.block_size_origin == "user");
  for (const uint32_t size : {16u, 48u}) {
    const Decision refused = world.select(sized(size), "LIST");
    CHECK(refused.error == Error::kUnfit);
    CHECK(refused.text.find("block_size " + std::to_string(size) + ", allowed: 32, 64") != std::string::npos);
    CHECK(refused.problem.block_size() == size);
  }
}

TEST_CASE("small_block_sizes_go_to_who_takes_them_or_are_one_error_with_every_reason") {
  for (const uint32_t size : {1u, 8u, 15u, 16u, 17u, 24u, 32u}) {
    CAPTURE(size);
    World world;
    world.add({only_32_and_64(), plain_plugin("org.any", "MULTIPLES")});
    const Decision decision = world.select(sized(size));
    if (size % 16 == 0) {
      CHECK(decision.ok());
      CHECK(decision.problem.block_size() == size);
    } else {
      CHECK(decision.error == Error::kNobody);
      CHECK(decision.text.find("LIST (org.list) refused") != std::string::npos);
      CHECK(decision.text.find("MULTIPLES (org.any) refused") != std::string::npos);
    }
  }
}

TEST_CASE("auto_and_null_cache_dtypes_become_the_querys_before_a_backend_sees_them") {
  for (const char* dtype : {static_cast<const char*>(nullptr), "auto"}) {
    World world;
    std::string seen;
    FakePlugin plugin = plain_plugin("org.one", "ONE");
    plugin.behaviour->refuse = [&](const anyattn_problem& p, const anyattn::test::Refuse&) { seen = p.kv_cache_dtype; };
    world.add({plugin});
    Problem problem;
    problem.c.q_dtype = problem.c.out_dtype = ANYATTN_DTYPE_FLOAT16;
    problem.c.kv_cache_dtype = dtype;
    const Decision decision = world.select(problem);
    CHECK(seen == "float16");
    CHECK(*decision.problem.kv_cache_dtype() == "float16");
  }
}

TEST_CASE("a_quantised_query_does_not_make_the_cache_8_bits_wide") {
  World world;
  world.add({plain_plugin("org.one", "ONE")});
  Problem problem;
  problem.with(ANYATTN_FEATURE_QUANTISED_QUERY).c.q_dtype = ANYATTN_DTYPE_FLOAT8_E4M3FN;
  CHECK(*world.select(problem).problem.kv_cache_dtype() == "bfloat16");
}

TEST_CASE("ragged_keys_have_neither_block_size_nor_spec_nor_cache_dtype") {
  World world;
  world.add({plain_plugin("org.one", "ONE")});
  const Decision decision = world.select(Problem().ragged());
  REQUIRE(decision.ok());
  CHECK(decision.problem.block_size() == 0);
  CHECK(decision.block_size_origin == "");
  CHECK(decision.specs.empty());
  CHECK_FALSE(decision.problem.kv_cache_dtype());
}

TEST_CASE("accepted_specs_are_deep_copies_in_the_backends_order") {
  Decision decision;
  {
    World world;
    FakePlugin plugin = plain_plugin("org.one", "ONE");
    plugin.behaviour->layouts = {"NHD", "HND"};
    world.add({plugin});
    decision = world.select(Problem());
  }
  REQUIRE(decision.specs.size() == 2);
  CHECK(decision.specs[0].name() == "NHD");
  const anyattn_kv_cache_spec view = decision.specs[1].view();
  CHECK(std::string(view.name) == "HND");
  CHECK(view.planes[0].role == ANYATTN_PLANE_K);
  CHECK(view.digest == anyattn_kv_cache_spec_digest(&view));
  CHECK(decision.specs[0].digest() != decision.specs[1].digest());
}

TEST_CASE("a_spec_that_reaches_out_of_its_block_is_wrong") {
  const auto spoiled = [](const std::function<void(anyattn_kv_cache_spec&, anyattn_plane&)>& spoil) {
    anyattn_plane plane{
        ANYATTN_PLANE_SIZE, ANYATTN_PLANE_K, ANYATTN_DTYPE_FLOAT32, 4, {0, 16, 2, 8, 0}, {1024, 64, 32, 4, 0}, 0};
    anyattn_kv_cache_spec spec{ANYATTN_KV_CACHE_SPEC_SIZE, 16, 1024, 16, 1, sizeof plane, 0, &plane, "X", 0};
    spoil(spec, plane);
    spec.digest = anyattn_kv_cache_spec_digest(&spec);
    return validate_spec(OwnedSpec(spec), 16);
  };
  using Spec = anyattn_kv_cache_spec;
  using Plane = anyattn_plane;
  CHECK(spoiled([](Spec&, Plane&) {}) == "");
  CHECK(spoiled([](Spec&, Plane& p) { p.byte_offset = 4; }).find("lies past block_bytes 1024") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.dims[1] = 17; }).find("past block_bytes") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.dims[1] = INT64_MAX; }).find("past block_bytes") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.strides[2] = INT64_MAX; }).find("past block_bytes") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.strides[2] = -32; }).find(">= 0") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.dims[2] = 0; }).find("must be > 0") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.strides[0] = 512; }).find("must be block_bytes 1024") != std::string::npos);
  CHECK(spoiled([](Spec&, Plane& p) { p.ndim = 9; }).find("ndim 9: 2 to 5") != std::string::npos);
  CHECK(spoiled([](Spec& s, Plane&) { s.alignment = 24; }).find("alignment 24") != std::string::npos);
  CHECK(spoiled([](Spec& s, Plane&) { s.block_bytes = 1000; }).find("block_bytes 1000: a multiple") != std::string::npos);
}
