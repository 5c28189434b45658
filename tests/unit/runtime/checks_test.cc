// SPDX-License-Identifier: Apache-2.0
// Every way in which a call can differ from what its group was made for, with the text it gets. Each case breaks one thing of a
// correct step; the backend must not be reached.
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "step_fixture.h"

using anyattn::Tensor;
using fake::answer;
using fake::Answer;
using fake::backend_state;
using fake::Step;

namespace {

struct Broken {
  const char* name;
  std::function<void(Step&)> change;
  const char* text;  // within the error
};

constexpr uint32_t kFloat = ANYATTN_DTYPE_FLOAT32;
alignas(256) unsigned char memory[8192];
int32_t ints[64];

void check_all(const char* function, anyattn_group* group, const std::vector<Broken>& cases,
               const std::function<Answer(Step&)>& call) {
  const anyattn_group_info info = fake::info_of(group);
  for (const Broken& broken : cases) {
    Step step(info, 3);
    REQUIRE(answer(anyattn_group_update, group, ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
    const int reached = backend_state().updates + backend_state().forwards + backend_state().cache_updates;
    broken.change(step);
    const Answer given = call(step);
    CAPTURE(function);
    CAPTURE(broken.name);
    INFO(given.text);
    CHECK(given.status == ANYATTN_INVALID_ARGUMENT);
    CHECK(given.text.find(std::string(function) + ": ") != std::string::npos);
    CHECK(given.text.find(broken.text) != std::string::npos);
    CHECK(backend_state().updates + backend_state().forwards + backend_state().cache_updates == reached);
  }
}

}  // namespace

TEST_CASE("update_refuses_batches_beyond_limits_and_features") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  static const uint8_t causal[3] = {1, 1, 1};
  const std::vector<Broken> cases = {
      {"reqs", [](Step& s) { s.batch.num_reqs = 9; }, "num_reqs is 9; the group was made with max_num_reqs 8"},
      {"tokens", [](Step& s) { s.batch.num_tokens = 65; }, "num_tokens is 65; the group was made with max_num_tokens 64"},
      {"query", [](Step& s) { s.batch.max_query_len = 33; }, "max_query_len is 33; the group was made with max_query_len 32"},
      {"keys", [](Step& s) { s.batch.max_seq_len = 257; }, "max_seq_len is 257; the group was made with max_seq_len 256"},
      {"no query_start_loc", [](Step& s) { s.batch.query_start_loc = nullptr; }, "query_start_loc is null"},
      {"no seq_lens", [](Step& s) { s.batch.seq_lens = nullptr; }, "seq_lens is null"},
      {"no table", [](Step& s) { s.batch.block_table = nullptr; }, "block_table is null; this group wants it: paged keys"},
      {"stride", [](Step& s) { s.batch.block_table_stride = 0; }, "block_table_stride is 0"},
      {"ragged", [](Step& s) { s.batch.key_start_loc = ints; },
       "key_start_loc is given, but this group's problem does not carry ragged"},
      {"causal", [](Step& s) { s.batch.causal = causal; },
       "causal is given, but this group's problem does not carry per_request_causal"},
      {"prefix", [](Step& s) { s.batch.mm_prefix_ranges = ints; }, "does not carry mm_prefix"},
      {"start", [](Step& s) { s.query_start_loc[0] = 1; }, "query_start_loc begins with 1"},
      {"falling", [](Step& s) { s.query_start_loc[2] = 0; }, "query_start_loc gives request 1 -1 rows"},
      {"long query", [](Step& s) { s.query_start_loc[3] = 4; }, "query_start_loc gives request 2 2 rows; allowed: 0 to 1"},
      {"end", [](Step& s) { s.batch.num_tokens = 2; }, "query_start_loc ends at 3; there are 2 rows"},
      {"length", [](Step& s) { s.seq_lens[1] = 21; }, "seq_lens[1] is 21; allowed: 0 to max_seq_len 20"},
      {"negative length", [](Step& s) { s.seq_lens[2] = -1; }, "seq_lens[2] is -1"},
      {"size", [](Step& s) { s.batch.struct_size = 0; }, "struct_size is 0"},
  };
  check_all("update", group.get(), cases,
            [&](Step& step) { return answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr); });
}

