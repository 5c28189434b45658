// SPDX-License-Identifier: Apache-2.0
// Rules of attention.h and backend.h, one at a time, through CPU_ATTN's table.
#include <cmath>

#include "allocation_counter.h"
#include "attn_case.h"
#include "doctest/doctest.h"

using namespace anyattn::cpu_test;

namespace {

AttnCase three_requests() {
  AttnCase test;
  test.num_q_heads = 8;
  test.num_kv_heads = 2;
  test.head_size = test.head_size_v = 32;
  test.requests = {{1, 13, true, {}}, {1, 16, true, {}}, {1, 17, true, {}}};
  test.with(ANYATTN_FEATURE_LSE);
  return test;
}

bool bitwise_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

AttnResult passing(const AttnCase& test) {
  AttnResult result = run_case(test);
  CHECK_MESSAGE(result.failure.empty(), result.failure << "\n  " << test.describe());
  return result;
}

}  // namespace

TEST_CASE("attn_what_lies_in_unowned_slots_changes_no_bit") {
  for (const uint32_t dtype : {ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_BFLOAT16}) {
    AttnCase test = three_requests();
    test.q_dtype = test.kv_dtype = test.out_dtype = dtype;
    test.poison = 0;
    const AttnResult clean = passing(test);
    for (const float poison : {__builtin_nanf(""), __builtin_inff(), 1e30f}) {
      test.poison = poison;
      const AttnResult result = passing(test);
      CHECK(bitwise_equal(result.out, clean.out));
      CHECK(bitwise_equal(result.lse, clean.lse));
    }
  }
}

TEST_CASE("attn_padded_requests_give_zero_and_leave_the_others_alone") {
  AttnCase test = three_requests();
  const AttnResult alone = passing(test);
  for (int i = 0; i < 5; ++i) test.requests.push_back({1, 0, true, {}});
  test.padding_rows = 2;
  const AttnResult padded = passing(test);
  CHECK(bitwise_equal({padded.out.begin(), padded.out.begin() + static_cast<std::ptrdiff_t>(alone.out.size())}, alone.out));
  for (size_t i = alone.out.size(); i < padded.out.size(); ++i) CHECK(padded.out[i] == 0);
  for (size_t i = alone.lse.size(); i < padded.lse.size(); ++i) CHECK(padded.lse[i] == -INFINITY);
}

TEST_CASE("attn_does_not_follow_table_entries_behind_the_window") {
  for (const int32_t entry : {-1, 0, 1 << 30}) {
    for (const uint32_t workers : {1u, 8u}) {
      AttnCase test;
      test.num_workers = workers;
      test.requests = {{1, 900, true, {}}, {4, 95, true, {}}};
      test.with(ANYATTN_FEATURE_WINDOW).with(ANYATTN_FEATURE_LSE);
      test.window_left = 15;
      AttnRun run(test);
      REQUIRE(run.prepare());
      REQUIRE(run.store());
      for (size_t r = 0; r < 2; ++r) {
        const int first_visible = test.requests[r].seq_len - test.requests[r].query_len - test.window_left;
        for (int block = 0; (block + 1) * 16 <= first_visible; ++block)
          run.cache->table()[static_cast<int64_t>(r) * run.cache->table_stride() + block] = entry;
      }
      REQUIRE(run.update());
      REQUIRE_MESSAGE(run.forward(), run.result.failure);
      run.compare();
      CHECK_MESSAGE(run.result.failure.empty(), run.result.failure);
    }
  }
}

TEST_CASE("attn_a_visible_table_entry_that_names_no_block_is_an_error") {
  for (const int32_t entry : {-1, 1 << 30}) {
    AttnRun run(three_requests());
    REQUIRE(run.prepare());
    REQUIRE(run.update());
    run.cache->table()[run.cache->table_stride()] = entry;
    CHECK(!run.forward());
    CHECK(run.result.failure.find("block_table row 1") != std::string::npos);
  }
}

TEST_CASE("attn_sinks_count_once_however_keys_are_split") {
  for (const uint32_t workers : {1u, 2u, 6u, 16u}) {
    AttnCase test;
    test.num_workers = workers;
    test.num_kv_heads = 1;
    test.requests = {{1, 4000, true, {}}, {1, 1900, true, {}}, {3, 0, true, {}}};
    test.with(ANYATTN_FEATURE_SINKS).with(ANYATTN_FEATURE_LSE);
    passing(test);
  }
}

