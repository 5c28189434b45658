// SPDX-License-Identifier: Apache-2.0
// The deal of Hopper's prefill, its device functions compiled for the host: every head of every work goes to one block, and the sections
// chosen leave the busiest block little more than its share, whatever lies in the batch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "doctest/doctest.h"

#include "device_names.h"

#include "sm90/prefill_deal.cuh"

namespace {

using namespace anyattn::flash;

constexpr int kBlocks = 132;

// Key tiles of row tiles of 32 tokens, longest first.
std::vector<int> works_of(const std::vector<std::pair<int, int>>& requests) {
  std::vector<int> works;
  for (const auto& [query, keys] : requests)
    for (int at = 0; at < query; at += 32) works.push_back((keys - query + std::min(query, at + 32) + 127) / 128);
  std::sort(works.begin(), works.end(), std::greater<>());
  return works;
}

// Tiles of the busiest block; 0 where a work's head is dealt twice or not at all.
int busiest_of(const std::vector<int>& works, int heads, int section_heads, int blocks) {
  std::vector<int> times(works.size() * static_cast<size_t>(heads));
  int busiest = 0;
  for (int block = 0; block < blocks; ++block) {
    SectionDeal deal(static_cast<int>(works.size()), heads, section_heads, blocks);
    int tiles = 0;
    for (int index, head; deal.next(block, blocks, index, head);) {
      ++times[static_cast<size_t>(index * heads + head)];
      tiles += works[static_cast<size_t>(index)];
    }
    busiest = std::max(busiest, tiles);
  }
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }) ? busiest : 0;
}

struct Chosen {
  int section_heads, busiest;
  double share;  // what no deal can be below
};
Chosen choose(const std::vector<std::pair<int, int>>& requests, int kv_heads) {
  const std::vector<int> works = works_of(requests);
  int64_t keys = 0;
  for (const auto& request : requests) keys += request.second;
  const SectionChoices choices(kv_heads, 1, keys * 512, 16 << 20);
  int busiest[SectionChoices::kCount];
  for (int i = 0; i < SectionChoices::kCount; ++i) busiest[i] = busiest_of(works, kv_heads, choices.section_heads(i), kBlocks);
  const int section = choices.choose(busiest);
  const double all = std::accumulate(works.begin(), works.end(), 0.0) * kv_heads;
  return {section, busiest_of(works, kv_heads, section, kBlocks), std::max<double>(all / kBlocks, works[0])};
}

}  // namespace

TEST_CASE("prefill_deal_gives_each_head_of_each_work_to_one_block") {
  std::mt19937 random(3);
  const auto draw = [&](int below) { return 1 + static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int n = 0; n < 300; ++n) {
    const std::vector<int> works(static_cast<size_t>(draw(300)), 5);
    const int heads = draw(40), section = draw(heads), blocks = draw(2) == 1 ? kBlocks : draw(200);
    INFO(works.size(), " works, ", heads, " heads by ", section, ", ", blocks, " blocks");
    REQUIRE(busiest_of(works, heads, section, blocks) > 0);
  }
}

TEST_CASE("prefill_sections_stay_within_l2_where_works_are_many_and_grow_where_they_are_few") {
  using Requests = std::vector<std::pair<int, int>>;
  CHECK(choose(Requests{{2048, 2048}}, 8).section_heads == 8);
  CHECK(choose(Requests{{16384, 16384}}, 8).section_heads == 2);
  CHECK(choose(Requests(4, {4096, 4096}), 8).section_heads == 2);
  CHECK(choose(Requests{{512, 32768}}, 8).busiest == 256);  // one head at a time: 1024
  CHECK(choose(Requests{{1024, 32768}}, 8).busiest == 512);
  // One chunk over a long prefix beside prompts: one head at a time has eight times the share.
  const Chosen mixed = choose(Requests{{119, 4305}, {1128, 1128}, {104, 35176}, {2011, 2011}, {518, 518}}, 8);
  CHECK(mixed.busiest < 1.35 * mixed.share);
}

TEST_CASE("prefill_sections_leave_the_busiest_block_little_more_than_its_share") {
  std::mt19937 random(5);
  const auto draw = [&](double low, double high) {
    return static_cast<int>(std::exp2(low + (high - low) * static_cast<double>(random()) / 4294967296.0));
  };
  double sum = 0;
  constexpr int kBatches = 300;
  for (int n = 0; n < kBatches; ++n) {
    std::vector<std::pair<int, int>> requests(1u << random() % 4);
    for (auto& [query, keys] : requests) {
      query = draw(6, 12);
      keys = query + (random() % 3 == 0 ? draw(8, 16) : 0);
    }
    const Chosen chosen = choose(requests, n % 2 ? 8 : 32);
    REQUIRE(chosen.busiest > 0);
    REQUIRE(chosen.busiest <= 2 * chosen.share);
    sum += chosen.busiest / chosen.share;
  }
  CHECK(sum / kBatches < 1.15);
}