TEST_CASE("update_wants_what_features_and_reports_say") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  problem.set(ANYATTN_FEATURE_PER_REQUEST_CAUSAL).set(ANYATTN_FEATURE_MM_PREFIX);
  maker.report.needs_host_lengths = 1;
  maker.report.query_lengths = ANYATTN_QUERY_SINGLE;
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  Step step(fake::info_of(group.get()), 3);
  const auto refusal = [&] { return answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).text; };
  const uint8_t causal[3] = {1, 0, 1};
  CHECK(refusal().find("causal is null; this group wants it: per_request_causal") != std::string::npos);
  step.batch.causal = causal;
  CHECK(refusal().find("mm_prefix_start_loc is null; this group wants it: mm_prefix") != std::string::npos);
  step.batch.mm_prefix_start_loc = ints;
  CHECK(refusal().find("query_start_loc_host is null; this group wants it: the backend reads host lengths") !=
        std::string::npos);
  step.batch.query_start_loc_host = step.query_start_loc.data();
  CHECK(refusal().find("seq_lens_host is null") != std::string::npos);
  step.batch.seq_lens_host = step.seq_lens.data();
  CHECK(refusal().empty());
  step.batch.max_query_len = 2;
  CHECK(refusal().find("max_query_len is 2; FAKE_ATTN takes one row a request") != std::string::npos);
}

TEST_CASE("update_refuses_unequal_query_lengths_where_the_backend_wants_them_equal") {
  fake::reset_backend();
  fake::GroupMaker maker;
  maker.report.query_lengths = ANYATTN_QUERY_UNIFORM;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  Step step(fake::info_of(group.get()), 3);
  step.query_start_loc = {0, 2, 2, 4};  // the middle one is padding
  step.batch.num_tokens = 4;
  step.batch.max_query_len = 2;
  CHECK(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
  step.query_start_loc = {0, 2, 3, 4};
  CHECK(
      answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).text ==
      "group \"full\" (FAKE_ATTN): update: request 1 has 1 rows and another 2; FAKE_ATTN takes batches of equal query lengths");
}

TEST_CASE("update_takes_an_empty_batch") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  anyattn_batch empty{};
  empty.struct_size = ANYATTN_BATCH_SIZE;
  CHECK(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &empty, nullptr).status == ANYATTN_OK);
  Step step(fake::info_of(group.get()), 1);
  step.args.q = step.keep(Tensor(nullptr, kFloat, {0, 8, 64}));
  step.args.out = step.keep(Tensor(nullptr, kFloat, {0, 8, 64}));
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).text == "");
}

