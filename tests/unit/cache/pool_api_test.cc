// SPDX-License-Identifier: Apache-2.0
// The C API of the KV pool as an engine sees it: memory, layers, refusals, and hot calls that allocate nothing.
#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "anyattn/kv_pool.h"
#include "anyattn/runtime.hpp"
#include "runtime/heap_count.h"

namespace {

// A configuration without any plugin: the pool needs the device only.
anyattn::Runtime bare_runtime() {
  anyattn::Runtime::Options options;
  options.config_path = std::string(ANYATTN_SOURCE_DIR) + "/tests/unit/cache/no_plugins.yaml";
  options.log_level = "error";
  options.num_threads = 1;
  return anyattn::Runtime(options);
}

// K and V of `heads` heads of 32 float32, head-major.
struct Spec {
  anyattn_plane planes[2]{};
  anyattn_kv_cache_spec spec{};

  Spec(uint32_t block_size, int64_t heads) {
    const int64_t row = 32 * 4;
    const int64_t plane_bytes = heads * block_size * row;
    for (uint32_t i = 0; i < 2; ++i) {
      planes[i] = {ANYATTN_PLANE_SIZE,
                   ANYATTN_PLANE_K + i,
                   ANYATTN_DTYPE_FLOAT32,
                   4,
                   {0, block_size, heads, 32, 0},
                   {2 * plane_bytes, row, block_size * row, 4, 0},
                   static_cast<uint64_t>(i * plane_bytes)};
    }
    spec = {ANYATTN_KV_CACHE_SPEC_SIZE,
            block_size,
            static_cast<uint64_t>(2 * plane_bytes),
            64,
            2,
            sizeof(anyattn_plane),
            0,
            planes,
            "HND",
            0};
  }
};

struct Pool {
  anyattn::Runtime runtime = bare_runtime();
  Spec small{16, 1}, large{16, 4};
  std::vector<anyattn_kv_group_options> groups;
  anyattn_kv_pool_options options{};
  anyattn_kv_pool* pool = nullptr;
  char text[512] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};

  Pool() {
    groups.push_back({ANYATTN_KV_GROUP_OPTIONS_SIZE, 3, 0, -1, &large.spec, "full"});
    groups.push_back({ANYATTN_KV_GROUP_OPTIONS_SIZE, 2, 32, 47, &small.spec, "sliding"});
    options = {
        ANYATTN_KV_POOL_OPTIONS_SIZE, 2, sizeof(anyattn_kv_group_options), ANYATTN_DEVICE_CPU, 0, 4, 500, 0, nullptr, 0, 40};
  }
  ~Pool() { anyattn_kv_pool_destroy(pool); }
  int32_t create() {
    options.groups = groups.data();
    return anyattn_kv_pool_create(runtime.get(), &options, &pool, &error);
  }
};

anyattn_cache cache_of(const anyattn_kv_pool* pool, uint32_t group, uint32_t layer) {
  anyattn_cache cache{};
  cache.struct_size = ANYATTN_CACHE_SIZE;
  REQUIRE(anyattn_kv_pool_layer_cache(pool, group, layer, &cache, nullptr) == ANYATTN_OK);
  return cache;
}

TEST_CASE("pool_layers_lie_apart_within_the_pool_and_keep_their_spec") {
  Pool p;
  REQUIRE(p.create() == ANYATTN_OK);
  anyattn_kv_pool_stats stats{};
  stats.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
  REQUIRE(anyattn_kv_pool_get_stats(p.pool, &stats, nullptr) == ANYATTN_OK);
  CHECK(stats.total_pages * stats.page_bytes == stats.pool_bytes);
  char* const begin = static_cast<char*>(cache_of(p.pool, 0, 0).base);
  const uint32_t layers[] = {3, 2};
  for (uint32_t g = 0; g < 2; ++g) {
    for (uint32_t layer = 0; layer < layers[g]; ++layer) {
      const anyattn_cache cache = cache_of(p.pool, g, layer);
      const anyattn_kv_cache_spec& given = g == 0 ? p.large.spec : p.small.spec;
      CHECK(reinterpret_cast<uintptr_t>(cache.base) % 256 == 0);
      CHECK(cache.block_stride_bytes % given.alignment == 0);
      CHECK(cache.block_stride_bytes >= layers[g] * given.block_bytes);
      CHECK(static_cast<char*>(cache.base) + (cache.num_blocks - 1) * cache.block_stride_bytes + given.block_bytes <=
            begin + stats.pool_bytes);
      CHECK(cache.spec->block_size == given.block_size);
      CHECK(cache.spec->block_bytes == given.block_bytes);
      CHECK(std::string(cache.spec->name) == "HND");
      CHECK(cache.spec->planes != given.planes);  // its own copy
      if (layer > 0) {
        const auto distance = static_cast<char*>(cache.base) - static_cast<char*>(cache_of(p.pool, g, layer - 1).base);
        CHECK(static_cast<uint64_t>(distance) >= given.block_bytes);
      }
    }
  }
}