TEST_CASE("attn_batch_invariant_rows_have_the_same_bits_alone_and_in_company") {
  for (const bool window : {false, true}) {
    AttnCase alone;
    alone.num_workers = 8;
    alone.q_dtype = alone.kv_dtype = alone.out_dtype = ANYATTN_DTYPE_BFLOAT16;
    alone.with(ANYATTN_FEATURE_BATCH_INVARIANT).with(ANYATTN_FEATURE_LSE);
    if (window) alone.with(ANYATTN_FEATURE_WINDOW).window_left = 300;
    alone.requests = {{1, 1000, true, {}}};
    const AttnResult expected = passing(alone);
    // The same request at each place of a batch: its keys and query are copied there.
    for (size_t place = 0; place < 4; ++place) {
      AttnCase company = alone;
      company.requests = {{1, 1, true, {}}, {9, 200, true, {}}, {1, 4096, true, {}}};
      company.requests.insert(company.requests.begin() + static_cast<std::ptrdiff_t>(place), alone.requests[0]);
      AttnRun run(company);
      const auto copy = [](const TestTensor& from, TestTensor& to, int64_t row, int64_t rows) {
        to.copy_rows(from, row, rows);
      };
      AttnRun source(alone);
      copy(source.q, run.q, run.query_start[place], 1);
      copy(source.k, run.k, run.key_start[place], 1000);
      copy(source.v, run.v, run.key_start[place], 1000);
      REQUIRE(run.prepare());
      REQUIRE(run.store());
      REQUIRE(run.update());
      REQUIRE(run.forward());
      const auto begin = run.result.out.begin() + run.query_start[place] * 4 * 16;
      CHECK(bitwise_equal({begin, begin + 4 * 16}, expected.out));
      const auto lse = run.result.lse.begin() + run.query_start[place] * 4;
      CHECK(bitwise_equal({lse, lse + 4}, expected.lse));
    }
  }
}

TEST_CASE("attn_hot_calls_allocate_nothing") {
  AttnCase test;
  test.num_workers = 3;
  test.requests = {{1, 2000, true, {}}, {20, 120, true, {}}};
  test.with(ANYATTN_FEATURE_LSE);
  AttnRun run(test);
  REQUIRE(run.prepare());
  REQUIRE(run.store());
  start_counting_allocations();
  const int32_t updated = run.backend.metadata_update(run.metadata, &run.batch, nullptr, nullptr);
  const int32_t done = run.backend.forward(run.impl, run.metadata, &run.args, nullptr);
  const int allocations = stop_counting_allocations();
  CHECK(updated == ANYATTN_OK);
  CHECK(done == ANYATTN_OK);
  CHECK(allocations == 0);
  start_counting_allocations();
  const std::vector<int> one(1);
  CHECK(stop_counting_allocations() >= 1);
}

TEST_CASE("attn_threads_share_one_impl_and_one_batch") {
  AttnCase test;
  test.num_workers = 4;
  test.requests = {{1, 3000, true, {}}, {30, 130, true, {}}};
  test.with(ANYATTN_FEATURE_LSE).with(ANYATTN_FEATURE_SINKS);
  AttnRun run(test);
  run.host.use_threads();
  REQUIRE(run.prepare());
  REQUIRE(run.store());
  REQUIRE(run.update());
  for (int i = 0; i < 5; ++i) {
    REQUIRE(run.forward());
    run.compare();
    CHECK_MESSAGE(run.result.failure.empty(), run.result.failure);
  }
}

TEST_CASE("attn_update_block_table_makes_the_same_plan_over_another_table") {
  AttnRun run(three_requests());
  REQUIRE(run.prepare());
  REQUIRE(run.store());
  REQUIRE(run.update());
  REQUIRE(run.forward());
  const std::vector<float> expected = run.result.out;
  const Guarded persistent(1 << 16, 0);
  anyattn_metadata* other = nullptr;
  REQUIRE(run.backend.metadata_create(run.impl, &run.limits, ANYATTN_METADATA_NORMAL, persistent.data(), nullptr, &other,
                                      nullptr) == ANYATTN_OK);
  const Owned<anyattn_metadata> owner(other, run.backend.metadata_destroy);
  const std::vector<int32_t> table(run.cache->table(), run.cache->table() + 3 * run.cache->table_stride());
  REQUIRE(run.backend.update_block_table(other, run.metadata, table.data(), run.cache->table_stride(), nullptr, nullptr) ==
          ANYATTN_OK);
  std::fill_n(run.cache->table(), table.size(), -1);
  std::swap(run.metadata, other);
  REQUIRE_MESSAGE(run.forward(), run.result.failure);
  std::swap(run.metadata, other);
  CHECK(bitwise_equal(run.result.out, expected));
}