TEST_CASE("forward_refuses_args_that_do_not_match_the_problem") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  const Tensor small(memory, kFloat, {8});
  const std::vector<Broken> cases = {
      {"no q", [](Step& s) { s.args.q = {}; }, "q is missing; wanted: [3, 8, 64]"},
      {"rows", [](Step& s) { s.args.q = s.keep(s.q.rows(0, 2)); }, "q is [2, 8, 64]; wanted: [3, 8, 64]"},
      {"heads", [](Step& s) { s.args.q = s.keep(Tensor(memory, kFloat, {3, 7, 64})); }, "q is [3, 7, 64]; wanted: [3, 8, 64]"},
      {"ndim", [](Step& s) { s.args.q = s.keep(Tensor(memory, kFloat, {3, 512})); }, "q is [3, 512]; wanted: [3, 8, 64]"},
      {"wild ndim", [](Step& s) { s.args.q.ndim = 1000; }, "q has ndim 1000"},
      {"no shape", [](Step& s) { s.args.q.shape = nullptr; }, "shape null"},
      {"no strides", [](Step& s) { s.args.q.strides = nullptr; }, "strides null"},
      {"dtype", [](Step& s) { s.args.q = s.keep(Tensor(memory, ANYATTN_DTYPE_FLOAT16, {3, 8, 64})); },
       "q has dtype float16; wanted: float32"},
      {"lanes", [](Step& s) { s.args.q.dtype_lanes = 2; }, "q has dtype"},
      {"device", [](Step& s) { s.args.q.device_type = ANYATTN_DEVICE_CUDA; },
       "q lies on device type 2, id 0; the group's is type 1, id 0"},
      {"ordinal", [](Step& s) { s.args.q.device_id = 1; }, "q lies on device type 1, id 1"},
      {"alignment", [](Step& s) { s.args.q.byte_offset = 8; }, "byte_offset counted; wanted: a multiple of 16"},
      {"null data", [](Step& s) { s.args.q.data = nullptr; }, "q is [3, 8, 64] with null data"},
      {"no out", [](Step& s) { s.args.out = {}; }, "out is missing"},
      {"scale zero", [](Step& s) { s.args.softmax_scale = 0; }, "softmax_scale is 0"},
      {"scale inf", [](Step& s) { s.args.softmax_scale = std::numeric_limits<double>::infinity(); }, "softmax_scale is inf"},
      {"scale nan", [](Step& s) { s.args.softmax_scale = std::numeric_limits<double>::quiet_NaN(); }, "softmax_scale is"},
      {"k", [](Step& s) { s.args.k = s.k; }, "k is given, but this group's problem does not carry ragged keys"},
      {"v", [](Step& s) { s.args.v = s.v; }, "v is given"},
      {"sinks", [&](Step& s) { s.args.sinks = small; }, "sinks is given, but this group's problem does not carry sinks"},
      {"alibi", [&](Step& s) { s.args.alibi_slopes = small; }, "alibi_slopes is given"},
      {"q_scale", [&](Step& s) { s.args.q_scale = small; }, "q_scale is given"},
      {"k_scale", [&](Step& s) { s.args.k_scale = small; }, "k_scale is given"},
      {"v_scale", [&](Step& s) { s.args.v_scale = small; }, "v_scale is given"},
      {"out_scale", [&](Step& s) { s.args.out_scale = small; }, "out_scale is given"},
      {"block scales", [&](Step& s) { s.args.out_block_scales = small; }, "out_block_scales is given"},
      {"sparse", [&](Step& s) { s.args.sparse_indices = small; }, "sparse_indices is given"},
      {"lse", [&](Step& s) { s.args.lse = small; }, "lse is given, but this group's problem does not carry lse"},
      {"no cache", [](Step& s) { s.args.cache = nullptr; }, "cache is missing; this group's problem wants it: paged keys"},
      {"no spec", [](Step& s) { s.cache.spec = nullptr; }, "cache.spec is null"},
      {"no base", [](Step& s) { s.cache.base = nullptr; }, "cache.base is"},
      {"base", [](Step& s) { s.cache.base = static_cast<char*>(s.cache.base) + 64; }, "wanted: a multiple of 256"},
      {"stride", [](Step& s) { s.cache.block_stride_bytes -= 64; }, "cache.block_stride_bytes is"},
      {"stride multiple", [](Step& s) { s.cache.block_stride_bytes += 32; }, "cache.block_stride_bytes is"},
      {"scratch", [](Step& s) { s.args.scratch = memory + 16; }, "scratch lies at"},
  };
  check_all("forward", group.get(), cases,
            [&](Step& step) { return answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args); });
}

