// SPDX-License-Identifier: Apache-2.0
// Tiles of devices that are not here: what supports accepts has a tile of keys in flight and fits into their shared memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "alternatives.h"
#include "anyattn/absent_device.hpp"
#include "problems.h"
#include "vendor/layout.h"

const uint32_t anyattn::portable::kTargetDevice = ANYATTN_DEVICE_CUDA;

namespace {

using namespace anyattn::portable;

std::vector<anyattn_device_facts> all_devices() {
  std::vector<anyattn_device_facts> all;
  for (const char* architecture : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"})
    all.push_back(*anyattn::absent_cuda_device(architecture));
  all.push_back(small_device());
  return all;
}

// `which`: the table's, or a cut in words.
void check_lanes(const anyattn_device_facts& facts, const std::string& which, const Specialisation& spec) {
  const Config& cfg = spec.cfg;
  const bool scalar = !cfg.matrix || cfg.kind == kF32;
  for (int i = 0; i < spec.num_lanes; ++i) {
    const Tile& tile = spec.lanes[i];
    const int warps_of_keys = tile.groups ? 1 : tile.share ? tile.warps_n / tile.share : tile.warps_n;
    const std::string what = anyattn::text(
        facts.architecture, " with ", facts.shared_memory_per_block, " bytes, ", which, ", kind ", cfg.kind, ", rows ",
        cfg.rows, ", head ", cfg.head_size, "/", cfg.head_size_v, ", group ", cfg.group, ", latent ", cfg.latent, ", lane ", i,
        ": ", tile.rows, " rows, ", tile.keys, " keys, ", tile.columns, " columns, ", tile.stages, " in flight");
    CAPTURE(what);
    CHECK(tile.stages >= (tile.share || (tile.groups && !cfg.latent) ? 3 : tile.groups ? 2 : 1));
    CHECK((shared_bytes(cfg, tile) + 1024) * spec.min_blocks[i] <= static_cast<int>(facts.shared_memory_per_block) + 1024);
    CHECK(tile.keys % warps_of_keys == 0);
    CHECK(tile.keys / warps_of_keys >= (scalar ? 8 : 16));  // what a product takes, or what lanes deal out
    CHECK(tile.columns % row_step(cfg) == 0);
    CHECK((is_flat(cfg, tile) || tile.rows == 16 * tile.warps_m * tile.m_tiles || tile.share));
    CHECK(tile.head_units > 0);
  }
}

// Are they accepted? Then looks at every lane.
bool accepts(const anyattn_device_facts& facts, const char* products, Specialisation spec) {
  choose(facts, products, spec);
  if (!tiles_fit(facts, spec)) return false;
  check_lanes(facts, anyattn::text("products ", products), spec);
  return true;
}

constexpr int kGroups[] = {1, 4, 16, 17, 32, 33, 128};

}  // namespace

TEST_CASE("tiles_of_every_plain_problem_fit_every_device") {
  for (const anyattn_device_facts& facts : all_devices())
    for (const char* products : {"auto", "scalar"})
      for (int head = 8; head <= 576; head += 8)
        for (const int group : kGroups)
          for (const int kind : {kF32, kF16, kBF16})
            for (const int rows : {+kF32, +kBF16, +kRowsE4M3, +kRowsInt8Scaled, +kRowsE4M3Scaled, +kRowsInt4Scaled}) {
              const bool rotates = (head & (head - 1)) == 0 && head >= 16 && head <= 256;
              if (rows == kRowsInt4Scaled && !rotates) continue;
              if (!accepts(facts, products, plain(kind, rows, head, group)))
                FAIL_CHECK(facts.architecture, " ", facts.shared_memory_per_block, " refuses ", products, " kind ", kind,
                           " rows ", rows, " head ", head, " group ", group);
            }
}

TEST_CASE("tiles_of_latent_problems_fit_every_device") {
  for (const anyattn_device_facts& facts : all_devices())
    for (const char* products : {"auto", "scalar"})
      for (const int kind : {kF32, kF16, kBF16}) {
        for (const int heads : kGroups)
          for (const int rows : {+kF32, +kF16, +kBF16, +kRowsE4M3, +kRowsRecord}) {
            if (rows == kRowsRecord && kind == kF32) continue;
            if (!accepts(facts, products, latent(kind, rows, 512, 64, heads)))
              FAIL_CHECK(facts.architecture, " ", facts.shared_memory_per_block, " refuses latent ", products, " kind ", kind,
                         " rows ", rows, " heads ", heads);
            if (rows != kRowsRecord) CHECK(accepts(facts, products, latent(kind, rows, 64, 32, heads)));
          }
        for (const int head_v : {16, 128, 200, 512, 4096}) CHECK(accepts(facts, products, direct(kind, 192, head_v)));
        CHECK(accepts(facts, products, direct(kind, 576, 512)));
      }
}

TEST_CASE("other_cuts_of_a_problem_fit_every_device_and_differ_from_each_other") {
  std::vector<Specialisation> problems{plain(kF32, kF32, 128, 4), latent(kBF16, kBF16, 512, 64, 16),
                                       latent(kBF16, kRowsE4M3, 512, 64, 128), direct(kBF16, 192, 128)};
  for (const int rows : {+kBF16, +kRowsE4M3, +kRowsInt8Scaled, +kRowsInt4Scaled})
    problems.push_back(plain(kBF16, rows, 128, 4));
  const auto same = [](const Specialisation& a, const Specialisation& b) {
    return std::memcmp(a.lanes, b.lanes, sizeof a.lanes) == 0 &&
           std::equal(a.min_blocks, a.min_blocks + kMaxLanes, b.min_blocks);
  };
  for (const anyattn_device_facts& facts : all_devices()) {
    for (Specialisation spec : problems) {
      choose(facts, "auto", spec);
      if (!tiles_fit(facts, spec)) continue;
      std::vector<Alternative> seen{{spec, "the table's"}};
      for (const Alternative& one : alternatives_of(facts, spec)) {
        check_lanes(facts, one.words, one.spec);
        for (const Alternative& other : seen)
          CHECK_MESSAGE(!(same(one.spec, other.spec) || one.words == other.words), facts.architecture, ": ", one.words, " is ",
                        other.words);
        seen.push_back(one);
      }
      if (std::string(facts.architecture) == "sm_90" && !spec.direct && !spec.cfg.latent) CHECK(seen.size() > 4);
    }
  }
}
