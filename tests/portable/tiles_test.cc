// SPDX-License-Identifier: Apache-2.0
// Tiles of devices that are not here: what supports accepts has a tile of keys in flight and fits into their shared memory.
#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "anyattn/absent_device.hpp"
#include "kernels.h"
#include "vendor/layout.h"

namespace {

using namespace anyattn::portable;

// AMD's 64 KiB, whose products are scalar.
anyattn_device_facts small_device() {
  anyattn_device_facts facts = *anyattn::absent_cuda_device("sm_80");
  facts.name = "64 KiB";
  facts.shared_memory_per_block = 64 << 10;
  return facts;
}

std::vector<anyattn_device_facts> all_devices() {
  std::vector<anyattn_device_facts> all;
  for (const char* architecture : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"})
    all.push_back(*anyattn::absent_cuda_device(architecture));
  all.push_back(small_device());
  return all;
}

Specialisation plain(int kind, int rows, int head_size, int group) {
  Specialisation spec;
  Config& cfg = spec.cfg;
  cfg.kind = cfg.out_kind = kind;
  cfg.rows = rows;
  cfg.head_size = cfg.head_size_v = head_size;
  cfg.group = group;
  cfg.num_kv_heads = 8;
  cfg.block_size = 64;
  cfg.window_left = cfg.window_right = -1;
  cfg.cp_world = cfg.cp_interleave = 1;
  return spec;
}
Specialisation latent(int kind, int rows, int rank, int rope, int heads) {
  Specialisation spec = plain(kind, rows, rank + rope, heads);
  spec.cfg.latent = spec.cfg.num_kv_heads = 1;
  spec.cfg.head_size_v = rank;
  return spec;
}
// Keys and values of the call itself, as MLA's prefill has them.
Specialisation direct(int kind, int head_size, int head_size_v) {
  Specialisation spec = plain(kind, kind, head_size, 1);
  spec.cfg.head_size_v = head_size_v;
  spec.cfg.block_size = 0;
  spec.direct = 1;
  return spec;
}

// Are they accepted? Then looks at every lane.
bool accepts(const anyattn_device_facts& facts, const char* products, Specialisation spec) {
  const anyattn_option option{ANYATTN_OPTION_SIZE, 0, "products", products};
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.num_options = 1;
  host.option_stride = sizeof option;
  host.options = &option;
  choose_tiles(anyattn::Host(&host), facts, spec);
  if (!tiles_fit(facts, spec)) return false;
  const Config& cfg = spec.cfg;
  const bool scalar = !cfg.matrix || cfg.kind == kF32;
  for (int i = 0; i < spec.num_lanes; ++i) {
    const Tile& tile = spec.lanes[i];
    const int warps_of_keys = tile.groups ? 1 : tile.share ? tile.warps_n / tile.share : tile.warps_n;
    const std::string what = anyattn::text(
        facts.architecture, " with ", facts.shared_memory_per_block, " bytes, products ", products, ", kind ", cfg.kind,
        ", rows ", cfg.rows, ", head ", cfg.head_size, "/", cfg.head_size_v, ", group ", cfg.group, ", latent ", cfg.latent,
        ", lane ", i, ": ", tile.rows, " rows, ", tile.keys, " keys, ", tile.columns, " columns, ", tile.stages, " in flight");
    CAPTURE(what);
    CHECK(tile.stages >= (tile.share ? 3 : 1));
    CHECK((shared_bytes(cfg, tile) + 1024) * spec.min_blocks[i] <= static_cast<int>(facts.shared_memory_per_block) + 1024);
    CHECK(tile.keys % warps_of_keys == 0);
    CHECK(tile.keys / warps_of_keys >= (scalar ? 8 : 16));  // what a product takes, or what lanes deal out
    CHECK(tile.columns % row_step(cfg) == 0);
    CHECK((is_flat(cfg, tile) || tile.rows == 16 * tile.warps_m * tile.m_tiles || tile.share));
    CHECK(tile.head_units > 0);
  }
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