TEST_CASE("forward_refuses_a_cache_of_another_spec_by_digest") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  auto other_problem = fake::plain_problem();
  other_problem.problem.block_size = 32;
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  const auto other = maker.make(other_problem.view(), {fake::plain_backend()});
  const auto twin = maker.make(problem.view(), {fake::plain_backend()});
  Step step(fake::info_of(group.get()), 3);
  REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
  step.cache.spec = fake::info_of(other.get()).spec;
  const Answer refusal = answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args);
  CHECK(refusal.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(refusal.text.find("the cache was laid out by another spec (HND, digest") != std::string::npos);
  CHECK(answer(anyattn_group_kv_cache_update, group.get(), &step.update).status == ANYATTN_INVALID_ARGUMENT);
  step.cache.spec = fake::info_of(twin.get()).spec;  // another object, equal bytes
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).text == "");
}

TEST_CASE("forward_wants_the_tensors_of_its_features") {
  struct Wish {
    uint32_t feature;
    const char* tensor;
    std::function<void(Step&, const Tensor&)> give;
    Tensor right;
    Tensor wrong;
  };
  const Tensor heads(memory, kFloat, {8});
  const Tensor kv_heads(memory, kFloat, {2});
  const Tensor one(memory, kFloat, {1});
  const Tensor seven(memory, kFloat, {7});
  const Tensor sparse(memory, ANYATTN_DTYPE_INT32, {3, 4});
  const std::vector<Wish> wishes = {
      {ANYATTN_FEATURE_SINKS, "sinks", [](Step& s, const Tensor& t) { s.args.sinks = t; }, heads, seven},
      {ANYATTN_FEATURE_ALIBI, "alibi_slopes", [](Step& s, const Tensor& t) { s.args.alibi_slopes = t; }, heads, seven},
      {ANYATTN_FEATURE_ALIBI_SQRT, "alibi_slopes", [](Step& s, const Tensor& t) { s.args.alibi_slopes = t; }, heads, one},
      {ANYATTN_FEATURE_ALIBI_SYMMETRIC, "alibi_slopes", [](Step& s, const Tensor& t) { s.args.alibi_slopes = t; }, heads, one},
      {ANYATTN_FEATURE_QUANTISED_QUERY, "q_scale", [](Step& s, const Tensor& t) { s.args.q_scale = t; }, kv_heads, seven},
      {ANYATTN_FEATURE_KV_SCALES, "k_scale",
       [](Step& s, const Tensor& t) {
         s.args.k_scale = t;
         s.args.v_scale = t;
       },
       one, kv_heads},
      {ANYATTN_FEATURE_KV_SCALES_PER_HEAD, "k_scale",
       [](Step& s, const Tensor& t) {
         s.args.k_scale = t;
         s.args.v_scale = t;
       },
       kv_heads, one},
      {ANYATTN_FEATURE_OUT_SCALE, "out_scale", [](Step& s, const Tensor& t) { s.args.out_scale = t; }, one, seven},
      {ANYATTN_FEATURE_SPARSE_TOPK, "sparse_indices", [](Step& s, const Tensor& t) { s.args.sparse_indices = t; }, sparse, one},
  };
  for (const Wish& wish : wishes) {
    fake::reset_backend();
    fake::GroupMaker maker;
    auto problem = fake::plain_problem();
    problem.set(wish.feature).problem.top_k = 4;
    const auto group = maker.make(problem.view(), {fake::plain_backend()});
    Step step(fake::info_of(group.get()), 3);
    REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
    CAPTURE(wish.tensor);
    const auto text = [&] { return answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).text; };
    CHECK(text().find(std::string(wish.tensor) + " is missing; this group's problem wants it") != std::string::npos);
    wish.give(step, wish.wrong);
    CHECK(text().find(std::string(wish.tensor) + " is [") != std::string::npos);
    wish.give(step, wish.right);
    CHECK(text() == "");
  }
}

