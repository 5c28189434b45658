// SPDX-License-Identifier: Apache-2.0
// What waves of 64 lanes and mfma.h compute, without AMD's hardware: the kernels of four problems run by emulated waves of 64 lanes (hip_on_host.h), on
// the tiles that a gfx90a gets, against the reference of the conformance kit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "anyattn/conformance/reference.h"
#include "anyattn/dtypes.hpp"
#include "problems.h"
#include "vendor/layout.h"
#include "wave_case.h"

namespace {

using namespace anyattn::portable;
namespace kit = anyattn::conformance;

constexpr double kScale = 0.11;
struct Request {
  int query_len, seq_len;
};

uint16_t stored(int kind, float x) {
  return kind == kF16 ? __builtin_bit_cast(uint16_t, anyattn::from_float<anyattn::Float16>(x))
                      : __builtin_bit_cast(uint16_t, anyattn::from_float<anyattn::BFloat16>(x));
}
float loaded(int kind, uint16_t bits) {
  return kind == kF16 ? anyattn::to_float(__builtin_bit_cast(anyattn::Float16, bits))
                      : anyattn::to_float(__builtin_bit_cast(anyattn::BFloat16, bits));
}

// 16-bit values as [tokens, width]. NaN at first.
struct Values {
  int kind, width;
  std::vector<uint16_t> bits;
  Values(int of_kind, int tokens, int of_width)
      : kind(of_kind), width(of_width), bits(static_cast<size_t>(tokens) * of_width, 0x7fff) {}
  uint16_t* row(int64_t token) { return bits.data() + token * width; }
  void draw(int64_t token, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int i = 0; i < width; ++i) row(token)[i] = stored(kind, normal(random));
  }
  void fill(int64_t token, float first, float rest) {
    for (int i = 0; i < width; ++i) row(token)[i] = stored(kind, i == 0 ? first : rest);
  }
  void read(int64_t token, float* into) {
    for (int i = 0; i < width; ++i) into[i] = loaded(kind, row(token)[i]);
  }
  Rows rows(int head_width) { return {reinterpret_cast<char*>(bits.data()), width * 2, head_width * 2}; }
};

// The batch through the emulated kernels and through the reference: are all outputs and log-sum-exps within the bound?
// `peaked`: of the first head, key 0 has the weight 1 and the value 0, all others 2^-15 and 1.
void check(const WaveCase& of, const std::vector<Request>& requests, bool peaked = false) {
  const Config& cfg = of.cfg;
  const int heads = cfg.group * cfg.num_kv_heads, num_reqs = static_cast<int>(requests.size());
  const int rope = cfg.latent ? cfg.head_size - cfg.head_size_v : 0;
  std::mt19937 random(802);
  std::vector<int32_t> starts{0}, lengths, table;
  constexpr int kBlocksAReq = 8;
  for (int r = 0; r < num_reqs; ++r) {
    starts.push_back(starts.back() + requests[r].query_len);
    lengths.push_back(requests[r].seq_len);
    for (int b = 0; b < kBlocksAReq; ++b) table.push_back((b * num_reqs + r) * 5 % (num_reqs * kBlocksAReq + 1));
  }
  const int num_blocks = num_reqs * kBlocksAReq + 1, tokens = starts.back(), keys_of_all = num_blocks * cfg.block_size;
  Values q(cfg.kind, tokens, heads * cfg.head_size), k(cfg.kind, keys_of_all, cfg.num_kv_heads * cfg.head_size);
  Values v(cfg.kind, keys_of_all, cfg.num_kv_heads * cfg.head_size_v), out(cfg.kind, tokens, heads * cfg.head_size_v);
  const auto slot_of = [&](int req, int64_t key) {
    return int64_t{table[static_cast<size_t>(req) * kBlocksAReq + key / cfg.block_size]} * cfg.block_size +
           key % cfg.block_size;
  };
  for (int t = 0; t < tokens; ++t) q.draw(t, random);
  for (int r = 0; r < num_reqs; ++r)
    for (int key = 0; key < requests[r].seq_len; ++key) {
      k.draw(slot_of(r, key), random);
      v.draw(slot_of(r, key), random);
      if (cfg.latent) std::memcpy(v.row(slot_of(r, key)), k.row(slot_of(r, key)), static_cast<size_t>(v.width) * 2);
    }
  for (int t = 0; peaked && t < tokens; ++t) q.fill(t, 1, 0);
  for (int r = 0; peaked && r < num_reqs; ++r)
    for (int key = 0; key < requests[r].seq_len; ++key) {
      k.fill(slot_of(r, key), key == 0 ? static_cast<float>(15 * std::log(2.0) / kScale) : 0, 0);
      v.fill(slot_of(r, key), key > 0, key > 0);
    }

  std::vector<float> lse(static_cast<size_t>(tokens) * heads, std::numeric_limits<float>::quiet_NaN());
  AttendArgs a{};
  a.batch.query_start_loc = starts.data();
  a.batch.seq_lens = lengths.data();
  a.batch.block_table = table.data();
  a.batch.table_stride = kBlocksAReq;
  a.batch.num_reqs = num_reqs;
  a.batch.num_tokens = tokens;
  a.q[0] = q.rows(cfg.head_size);
  a.q[1] = a.q[0];  // the part of the rope, behind the latent one
  a.q[1].data += (cfg.head_size - rope) * 2;
  a.k = k.rows(cfg.head_size);
  a.v = cfg.latent ? a.k : v.rows(cfg.head_size_v);
  a.block_bytes = int64_t{cfg.block_size} * k.width * 2;
  REQUIRE((cfg.latent || k.width == v.width));  // one stride of blocks
  a.num_blocks = static_cast<uint64_t>(num_blocks);
  a.out = out.rows(cfg.head_size_v);
  a.lse = {lse.data(), heads, 1, 1};
  a.softmax_scale = static_cast<float>(kScale);
  of.attend(a);

  const uint32_t dtype = cfg.kind == kF16 ? ANYATTN_DTYPE_FLOAT16 : ANYATTN_DTYPE_BFLOAT16;
  kit::RowRules rules;
  rules.softmax_scale = a.softmax_scale;
  rules.window_left = cfg.window_left;
  kit::Reference wanted;
  std::vector<float> row(static_cast<size_t>(q.width));
  for (int r = 0; r < num_reqs; ++r) {
    const kit::KeyReader reader{[&](int64_t key, float* into) { k.read(slot_of(r, key), into); },
                                [&](int64_t key, float* into) { v.read(slot_of(r, key), into); }};
    for (int t = 0; t < requests[r].query_len; ++t) {
      q.read(starts[r] + t, row.data());
      kit::attend_row({heads, cfg.num_kv_heads, cfg.head_size, cfg.head_size_v}, rules,
                      requests[r].seq_len - requests[r].query_len + t, requests[r].seq_len, row.data(), reader, dtype, &wanted);
    }
  }
  std::vector<float> got(out.bits.size());
  for (int t = 0; t < tokens; ++t) out.read(t, got.data() + static_cast<size_t>(t) * out.width);
  const kit::Bound bound = kit::bound_of(wanted, dtype);
  const kit::Comparison of_out = kit::compare(got, wanted.exact, bound.out, "out");
  const kit::Comparison of_lse = kit::compare(lse, wanted.exact_lse, bound.lse, "lse");
  INFO("out ", of_out.ratio, " of the bound, lse ", of_lse.ratio);
  CHECK(of_out.failure == "");
  CHECK(of_lse.failure == "");
}

