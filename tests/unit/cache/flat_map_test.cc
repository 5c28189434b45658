// SPDX-License-Identifier: Apache-2.0
#include "cache/flat_map.h"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <unordered_map>

#include "cache/bitmap.h"

namespace {

using anyattn::cache::Bitmap;
using anyattn::cache::FlatMap;

// Every key falls into one of eight places, so that runs, gaps and wrapping around are the rule.
struct CrowdedKey {
  uint32_t value = 0;
  friend bool operator==(const CrowdedKey&, const CrowdedKey&) = default;
  friend uint64_t hash_of(const CrowdedKey& key) { return key.value % 8 + 60; }
};

TEST_CASE("flat_map_agrees_with_the_standard_map_under_collisions") {
  std::mt19937 random(3);
  FlatMap<CrowdedKey> map(32);
  std::unordered_map<uint32_t, uint32_t> oracle;
  for (uint32_t step = 0; step < 20000; ++step) {
    const uint32_t key = random() % 64;
    if (oracle.count(key)) {
      map.erase({key});
      oracle.erase(key);
    } else if (oracle.size() < 32) {
      map.insert({key}, step);
      oracle[key] = step;
    }
    map.erase({1000 + key});  // absent: nothing happens
    REQUIRE(map.size() == oracle.size());
    for (uint32_t k = 0; k < 64; ++k) {
      const auto found = oracle.find(k);
      REQUIRE(map.find({k}) == (found == oracle.end() ? FlatMap<CrowdedKey>::kAbsent : found->second));
    }
  }
}

TEST_CASE("bitmap_agrees_with_a_set_over_several_summary_words") {
  std::mt19937 random(4);
  Bitmap bitmap(10000);
  std::set<uint32_t> oracle;
  CHECK(bitmap.first() == Bitmap::kEmpty);
  for (int step = 0; step < 20000; ++step) {
    const uint32_t i = random() % 3 == 0 ? 9990 + random() % 10 : random() % 10000;
    if (oracle.erase(i)) {
      bitmap.erase(i);
    } else {
      bitmap.insert(i);
      oracle.insert(i);
    }
    if (step % 10 == 0 && !oracle.empty()) {
      bitmap.erase(*oracle.begin());
      oracle.erase(oracle.begin());
    }
    REQUIRE(bitmap.contains(i) == (oracle.count(i) == 1));
    REQUIRE(bitmap.first() == (oracle.empty() ? Bitmap::kEmpty : *oracle.begin()));
  }
  CHECK(!bitmap.contains(10000));
}

}  // namespace
