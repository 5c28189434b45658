// SPDX-License-Identifier: Apache-2.0
// Random problems for the truth of `supports`: a yes must run and match the reference, a no must be refused by impl_create too.
// The tables of cases hold the values that people think of; these hold the others.
#include <algorithm>
#include <array>
#include <bit>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/conformance/case.h"
#include "anyattn/conformance/numbers.h"
#include "cases.h"

namespace anyattn::conformance {
namespace {

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : generator_(seed) {}
  bool one_in(uint64_t n) { return generator_.below(n) == 0; }
  int between(int least, int most) {
    return least + static_cast<int>(generator_.below(static_cast<uint64_t>(most - least) + 1));
  }
  template <class T, size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[generator_.below(N)];
  }

 private:
  SplitMix64 generator_;
};

constexpr std::array<uint32_t, 3> kDtypes{ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16};

// Multiples of 8 and of 4 more often than the rest, as in models.
int draw_head_size(Drawer& draw) {
  if (draw.one_in(6)) return draw.between(1, 300);
  return draw.one_in(4) ? 4 * draw.between(1, 64) : 8 * draw.between(1, 36);
}

void draw_lens(Drawer& draw, Case* c, bool decode_only) {
  const int count = draw.between(1, 4);
  for (int r = 0; r < count; ++r) {
    const int keys = draw.one_in(12) ? 0 : draw.between(1, draw.one_in(4) ? 120 : 40);
    int rows = draw.one_in(2) || decode_only ? 1 : draw.between(1, 9);
    if (!draw.one_in(10)) rows = std::min(rows, std::max(keys, 1));
    c->lens.push_back({rows, keys});
  }
}

std::string draw_format(Drawer& draw, bool latent) {
  const auto names = cache_format_names(latent);
  return std::string(names[static_cast<size_t>(draw.between(0, static_cast<int>(names.size()) - 1))]);
}

// Sees to what attention.h excludes: sparse, sharded and multi-modal rows stand apart from each other.
void draw_mask(Drawer& draw, Case* c) {
  switch (draw.between(0, 11)) {
    case 0:
      c->chunk_size = draw.between(1, 30);
      return;
    case 1:
      c->top_k = draw.between(1, 40);
      return;
    case 2:
      for (size_t r = 0; r < c->lens.size(); ++r) {
        if (c->lens[r].key_len < 2 || draw.one_in(2)) continue;
        const int first = draw.between(0, c->lens[r].key_len - 2);
        c->mm.push_back({static_cast<int32_t>(r), first, draw.between(first, c->lens[r].key_len - 1)});
      }
      break;
    case 3:
      for (size_t r = 0; r < c->lens.size(); ++r) c->causal.push_back(draw.between(0, 1));
      break;
    case 4:
      c->non_causal = true;
      break;
    case 5:
      c->cp_world_size = draw.between(2, 4);
      c->cp_interleave = draw.one_in(2) ? 1 : c->block_size;
      c->lse_base = ANYATTN_LSE_NATURAL;
      c->out_dtype = 0;  // the parts are merged in the query's dtype
      return;
    default:
      break;
  }
  if (draw.one_in(4)) c->window_left = draw.between(0, 50);
  if (c->window_left >= 0 && (c->non_causal || !c->causal.empty())) c->window_right = draw.between(-1, 20);
}

void draw_cache(Drawer& draw, Case* c) {
  c->block_size = draw.one_in(3) ? draw.between(1, 40) : draw.one_of(std::array{8, 16, 32, 64});
  if (draw.one_in(3)) c->format = draw_format(draw, false);
  const CacheFormat* format = c->format.empty() ? nullptr : find_cache_format(c->format);
  const auto turns = [](int size) { return std::has_single_bit(static_cast<unsigned>(size)); };
  if (format && format->coding == Coding::kRow4 && (!turns(c->head_size) || !turns(std::max(c->head_size_v, 1)))) {
    c->format.clear();  // rows that are rotated have a power of two of values: attention.h knows no others
    format = nullptr;
  }
  if (format && format->coding == Coding::kFp8 && draw.one_in(2)) {
    c->kv_scales = {draw.one_of(std::array{0.011f, 0.5f, 2.0f}), draw.one_of(std::array{0.003f, 1.0f, 0.25f})};
    c->head_scales = draw.one_in(3);
  }
  if (draw.one_in(6)) c->kv_transfer = true;
  if (draw.one_in(6)) c->surplus = draw.between(1, 3);
}