TEST_CASE("attn_store_writes_rounded_rows_through_the_spec_and_nothing_else") {
  for (const uint32_t spec_index : {0u, 1u}) {
    AttnCase test = three_requests();
    test.head_size_v = 20;
    test.spec = spec_index;
    test.kv_dtype = ANYATTN_DTYPE_FLOAT16;
    test.with(ANYATTN_FEATURE_KV_TRANSFER);
    AttnRun run(test);
    REQUIRE(run.prepare());
    const std::vector<char> before = run.cache->bytes();
    REQUIRE(run.store());
    std::vector<char> expected = before;
    const anyattn_kv_cache_spec& spec = run.specs.at(spec_index);
    for (int64_t key = 0; key < run.keys; ++key) {
      const int64_t slot = run.cache->slots()[static_cast<size_t>(key)];
      for (const uint32_t role : {ANYATTN_PLANE_K, ANYATTN_PLANE_V}) {
        const anyattn_plane plane = anyattn::find_plane(spec, role);
        const std::vector<float> values = role == ANYATTN_PLANE_K ? run.k.floats() : run.v.floats();
        for (int64_t head = 0; head < plane.dims[2]; ++head)
          for (int64_t i = 0; i < plane.dims[3]; ++i) {
            const auto at = static_cast<int64_t>(static_cast<uint64_t>(slot / 16) * run.cache->get()->block_stride_bytes +
                                                 plane.byte_offset) +
                            slot % 16 * plane.strides[1] + head * plane.strides[2] + i * plane.strides[3];
            anyattn::conformance::store_element(ANYATTN_DTYPE_FLOAT16, &expected[static_cast<size_t>(at)],
                                                values[static_cast<size_t>((key * plane.dims[2] + head) * plane.dims[3] + i)]);
          }
      }
    }
    CHECK(run.cache->bytes() == expected);
  }
}

