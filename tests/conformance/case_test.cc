// SPDX-License-Identifier: Apache-2.0
// Cases as data: text and back, names, and the figures of the recipes against the kit's own reference.
#include "anyattn/conformance/case.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "case_data.h"
#include "mla_data.h"

using namespace anyattn::conformance;

namespace {

std::string error_of(const char* text) {
  try {
    parse_case(text);
  } catch (const CaseError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// The whole case's result: ranks and chunks merged.
Reference whole_reference(const Case& c) {
  if (c.kind == Kind::kMlaPrefill) {
    const MlaData data = make_mla_data(c);
    std::vector<Reference> parts;
    for (const ChunkPlan& plan : plan_chunks(c)) parts.push_back(mla_part_reference(c, data, &plan));
    parts.push_back(mla_part_reference(c, data, nullptr));
    return merge_parts(parts, static_cast<size_t>(c.v_head_dim), c.dtype);
  }
  const PlainData data = make_plain_data(c, "");
  if (c.cp_world_size == 0) return plain_reference(c, data, 0);
  std::vector<Reference> parts;
  for (int rank = 0; rank < c.cp_world_size; ++rank) parts.push_back(plain_reference(c, data, static_cast<uint32_t>(rank)));
  return merge_parts(parts, static_cast<size_t>(data.shape.head_size_v), c.dtype);
}

}  // namespace

TEST_CASE("every_case_survives_the_way_to_text_and_back") {
  std::set<std::string> names;
  for (const Case& c : all_cases(Grid::kFull)) {
    CAPTURE(c.name);
    CHECK(names.insert(c.name).second);
    const std::string text = case_text(c);
    CHECK(case_text(parse_case(text)) == text);
  }
  CHECK(names.size() > 500);
}

TEST_CASE("a_pasted_case_means_what_its_words_say") {
  const Case c = parse_case(
      "paged bfloat16 q=8 kv=2 d=128 bs=16 lens=1/1328,5/18,129/463 window=255:3 cap=50 alibi=linear sinks=1,-2 lse=base2 "
      "seed=7 "
      "mm=1:2-9 cp=4:2 table=5,9-11 limits=8/256/129/2048 holes");

  CHECK(c.kind == Kind::kPaged);
  CHECK(c.dtype == ANYATTN_DTYPE_BFLOAT16);
  CHECK(c.lens[2] == RequestLens{129, 463});
  CHECK(c.window_left == 255);
  CHECK(c.window_right == 3);
  CHECK(c.seeds == std::vector<uint64_t>{7, 8, 9});
  CHECK(c.mm[0] == MmSpan{1, 2, 9});
  CHECK(c.table == std::vector<int64_t>{5, 9, 10, 11});
  CHECK(c.limits.seq_len == 2048);
  CHECK(c.holes);
  CHECK(parse_case(case_text(c)) == c);
}

TEST_CASE("a_wrong_case_text_says_which_word_and_what_is_allowed") {
  CHECK(contains(error_of("paged"), "wants a kind and a dtype"));
  CHECK(contains(error_of("pagd float32 lens=1/1"), "kind 'pagd' is unknown; allowed: paged, ragged"));
  CHECK(contains(error_of("paged float64 lens=1/1"), "allowed: float32, float16, bfloat16"));
  CHECK(contains(error_of("paged float32 lens=1/1 windw=3"), "word 'windw' is unknown"));
  CHECK(contains(error_of("paged float32 lens=1/x"), "'x' is no number"));
  CHECK(contains(error_of("paged float32 lens=1"), "wants two parts with '/'"));
  CHECK(contains(error_of("paged float32 lens=1/1 holes=1"), "holes takes no value"));
  CHECK(contains(error_of("paged float32 lens=1/1 window"), "window wants a value"));
  CHECK(contains(error_of("paged float32 lens=1/1 q=3 kv=2"), "q= must be a multiple of kv="));
  CHECK(contains(error_of("paged float32 lens=-1/1"), "'-1' is out of range"));
  CHECK(contains(error_of("paged float32 lens=99999999999999999999/1"), "is no number that fits"));
  CHECK(contains(error_of("paged float32"), "lens= is missing"));
  // Sizes that a cache format has no rows of: the encoder would read beyond them.
  CHECK(contains(error_of("paged float16 lens=1/9 d=96 format=int4_per_token_head"),
                 "must be a power of two from 2 to 4096; it is 96"));
  CHECK(contains(error_of("paged float16 lens=1/9 d=64 dv=24 format=int4_per_token_head"), "it is 24"));
  CHECK(contains(error_of("mla_decode float16 lens=1/9 lora=96 nope=16 rope=32 vdim=16 format=fp8_ds_mla"),
                 "these are 96 and 32"));
}

TEST_CASE("reference_reproduces_the_golden_figures_of_every_recipe") {
  int recipes = 0;
  for (const Case& c : all_cases(Grid::kSmall)) {
    if (c.golden.empty() || c.dtype != ANYATTN_DTYPE_FLOAT32) continue;
    CAPTURE(c.name);
    const Reference reference = whole_reference(c);
    const Figures figures = figures_of(reference.exact, reference.exact_lse);
    // Figures are printed with nine decimals. An engine stores expanded MLA keys in float32, and dequantised values are
    // float32 here; the recipes have neither.
    const double allowed = c.kind == Kind::kMlaPrefill || !c.format.empty() ? 1e-8 * c.golden[1] : 2e-9;
    CHECK(std::fabs(figures.sum - c.golden[0]) < allowed);
    CHECK(std::fabs(figures.sum_of_abs - c.golden[1]) < allowed);
    if (!std::isnan(c.golden[2])) CHECK(std::fabs(figures.weighted - c.golden[2]) < allowed);
    CHECK(std::fabs(figures.sum_of_lse - c.golden[3]) < allowed);
    CHECK(figures.count_of_lse == static_cast<size_t>(c.golden[4]));
    ++recipes;
  }
  CHECK(recipes >= 25);
}

TEST_CASE("figures_tell_a_window_one_too_wide") {
  Case c = parse_case("paged float32 q=4 kv=2 d=64 scale=0.125 lens=1/100 seed=101 window=16");

  const Figures figures = figures_of(whole_reference(c).exact, whole_reference(c).exact_lse);

  CHECK(figures.sum == doctest::Approx(6.948508514));
  CHECK(figures.weighted == doctest::Approx(8.440018491));
  CHECK(figures.sum_of_lse == doctest::Approx(11.527604596));
}

TEST_CASE("absorbed_and_expanded_mla_give_the_same_numbers") {
  const Case c = parse_case(
      "mla_prefill float32 q=5 lora=32 nope=16 rope=8 vdim=16 lens=3/43,4/12,2/2 context_chunk=64 seeds=311:312:313:314:315");
  const MlaData data = make_mla_data(c);
  const auto expanded = whole_reference(c);

  // Absorbed: q_latent[h] = q_nope . W_UK[h]^T, MQA over [latent | rope key], values are latents; only the scores, seen in
  // lse, can be compared without W_UV.
  const HeadShape shape{5, 1, 40, 32};
  Reference absorbed;
  RowRules rules;
  std::vector<float> q(5 * 40);
  rules.softmax_scale = data.softmax_scale;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const auto row = [&](int64_t key) { return data.rows.begin() + (data.key_start[r] + key) * 40; };
    const KeyReader keys{[&](int64_t key, float* into) { std::copy_n(row(key), 40, into); },
                         [&](int64_t key, float* into) { std::copy_n(row(key), 32, into); }};
    for (int i = 0; i < c.lens[r].query_len; ++i) {
      for (size_t h = 0; h < 5; ++h) {
        const float* from = data.q.data() + (static_cast<size_t>(data.query_start_loc[r] + i) * 5 + h) * 24;
        for (size_t l = 0; l < 32; ++l) {
          double sum = 0;
          for (size_t d = 0; d < 16; ++d) sum += static_cast<double>(from[d]) * data.w_uk[(h * 32 + l) * 16 + d];
          q[h * 40 + l] = static_cast<float>(sum);
        }
        std::copy_n(from + 16, 8, q.begin() + static_cast<ptrdiff_t>(h * 40 + 32));
      }
      attend_row(shape, rules, c.lens[r].key_len - c.lens[r].query_len + i, c.lens[r].key_len, q.data(), keys, c.dtype,
                 &absorbed);
    }
  }

  REQUIRE(absorbed.exact_lse.size() == expanded.exact_lse.size());
  for (size_t i = 0; i < absorbed.exact_lse.size(); ++i)
    CHECK(absorbed.exact_lse[i] == doctest::Approx(expanded.exact_lse[i]).epsilon(1e-5));
}