TEST_CASE("pool_tables_and_slots_go_through_the_c_api") {
  Pool p;
  REQUIRE(p.create() == ANYATTN_OK);
  std::vector<int32_t> ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  uint32_t cached = 7;
  REQUIRE(anyattn_kv_pool_begin(p.pool, 5, ids.data(), 40, 0, &cached, &p.error) == ANYATTN_OK);
  CHECK(cached == 0);
  REQUIRE(anyattn_kv_pool_reserve(p.pool, 5, 40, &p.error) == ANYATTN_OK);
  for (uint32_t g = 0; g < 2; ++g) {
    const uint32_t width = anyattn_kv_pool_max_blocks_per_req(p.pool, g);
    CHECK(width == 32);  // 500 tokens in blocks of 16, up to whole manager blocks of 32 in the second group
    std::vector<int32_t> table(width, -5);
    const uint64_t request = 5;
    REQUIRE(anyattn_kv_pool_block_table(p.pool, g, &request, 1, table.data(), width, &p.error) == ANYATTN_OK);
    std::vector<int64_t> slots(40);
    REQUIRE(anyattn_kv_pool_slot_mapping(p.pool, g, 5, 0, 40, slots.data(), &p.error) == ANYATTN_OK);
    for (size_t t = 0; t < 40; ++t) CHECK(slots[t] == table[t / 16] * int64_t{16} + static_cast<int64_t>(t % 16));
    CHECK(table[g == 0 ? 3 : 4] == -5);
  }
  anyattn_kv_group_stats group{};
  group.struct_size = ANYATTN_KV_GROUP_STATS_SIZE;
  REQUIRE(anyattn_kv_pool_get_group_stats(p.pool, 1, &group, nullptr) == ANYATTN_OK);
  CHECK(group.block_size == 32);
  CHECK(group.kernel_block_size == 16);
  CHECK(group.used_blocks == 2);
  CHECK(std::string(group.label) == "sliding");
  CHECK(anyattn_kv_pool_release(p.pool, 5, &p.error) == ANYATTN_OK);
}

TEST_CASE("pool_budget_in_bytes_is_not_exceeded") {
  Pool p;
  p.options.num_blocks = 0;
  p.options.budget_bytes = 3'000'000;
  REQUIRE(p.create() == ANYATTN_OK);
  anyattn_kv_pool_stats stats{};
  stats.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
  REQUIRE(anyattn_kv_pool_get_stats(p.pool, &stats, nullptr) == ANYATTN_OK);
  CHECK(stats.pool_bytes <= 3'000'000);
  CHECK(stats.pool_bytes + stats.page_bytes > 3'000'000);
}