TEST_CASE("attn_store_refuses_a_missing_map_and_slots_outside_before_it_writes") {
  AttnRun run(three_requests());
  REQUIRE(run.prepare());
  anyattn_kv_cache_update_args call{};
  call.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  call.k = run.k.get();
  call.v = run.v.get();
  call.cache = run.cache->get();
  CHECK(run.backend.kv_cache_update(run.impl, &call, run.text.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(run.text.text).find("slot_mapping") != std::string::npos);
  const std::vector<char> before = run.cache->bytes();
  for (const int64_t bad : {int64_t{-2}, int64_t{1} << 40}) {
    std::vector<int64_t> slots = run.cache->slots();
    slots.back() = bad;
    TestTensor map = TestTensor::of(slots);
    call.slot_mapping = map.get();
    CHECK(run.backend.kv_cache_update(run.impl, &call, run.text.get()) == ANYATTN_INVALID_ARGUMENT);
    CHECK(run.cache->bytes() == before);
  }
}

TEST_CASE("attn_wrong_calls_are_named_and_nothing_crashes") {
  const auto failing = [](const char* expected, auto change) {
    AttnRun run(three_requests());
    REQUIRE(run.prepare());
    change(run);
    const bool done = run.update() && run.forward();
    CHECK_MESSAGE(!done, std::string(expected));
    CHECK_MESSAGE(run.result.failure.find(expected) != std::string::npos,
                  run.result.failure << " does not name " << std::string(expected));
  };
  failing("scratch is null", [](AttnRun& run) { run.args.scratch = nullptr; });
  failing("scratch is 16 bytes past", [](AttnRun& run) { run.args.scratch = static_cast<char*>(run.scratch->data()) + 16; });
  failing("softmax_scale 0", [](AttnRun& run) { run.args.softmax_scale = 0; });
  failing("q: the tensor is absent", [](AttnRun& run) { run.args.q.data = nullptr; });
  failing("q: data is 4 bytes past", [](AttnRun& run) { run.args.q.data = static_cast<char*>(run.args.q.data) + 4; });
  failing("q: dtype bfloat16; needed: float32", [](AttnRun& run) { run.args.q.dtype_code = 4, run.args.q.dtype_bits = 16; });
  failing("out: size 7 of dim 1; needed: 8", [](AttnRun& run) { run.args.out.shape[1] = 7; });
  failing("lse_base 3", [](AttnRun& run) { run.args.lse_base = 3; });
  failing("args.cache is null", [](AttnRun& run) { run.args.cache = nullptr; });
  failing("num_reqs 4", [](AttnRun& run) { run.batch.num_reqs = 4; });
  failing("num_tokens 9", [](AttnRun& run) { run.batch.num_tokens = 9; });
  failing("decreases at request 1",
          [](AttnRun& run) { run.query_start = {0, 1, 0, 3}, run.batch.query_start_loc = run.query_start.data(); });
  failing("seq_lens[2] is -5", [](AttnRun& run) { run.seq_lens[2] = -5; });
  failing("request 1 has 1000 keys; its table row holds 32", [](AttnRun& run) { run.seq_lens[1] = 1000; });
  failing("block_table is null", [](AttnRun& run) { run.batch.block_table = nullptr; });
  failing("batch.causal is set", [](AttnRun& run) { run.batch.causal = run.causal.data(); });
  failing("mm_prefix_start_loc is set", [](AttnRun& run) { run.batch.mm_prefix_start_loc = run.range_start.data(); });
  failing("cache.spec has digest", [](AttnRun& run) {
    static anyattn_cache wrong;
    wrong = *run.cache->get();
    wrong.spec = &run.specs.at(1);
    run.args.cache = &wrong;
  });
}

TEST_CASE("attn_calls_before_an_update_and_graph_metadata_are_refused") {
  AttnRun run(three_requests());
  REQUIRE(run.prepare());
  CHECK(!run.forward());
  CHECK(run.result.failure.find("metadata_update before") != std::string::npos);
  anyattn_metadata* metadata = nullptr;
  CHECK(run.backend.metadata_create(run.impl, &run.limits, ANYATTN_METADATA_GRAPH_CAPTURE, run.persistent->data(), nullptr,
                                    &metadata, run.text.get()) == ANYATTN_UNSUPPORTED);
  CHECK(metadata == nullptr);
  CHECK(run.backend.forward(nullptr, run.metadata, &run.args, run.text.get()) == ANYATTN_INVALID_ARGUMENT);
  CHECK(run.backend.forward(run.impl, run.metadata, nullptr, run.text.get()) == ANYATTN_INVALID_ARGUMENT);
  run.backend.impl_destroy(nullptr);
  run.backend.metadata_destroy(nullptr);
}

TEST_CASE("attn_soft_cap_takes_scores_of_any_size") {
  for (const std::string& isa : runnable_isas()) {
    AttnCase test;
    test.isa = isa;
    test.amplitude = 300;
    test.softmax_scale = 1;
    test.soft_cap = 50;
    test.requests = {{2, 40, true, {}}};
    test.with(ANYATTN_FEATURE_SOFT_CAP).with(ANYATTN_FEATURE_LSE);
    passing(test);
  }
}

TEST_CASE("attn_offsets_are_64_bits_wide") {
  // Blocks far past 2^31 elements in address space that is never touched elsewhere.
  AttnCase test = three_requests();
  test.kv_dtype = ANYATTN_DTYPE_FLOAT16;
  const AttnResult near = passing(test);
  AttnRun run(test);
  REQUIRE(run.prepare());
  const FarBlocks far(*run.cache, (uint64_t{1} << 32) + 256);
  if (!far.base()) {
    MESSAGE("no address space for the far blocks");
    return;
  }
  anyattn_cache wide = *run.cache->get();
  wide.base = far.base();
  wide.block_stride_bytes = (uint64_t{1} << 32) + 256;
  run.args.cache = &wide;
  REQUIRE(run.store());
  far.copy_from(*run.cache);
  REQUIRE(run.update());
  REQUIRE_MESSAGE(run.forward(), run.result.failure);
  CHECK(bitwise_equal(run.result.out, near.out));
}

TEST_CASE("attn_two_ranks_with_their_slopes_give_the_heads_of_one") {
  AttnCase whole = three_requests();
  whole.num_kv_heads = 8;
  whole.with(ANYATTN_FEATURE_ALIBI);
  AttnRun one(whole);
  REQUIRE((one.prepare() && one.store() && one.update() && one.forward()));
  one.compare();
  CHECK_MESSAGE(one.result.failure.empty(), one.result.failure);
  const std::vector<float> all = one.out_floats(), slopes = one.slopes.floats();
  const size_t half = all.size() / 3 / 2;  // of a row
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    AttnCase share = whole;
    share.num_q_heads = share.num_kv_heads = 4;
    AttnRun run(share);
    REQUIRE(run.prepare());
    run.q.copy_heads(one.q, static_cast<int64_t>(rank) * 4);
    run.k.copy_heads(one.k, static_cast<int64_t>(rank) * 4);
    run.v.copy_heads(one.v, static_cast<int64_t>(rank) * 4);
    std::memcpy(run.slopes.get().data, slopes.data() + rank * 4, 4 * sizeof(float));
    REQUIRE((run.store() && run.update() && run.forward()));
    const std::vector<float> own = run.out_floats();
    for (size_t row = 0; row < 3; ++row) {
      const auto mine = own.begin() + static_cast<std::ptrdiff_t>(row * half);
      const auto theirs = all.begin() + static_cast<std::ptrdiff_t>((2 * row + rank) * half);
      const auto length = static_cast<std::ptrdiff_t>(half);
      CHECK(bitwise_equal({mine, mine + length}, {theirs, theirs + length}));
    }
  }
}
