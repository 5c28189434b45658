// SPDX-License-Identifier: Apache-2.0
// The helpers of util.h: structs of any age, errors of any capacity, digests.
#include <anyattn/util.h>
#include <doctest/doctest.h>

#include <cstring>
#include <string>

TEST_CASE("read_struct_of_an_older_writer_leaves_the_tail_absent") {
  anyattn_limits older{};
  older.struct_size = ANYATTN_END_OFFSET(anyattn_limits, max_num_tokens);
  older.max_num_reqs = 3;
  older.max_num_tokens = 7;
  older.max_query_len = 0xdeadbeef;  // behind what the writer claims to know

  anyattn_limits own;
  std::memset(&own, 0xff, sizeof own);
  anyattn_read_struct(&own, ANYATTN_LIMITS_SIZE, &older);

  CHECK(own.struct_size == older.struct_size);
  CHECK(own.max_num_reqs == 3);
  CHECK(own.max_num_tokens == 7);
  CHECK(own.max_query_len == 0);
  CHECK(own.max_blocks_per_req == 0);
}

TEST_CASE("read_struct_of_a_newer_writer_ignores_its_tail") {
  struct Newer {
    anyattn_limits known;
    uint64_t unknown;
  } newer{};
  newer.known.struct_size = sizeof newer;
  newer.known.max_blocks_per_req = 5;
  newer.unknown = ~uint64_t{0};

  struct {
    anyattn_limits own;
    uint64_t canary;
  } mine{{}, 42};
  anyattn_read_struct(&mine.own, ANYATTN_LIMITS_SIZE, &newer);

  CHECK(mine.own.struct_size == ANYATTN_LIMITS_SIZE);
  CHECK(mine.own.max_blocks_per_req == 5);
  CHECK(mine.canary == 42);
}

TEST_CASE("error_set_truncates_terminates_and_counts") {
  char text[8];
  std::memset(text, 'x', sizeof text);
  anyattn_error error{text, sizeof text, 0, 0, 0};

  CHECK(anyattn_error_set(&error, ANYATTN_UNSUPPORTED, "head_size=%d", 260) == ANYATTN_UNSUPPORTED);

  CHECK(std::string(text) == "head_si");
  CHECK(error.length == std::strlen("head_size=260"));
  CHECK(error.status == ANYATTN_UNSUPPORTED);
  CHECK(anyattn_error_set(nullptr, ANYATTN_INTERNAL, "no place for this") == ANYATTN_INTERNAL);

  anyattn_error empty{nullptr, 0, 0, 0, 0};
  CHECK(anyattn_error_set(&empty, ANYATTN_INTERNAL, "abc") == ANYATTN_INTERNAL);
  CHECK(empty.length == 3);
}

namespace {

struct Spec {
  anyattn_plane planes[2]{};
  anyattn_kv_cache_spec spec{};
  Spec() {
    for (auto& plane : planes) {
      plane.struct_size = ANYATTN_PLANE_SIZE;
      plane.dtype = ANYATTN_DTYPE_BFLOAT16;
      plane.ndim = 4;
      for (int i = 0; i < 4; ++i) plane.dims[i] = i, plane.strides[i] = 8 * i;
    }
    planes[0].role = ANYATTN_PLANE_K;
    planes[1].role = ANYATTN_PLANE_V;
    spec.struct_size = ANYATTN_KV_CACHE_SPEC_SIZE;
    spec.block_size = 16;
    spec.block_bytes = 4096;
    spec.num_planes = 2;
    spec.plane_stride = sizeof(anyattn_plane);
    spec.planes = planes;
    spec.name = "HND";
  }
};

}  // namespace

TEST_CASE("digest_follows_every_number_that_moves_a_byte") {
  const Spec reference;
  const uint64_t plain = anyattn_kv_cache_spec_digest(&reference.spec);
  auto changed = [](auto change) {
    Spec s;
    change(s);
    return anyattn_kv_cache_spec_digest(&s.spec);
  };

  CHECK(changed([](Spec&) {}) == plain);
  CHECK(changed([](Spec& s) { s.spec.name = "other"; }) == plain);
  CHECK(changed([](Spec& s) { s.spec.block_size = 32; }) != plain);
  CHECK(changed([](Spec& s) { s.spec.block_bytes += 64; }) != plain);
  CHECK(changed([](Spec& s) { s.spec.num_planes = 1; }) != plain);
  CHECK(changed([](Spec& s) { s.planes[1].role = ANYATTN_PLANE_K; }) != plain);
  CHECK(changed([](Spec& s) { s.planes[0].dtype = ANYATTN_DTYPE_FLOAT16; }) != plain);
  CHECK(changed([](Spec& s) { s.planes[0].dims[2] += 1; }) != plain);
  CHECK(changed([](Spec& s) { s.planes[1].strides[3] += 1; }) != plain);
  CHECK(changed([](Spec& s) { s.planes[1].byte_offset = 64; }) != plain);
}

TEST_CASE("problem_has_reads_bits_past_the_given_words_as_unset") {
  const uint64_t word = UINT64_C(1) << ANYATTN_FEATURE_SINKS;
  anyattn_problem problem{};
  problem.features = &word;
  problem.num_feature_words = 1;

  CHECK(anyattn_problem_has(&problem, ANYATTN_FEATURE_SINKS));
  CHECK_FALSE(anyattn_problem_has(&problem, ANYATTN_FEATURE_WINDOW));
  CHECK_FALSE(anyattn_problem_has(&problem, 64 + ANYATTN_FEATURE_SINKS));
}