// Is it the cut that a gfx90a gets for that problem, as its lane number `lane`?
void check_tile(const WaveCase& of, int lane) {
  Specialisation spec;
  spec.cfg = of.cfg;
  spec.cfg.matrix = 0;
  choose(wave_device(), of.cfg.matrix ? "auto" : "scalar", spec);
  CHECK(spec.cfg.matrix == of.cfg.matrix);
  REQUIRE(lane < spec.num_lanes);
  Tile tile = spec.lanes[lane];
  tile.slots = of.tile.slots;  // the size of the device
  CHECK(std::memcmp(&tile, &of.tile, sizeof tile) == 0);
}

}  // namespace

TEST_CASE("matrix_cores_of_amd_decode_within_the_bound") {
  check_tile(kWaveDecode, 0);
  check(kWaveDecode, {{1, 200}, {2, 77}, {1, 1}});
}

TEST_CASE("matrix_cores_of_amd_count_float16_weights_below_its_normal_numbers") { check(kWaveDecode, {{1, 500}}, true); }

TEST_CASE("matrix_cores_of_amd_prefill_within_the_bound") {
  check_tile(kWavePrefill, 1);
  check(kWavePrefill, {{20, 20}, {150, 270}});
}

TEST_CASE("matrix_cores_of_amd_decode_latent_layers_within_the_bound") {
  check_tile(kWaveLatent, 0);
  check(kWaveLatent, {{1, 50}, {2, 19}});
}

TEST_CASE("waves_of_64_lanes_compute_scalar_products_within_the_bound") {
  check_tile(kWaveScalar, 0);
  check(kWaveScalar, {{1, 130}, {3, 70}});
}

TEST_CASE("matrix_cores_of_amd_get_tiles_of_whole_products") {
  for (int head = 8; head <= 576; head += 8)
    for (const int group : {1, 4, 16, 17, 32, 33, 128})
      for (const bool is_latent : {false, true}) {
        Specialisation spec = is_latent ? latent(kBF16, kBF16, 512, head, group) : plain(kF16, kF16, head, group);
        choose(wave_device(), "auto", spec);
        CAPTURE(head);
        CAPTURE(group);
        CAPTURE(is_latent);
        REQUIRE(spec.cfg.matrix == 64);
        for (int lane = 0; tiles_fit(wave_device(), spec) && lane < spec.num_lanes; ++lane) {
          const Tile& tile = spec.lanes[lane];
          CHECK(tile.rows == 16 * tile.warps_m * tile.m_tiles);
          CHECK(tile.keys % (16 * tile.warps_n) == 0);
          CHECK(tile.columns % 16 == 0);
          CHECK(tile.share + tile.groups == 0);
          CHECK(launched_threads(spec.cfg, tile) <= 1024);
        }
      }
}

// Their layout is that of waves of 64 lanes and of 16-bit rows as they lie; all else is scalar, and so is all on request.
TEST_CASE("matrix_cores_of_amd_take_16_bit_rows_of_architectures_that_were_compiled") {
  const auto lanes_for = [](uint32_t major, uint32_t minor, Specialisation spec, const char* products = "auto") {
    anyattn_device_facts facts = wave_device();
    facts.arch_major = major;
    facts.arch_minor = minor;
    choose(facts, products, spec);
    return spec.cfg.matrix;
  };
  const Specialisation half = plain(kF16, kF16, 128, 4);
  CHECK(lanes_for(9, 0x0a, half) == 64);
  CHECK(lanes_for(9, 0x42, half) == 64);
  CHECK(lanes_for(11, 0x00, half) == 0);
  CHECK(lanes_for(9, 0x0a, half, "scalar") == 0);
  CHECK(lanes_for(9, 0x0a, plain(kF32, kF32, 128, 4)) == 0);
  CHECK(lanes_for(9, 0x0a, plain(kF16, kBF16, 128, 4)) == 0);
  CHECK(lanes_for(9, 0x0a, plain(kBF16, kRowsE4M3, 128, 4)) == 0);
}