TEST_CASE("forward_writes_lse_in_the_bases_of_the_report_only") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  problem.set(ANYATTN_FEATURE_LSE);
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  Step step(fake::info_of(group.get()), 3);
  REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
  const auto text = [&] { return answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).text; };
  CHECK(text() == "");  // may be absent
  const Tensor lse(memory, kFloat, {3, 8});
  step.args.lse = lse;
  CHECK(text() == "group \"full\" (FAKE_ATTN): forward: lse_base is 0; FAKE_ATTN writes: 1 (natural)");
  step.args.lse_base = ANYATTN_LSE_BASE2;
  CHECK(text().find("lse_base is 2") != std::string::npos);
  step.args.lse_base = ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2;
  CHECK(text().find("lse_base is 3") != std::string::npos);
  step.args.lse_base = ANYATTN_LSE_NATURAL;
  CHECK(text() == "");
}

TEST_CASE("ragged_groups_take_keys_in_args_and_no_cache") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  problem.problem.key_source = ANYATTN_KEYS_RAGGED;
  problem.problem.block_size = 0;
  problem.problem.kv_cache_dtype = nullptr;
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  const anyattn_group_info info = fake::info_of(group.get());
  CHECK(info.spec == nullptr);
  CHECK(info.kv_cache_dtype == nullptr);
  Step step(info, 3);
  const auto update = [&] { return answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).text; };
  const auto forward = [&] { return answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).text; };
  CHECK(update().find("block_table is given, but this group's problem does not carry paged keys") != std::string::npos);
  step.batch.block_table = nullptr;
  CHECK(update().find("key_start_loc is null; this group wants it: ragged keys") != std::string::npos);
  const int32_t key_start_loc[4] = {0, 20, 40, 61};
  step.batch.key_start_loc = key_start_loc;
  CHECK(update().find("key_start_loc gives request 2 21 rows; allowed: 0 to 20") != std::string::npos);
  step.batch.max_seq_len = 21;
  CHECK(update() == "");

  CHECK(forward().find("k is missing; this group's problem wants it: ragged keys") != std::string::npos);
  const Tensor keys(memory, kFloat, {61, 2, 64});
  const Tensor values(memory, kFloat, {60, 2, 64});
  step.args.k = keys;
  step.args.v = values;
  CHECK(forward().find("v is [60, 2, 64]; wanted: [61, 2, 64]") != std::string::npos);
  step.args.v = keys;
  CHECK(forward().find("cache is given, but this group's problem does not carry paged keys") != std::string::npos);
  step.args.cache = nullptr;
  CHECK(forward() == "");
  CHECK(answer(anyattn_group_kv_cache_update, group.get(), &step.update).text.find("keys are ragged here, there is no cache") !=
        std::string::npos);
}

TEST_CASE("kv_cache_update_refuses_args_that_do_not_match_the_problem") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  const std::vector<Broken> cases = {
      {"no slots", [](Step& s) { s.update.slot_mapping = {}; }, "slot_mapping is missing"},
      {"slot dtype", [](Step& s) { s.update.slot_mapping = s.keep(Tensor(memory, ANYATTN_DTYPE_INT32, {3})); },
       "wanted: int64"},
      {"more slots than k", [](Step& s) { s.update.slot_mapping = s.keep(Tensor(memory, ANYATTN_DTYPE_INT64, {4})); },
       "slot_mapping has 4 entries, k only 3 rows"},
      {"no k", [](Step& s) { s.update.k = {}; }, "k is missing; this group's problem wants it: a cache of k and v"},
      {"no v", [](Step& s) { s.update.v = {}; }, "v is missing"},
      {"v rows", [](Step& s) { s.update.v = s.keep(s.v.rows(0, 2)); }, "v is [2, 2, 64]; wanted: [3, 2, 64]"},
      {"k dtype", [](Step& s) { s.update.k = s.keep(Tensor(memory, ANYATTN_DTYPE_BFLOAT16, {3, 2, 64})); },
       "k has dtype bfloat16"},
      {"kv_c", [](Step& s) { s.update.kv_c = s.keep(Tensor(memory, kFloat, {3, 2})); },
       "kv_c is given, but this group's problem does not carry mla"},
      {"k_pe", [](Step& s) { s.update.k_pe = s.keep(Tensor(memory, kFloat, {3, 2})); }, "k_pe is given"},
      {"k_scale", [](Step& s) { s.update.k_scale = s.keep(Tensor(memory, kFloat, {1})); }, "k_scale is given"},
      {"v_scale", [](Step& s) { s.update.v_scale = s.keep(Tensor(memory, kFloat, {1})); }, "v_scale is given"},
      {"no cache", [](Step& s) { s.update.cache = nullptr; }, "cache is missing"},
      {"size", [](Step& s) { s.update.struct_size = 2; }, "struct_size is 2"},
  };
  check_all("kv_cache_update", group.get(), cases,
            [&](Step& step) { return answer(anyattn_group_kv_cache_update, group.get(), &step.update); });
  // Fewer slots than rows: the slots count.
  Step step(fake::info_of(group.get()), 3);
  step.update.slot_mapping = step.keep(step.slots.rows(0, 2));
  CHECK(answer(anyattn_group_kv_cache_update, group.get(), &step.update).text == "");
}