TEST_CASE("pool_refuses_wrong_options_by_name") {
  struct RefusalCase {
    const char* part;
    void (*spoil)(Pool&);
  };
  const RefusalCase cases[] = {
      {"manager block 40 is no whole number of kernel blocks of 16", [](Pool& p) { p.groups[1].block_size = 40; }},
      {"exactly one of them", [](Pool& p) { p.options.budget_bytes = 1; }},
      {"exactly one of them", [](Pool& p) { p.options.num_blocks = 0; }},
      {"0 groups", [](Pool& p) { p.options.num_groups = 0; }},
      {"max_num_reqs 0", [](Pool& p) { p.options.max_num_reqs = 0; }},
      {"0 layers", [](Pool& p) { p.groups[0].num_layers = 0; }},
      {"no spec", [](Pool& p) { p.groups[0].spec = nullptr; }},
      {"window_left -2", [](Pool& p) { p.groups[1].window_left = -2; }},
      {"alignment 48", [](Pool& p) { p.large.spec.alignment = 48; }},
      {"does not hold one page", [](Pool& p) { p.options.num_blocks = 0, p.options.budget_bytes = 100; }},
      {"block ids are 32 bits wide", [](Pool& p) { p.options.num_blocks = UINT64_MAX; }},
  };
  for (const RefusalCase& c : cases) {
    CAPTURE(c.part);
    Pool p;
    c.spoil(p);
    CHECK(p.create() != ANYATTN_OK);
    CAPTURE(p.text);
    CHECK(std::string(p.text).find(c.part) != std::string::npos);
    CHECK(p.pool == nullptr);
  }
}

TEST_CASE("pool_calls_accept_no_nulls_but_the_error") {
  Pool p;
  REQUIRE(p.create() == ANYATTN_OK);
  const int32_t id = 1;
  uint32_t cached;
  anyattn_kv_pool* none = p.pool;
  CHECK(anyattn_kv_pool_create(nullptr, &p.options, &none, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(none == nullptr);
  CHECK(anyattn_kv_pool_begin(nullptr, 1, &id, 1, 0, &cached, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_begin(p.pool, 1, nullptr, 1, 0, &cached, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_begin(p.pool, 1, &id, 1, 0, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_reserve(nullptr, 1, 1, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_commit(nullptr, 1, 1, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_release(nullptr, 1, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_block_table(p.pool, 0, nullptr, 1, nullptr, 1, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_layer_cache(p.pool, 0, 3, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  anyattn_cache cache{};
  CHECK(anyattn_kv_pool_layer_cache(p.pool, 0, 3, &cache, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_layer_cache(p.pool, 2, 0, &cache, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_kv_pool_max_blocks_per_req(p.pool, 2) == 0);
  anyattn_kv_pool_destroy(nullptr);
}

TEST_CASE("pool_hot_calls_allocate_nothing") {
  Pool p;
  REQUIRE(p.create() == ANYATTN_OK);
  std::vector<int32_t> ids(200);
  std::vector<int32_t> table(4 * 32);
  std::vector<int64_t> slots(200);
  int32_t failures = 0;
  const uint64_t before = heap::allocations();
  for (uint64_t round = 0; round < 200; ++round) {
    std::iota(ids.begin(), ids.end(), static_cast<int32_t>(round % 7 * 1000));
    const uint64_t requests[] = {2 * round, 2 * round + 1};
    for (const uint64_t request : requests) {
      uint32_t cached = 0;
      failures += anyattn_kv_pool_begin(p.pool, request, ids.data(), 150, 0, &cached, nullptr) != ANYATTN_OK;
      for (uint32_t total = cached + 1; total < 200; total += 37) {
        failures += anyattn_kv_pool_reserve(p.pool, request, total, nullptr) != ANYATTN_OK;
        failures += anyattn_kv_pool_slot_mapping(p.pool, 1, request, total - 1, 1, slots.data(), nullptr) != ANYATTN_OK;
        failures += anyattn_kv_pool_commit(p.pool, request, total, nullptr) != ANYATTN_OK;
      }
      failures += anyattn_kv_pool_append(p.pool, request, ids.data() + 150, 10, nullptr) != ANYATTN_OK;
    }
    for (uint32_t g = 0; g < 2; ++g)
      failures += anyattn_kv_pool_block_table(p.pool, g, requests, 2, table.data(), 32, nullptr) != ANYATTN_OK;
    anyattn_kv_pool_stats stats{};
    stats.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
    failures += anyattn_kv_pool_get_stats(p.pool, &stats, nullptr) != ANYATTN_OK;
    for (const uint64_t request : requests) failures += anyattn_kv_pool_release(p.pool, request, nullptr) != ANYATTN_OK;
  }
  CHECK(heap::allocations() - before == 0);
  CHECK(failures == 0);
}

}  // namespace