Case plain(Drawer& draw) {
  Case c;
  c.kind = draw.one_in(5) ? Kind::kRagged : Kind::kPaged;
  c.dtype = draw.one_of(kDtypes);
  if (draw.one_in(6)) c.out_dtype = draw.one_of(kDtypes);
  c.num_kv_heads = draw.between(1, 4);
  c.num_q_heads = c.num_kv_heads * draw.between(1, 6);
  c.head_size = draw_head_size(draw);
  if (draw.one_in(6)) c.head_size_v = draw_head_size(draw);
  if (c.kind == Kind::kPaged) draw_cache(draw, &c);
  draw_lens(draw, &c, draw.one_in(3));
  if (c.kind == Kind::kPaged) {
    draw_mask(draw, &c);
  } else {
    c.lens[0].key_len = std::max(c.lens[0].key_len, 1);  // k and v without a row would be absent tensors
    c.non_causal = draw.one_in(2);
    if (draw.one_in(3)) c.window_left = draw.between(0, 30);
    if (c.window_left >= 0 && c.non_causal) c.window_right = draw.between(-1, 20);
  }
  if (draw.one_in(4)) c.soft_cap = draw.one_of(std::array{1.0, 7.5, 50.0});
  if (draw.one_in(4)) c.alibi = draw.one_of(std::array{Alibi::kLinear, Alibi::kSqrt, Alibi::kSymmetric});
  if (draw.one_in(4)) c.sinks = {draw.one_of(std::array{-3.0f, 0.0f, 2.5f}), draw.one_of(std::array{-0.5f, 1.0f})};
  if (draw.one_in(8)) c.gain = 6.0;
  if (c.cp_world_size == 0 && !draw.one_in(4)) c.lse_base = draw.one_in(2) ? ANYATTN_LSE_NATURAL : ANYATTN_LSE_BASE2;
  if (draw.one_in(6)) c.fused = true;
  if (draw.one_in(8)) c.graph_level = draw.one_of(std::array{0, 3, 10, 20, 25, 30});
  if (draw.one_in(8) && c.cp_world_size == 0) c.pad_rows = draw.between(1, 3);
  return c;
}

Case latent(Drawer& draw) {
  Case c;
  c.kind = Kind::kMlaDecode;
  c.dtype = draw.one_of(kDtypes);
  c.num_q_heads = draw.between(1, 20);
  c.kv_lora_rank = draw.one_in(2) ? 512 : 32 * draw.between(1, 16);
  c.rope = draw.one_in(2) ? 64 : 8 * draw.between(1, 12);
  c.nope = draw.one_in(2) ? 128 : 16 * draw.between(1, 12);
  c.v_head_dim = draw.one_in(2) ? 128 : 16 * draw.between(1, 12);
  c.block_size = draw.one_in(3) ? draw.between(1, 40) : draw.one_of(std::array{16, 32, 64});
  draw_lens(draw, &c, draw.one_in(2));
  if (draw.one_in(3)) c.format = draw_format(draw, true);
  if (!c.format.empty() && find_cache_format(c.format)->coding == Coding::kTiles) {  // records of one size
    c.kv_lora_rank = 512;
    c.rope = 64;
  }
  if (draw.one_in(8)) c.window_left = draw.between(0, 30);
  if (draw.one_in(8)) c.soft_cap = 20.0;
  if (draw.one_in(8)) c.sinks = {1.0f};
  if (draw.one_in(5)) c.non_causal = true;
  if (!draw.one_in(3)) c.lse_base = draw.one_in(2) ? ANYATTN_LSE_NATURAL : ANYATTN_LSE_BASE2;
  if (draw.one_in(6)) c.fused = true;
  return c;
}

}  // namespace

std::vector<Case> truth_cases(uint64_t seed) {
  constexpr int kPlain = 96, kLatent = 32;
  std::vector<Case> cases;
  for (int i = 0; i < kPlain + kLatent; ++i) {
    // A generator of its own each, so that one case stays what it is when another changes.
    Drawer draw(seed * 1'000'003 + static_cast<uint64_t>(i));
    Case c = i < kPlain ? plain(draw) : latent(draw);
    const uint64_t data = 5000 + static_cast<uint64_t>(3 * i);
    c.seeds = {data, data + 1, data + 2};
    c = parse_case(case_text(c));  // what is shown is what is run
    c.name = (i < kPlain ? "truth/plain_" : "truth/latent_") + std::to_string(i < kPlain ? i : i - kPlain);
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace anyattn::conformance