TEST_CASE("mla_calls_refuse_args_that_do_not_match_the_problem") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::mla_problem();
  const auto group = maker.make(problem.view(), {fake::mla_backend()}, "mla");
  const anyattn_group_info info = fake::info_of(group.get());
  Step step(info, 2);
  const auto update = [&](uint32_t part) { return answer(anyattn_group_update, group.get(), part, &step.batch, nullptr).text; };
  anyattn_mqa_args mqa{};
  mqa.struct_size = ANYATTN_MQA_ARGS_SIZE;
  mqa.softmax_scale = 0.1;
  const auto mqa_text = [&] { return answer(anyattn_group_forward_mqa, group.get(), &mqa).text; };
  CHECK(mqa_text().find("forward_mqa: this part has no batch") != std::string::npos);
  anyattn_batch empty{};
  empty.struct_size = ANYATTN_BATCH_SIZE;
  REQUIRE(anyattn_group_update(group.get(), ANYATTN_PHASE_DECODE, &empty, nullptr, nullptr) == ANYATTN_OK);
  CHECK(mqa_text().find("the decode part has no rows in this step; skip the call") != std::string::npos);
  REQUIRE(update(ANYATTN_PHASE_DECODE) == "");
  const Tensor q_latent(memory, kFloat, {2, 4, 512}), q_pe(memory, kFloat, {2, 4, 64}), narrow(memory, kFloat, {2, 4, 32});
  CHECK(mqa_text().find("q_latent is missing; wanted: [2, 4, 512]") != std::string::npos);
  mqa.q_latent = q_latent;
  mqa.q_pe = narrow;
  CHECK(mqa_text().find("q_pe is [2, 4, 32]; wanted: [2, 4, 64]") != std::string::npos);
  mqa.q_pe = q_pe;
  mqa.out = q_pe;
  CHECK(mqa_text().find("out is [2, 4, 64]; wanted: [2, 4, 512]") != std::string::npos);
  mqa.out = q_latent;
  CHECK(mqa_text().find("cache is missing") != std::string::npos);
  mqa.cache = &step.cache;
  CHECK(mqa_text() == "");

  REQUIRE(update(ANYATTN_PHASE_PREFILL) == "");
  int32_t row_start_loc[3] = {0, 3, 5};
  const int32_t context_start[2] = {0, 0};
  anyattn_context_chunk chunk{ANYATTN_CONTEXT_CHUNK_SIZE, 3, 5, 3, row_start_loc, context_start};
  anyattn_context_gather_args gather{};
  gather.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
  gather.cache = &step.cache;
  const Tensor kv_c(memory, kFloat, {5, 512}), k_pe(memory, kFloat, {5, 64});
  gather.kv_c = kv_c;
  gather.k_pe = k_pe;
  const auto gather_text = [&] { return answer(anyattn_group_context_gather, group.get(), &chunk, &gather).text; };
  CHECK(gather_text().find("the chunk has num_reqs 3") != std::string::npos);
  chunk.num_reqs = 2;
  row_start_loc[1] = 4;
  CHECK(gather_text().find("row_start_loc gives request 0 4 rows; allowed: 0 to 3") != std::string::npos);
  row_start_loc[1] = 3;
  row_start_loc[2] = 6;
  CHECK(gather_text().find("row_start_loc ends at 6; there are 5 rows") != std::string::npos);
  row_start_loc[2] = 5;
  CHECK(gather_text() == "");

  int32_t query_start_loc[2] = {0, 4};
  int32_t key_start_loc[2] = {0, 6};
  anyattn_mha_args mha{};
  mha.struct_size = ANYATTN_MHA_ARGS_SIZE;
  mha.softmax_scale = 0.1;
  mha.num_reqs = 1;
  mha.max_query_len = 4;
  mha.max_key_len = 6;
  mha.query_start_loc = query_start_loc;
  mha.key_start_loc = key_start_loc;
  const Tensor q(memory, kFloat, {4, 4, 192}), k(memory, kFloat, {6, 4, 192}), v(memory, kFloat, {6, 4, 128}),
      out(memory, kFloat, {4, 4, 128});
  mha.q = q;
  mha.k = k;
  mha.v = v;
  mha.out = out;
  const auto mha_text = [&] { return answer(anyattn_group_forward_mha, group.get(), &mha).text; };
  CHECK(mha_text() == "");
  mha.causal = 2;
  CHECK(mha_text().find("causal 2") != std::string::npos);
  mha.causal = 1;
  mha.max_key_len = 257;
  CHECK(mha_text().find("max_key_len 257") != std::string::npos);
  mha.max_key_len = 6;
  key_start_loc[1] = 7;
  CHECK(mha_text().find("key_start_loc gives request 0 7 rows; allowed: 0 to 6") != std::string::npos);
  key_start_loc[1] = 6;
  query_start_loc[0] = 1;
  CHECK(mha_text().find("query_start_loc begins with 1") != std::string::npos);
  query_start_loc[0] = 0;
  mha.v = k;
  CHECK(mha_text().find("v is [6, 4, 192]; wanted: [6, 4, 128]") != std::string::npos);
}

TEST_CASE("merge_states_refuses_parts_that_do_not_fit_together") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  problem.set(ANYATTN_FEATURE_LSE);
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  const Tensor out(memory, kFloat, {3, 8, 64}), other(memory, kFloat, {2, 8, 64}), lse(memory, kFloat, {3, 8});
  anyattn_state states[2] = {};
  for (anyattn_state& state : states) state = {ANYATTN_STATE_SIZE, ANYATTN_LSE_NATURAL, out, lse};
  anyattn_merge_args merge{};
  merge.struct_size = ANYATTN_MERGE_ARGS_SIZE;
  merge.out = out;
  merge.states = states;
  merge.state_stride = sizeof states[0];
  const auto text = [&] { return answer(anyattn_group_merge_states, group.get(), &merge).text; };
  CHECK(text().find("num_states 0") != std::string::npos);
  merge.num_states = 2;
  CHECK(text() == "");  // lse may be absent
  states[1].out = other;
  CHECK(text().find("states[].out is [2, 8, 64]; wanted: [3, 8, 64]") != std::string::npos);
  states[1].out = out;
  states[1].lse_base = 3;
  CHECK(text().find("states[].lse_base is 3; allowed: 1 (natural), 2 (base 2)") != std::string::npos);
  states[1].lse_base = ANYATTN_LSE_BASE2;
  merge.lse = lse;
  CHECK(text().find("lse_base is 0") != std::string::npos);
  merge.lse_base = ANYATTN_LSE_BASE2;
  CHECK(text() == "");
  merge.state_stride = 100;
  CHECK(text().find("state_stride 100") != std::string::npos);
}
