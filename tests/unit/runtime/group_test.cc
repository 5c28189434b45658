// SPDX-License-Identifier: Apache-2.0
// A group's life over in-process backends: order, memory, parts, failures of each slot, the two families of calls.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "device/status_error.h"
#include "step_fixture.h"

using anyattn::StatusError;
using fake::answer;
using fake::Answer;
using fake::backend_state;

TEST_CASE("group_makes_impl_memory_and_metadata_and_takes_them_back") {
  fake::reset_backend();
  fake::GroupMaker maker;
  {
    auto problem = fake::plain_problem();
    const auto group = maker.make(problem.view(), {fake::plain_backend()});
    CHECK(backend_state().impls == 1);
    CHECK(backend_state().metadata == 1);
    CHECK(backend_state().persistent_was_zero);
    CHECK(backend_state().problem_phase == ANYATTN_PHASE_BOTH);
    CHECK(maker.scratch().reserved_bytes() == 4096);
    CHECK(backend_state().scratch != nullptr);

    const anyattn_group_info info = fake::info_of(group.get());
    CHECK(info.device_kind == ANYATTN_DEVICE_CPU);
    CHECK(info.is_mla == 0);
    CHECK(info.needs_split == 0);
    CHECK(info.block_size == 16);
    CHECK(info.decode_threshold == 1);
    CHECK(info.backend == std::string("FAKE_ATTN"));
    CHECK(info.decode_backend == std::string("FAKE_ATTN"));
    CHECK(info.kv_cache_dtype == std::string("float32"));
    CHECK(info.label == std::string("full"));
    CHECK(info.spec->name == std::string("HND"));
    CHECK(info.scratch_bytes == 4096);
    CHECK(info.persistent_bytes == 512);
    CHECK(group->expected.limits.max_blocks_per_req == 16);  // ceil(256 / 16)
  }
  CHECK(backend_state().impls == 0);
  CHECK(backend_state().metadata == 0);
}

TEST_CASE("group_info_fills_what_an_older_caller_knows") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  anyattn_group_info info;
  std::memset(&info, 0x55, sizeof info);
  info.struct_size = ANYATTN_END_OFFSET(anyattn_group_info, is_mla);
  CHECK(anyattn_group_get_info(group.get(), &info, nullptr) == ANYATTN_OK);
  CHECK(info.is_mla == 0);
  CHECK(info.needs_split == 0x55555555u);
}

TEST_CASE("group_failure_of_each_slot_is_named_and_nothing_is_left") {
  for (const char* slot : {"impl_create", "memory", "warmup", "metadata_create"}) {
    for (const bool throws : {false, true}) {
      fake::reset_backend();
      (throws ? backend_state().throw_in : backend_state().fail_in) = slot;
      fake::GroupMaker maker;
      auto problem = fake::plain_problem();
      CAPTURE(slot);
      try {
        maker.make(problem.view(), {fake::plain_backend()});
        FAIL("no exception");
      } catch (const StatusError& error) {
        const std::string text = error.what();
        INFO(text);
        CHECK(error.status() == (throws ? ANYATTN_INTERNAL : ANYATTN_DEVICE_ERROR));
        CHECK(text.find("group \"full\" (FAKE_ATTN): " + std::string(slot) + " failed: ") == 0);
        CHECK(text.find(throws ? "planted exception" : "planted failure in") != std::string::npos);
      }
      CHECK(backend_state().impls == 0);
      CHECK(backend_state().metadata == 0);
    }
  }
}

TEST_CASE("group_refuses_limits_of_zero_and_a_graph_level_it_did_not_reach") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto graph = fake::plain_problem();
  graph.set(ANYATTN_FEATURE_GRAPH).problem.graph_level = ANYATTN_GRAPH_UNIFORM_BATCH;
  backend_state().graph_level = ANYATTN_GRAPH_SINGLE_TOKEN_DECODE;
  CHECK_THROWS_WITH_AS(maker.make(graph.view(), {fake::plain_backend()}),
                       "group \"full\" (FAKE_ATTN): warm-up reached graph level single_token_decode; the problem wants "
                       "uniform_batch at least",
                       StatusError);
  backend_state().graph_level = ANYATTN_GRAPH_ALWAYS;
  const auto group = maker.make(graph.view(), {fake::plain_backend()});
  CHECK(fake::info_of(group.get()).graph_level == ANYATTN_GRAPH_ALWAYS);
}

TEST_CASE("group_with_two_backends_has_two_parts") {
  fake::reset_backend();
  fake::GroupMaker maker;
  anyattn_backend decode = fake::plain_backend();
  decode.name = "FAKE_DECODE";
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {decode, fake::plain_backend()});
  CHECK(backend_state().impls == 2);
  CHECK(backend_state().metadata == 2);
  CHECK(backend_state().problem_phase == ANYATTN_PHASE_PREFILL);
  const anyattn_group_info info = fake::info_of(group.get());
  CHECK(info.needs_split == 1);
  CHECK(info.backend == std::string("FAKE_ATTN"));
  CHECK(info.decode_backend == std::string("FAKE_DECODE"));
  CHECK(info.persistent_bytes == 1024);

  fake::Step step(info, 3);
  CHECK(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_DECODE, &step.batch, nullptr).status == ANYATTN_OK);
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_DECODE, &step.args).status == ANYATTN_OK);
  const Answer prefill = answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_PREFILL, &step.args);
  CHECK(prefill.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(prefill.text.find("this part has no batch") != std::string::npos);
  const Answer both = answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr);
  CHECK(both.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(both.text ==
        "group \"full\" (FAKE_DECODE and FAKE_ATTN): update: there is no part BOTH; this group has DECODE and PREFILL");
}

TEST_CASE("group_refuses_the_calls_of_the_other_family_by_name") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto plain_problem = fake::plain_problem();
  auto mla_problem = fake::mla_problem();
  const auto plain = maker.make(plain_problem.view(), {fake::plain_backend()});
  const auto mla = maker.make(mla_problem.view(), {fake::mla_backend()}, "mla");
  CHECK(fake::info_of(mla.get()).is_mla == 1);
  CHECK(fake::info_of(mla.get()).needs_split == 1);

  anyattn_forward_args forward{};
  forward.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  Answer refusal = answer(anyattn_group_forward, mla.get(), ANYATTN_PHASE_DECODE, &forward);
  CHECK(refusal.status == ANYATTN_UNIMPLEMENTED);
  CHECK(refusal.text ==
        "group \"mla\" (FAKE_MLA): forward is of plain backends; this one is MLA: call forward_mqa, context_gather and "
        "forward_mha");

  anyattn_mqa_args mqa{};
  mqa.struct_size = ANYATTN_MQA_ARGS_SIZE;
  refusal = answer(anyattn_group_forward_mqa, plain.get(), &mqa);
  CHECK(refusal.status == ANYATTN_UNIMPLEMENTED);
  CHECK(refusal.text == "group \"full\" (FAKE_ATTN): forward_mqa is of MLA backends; this one is plain: call forward");
  anyattn_mha_args mha{};
  mha.struct_size = ANYATTN_MHA_ARGS_SIZE;
  CHECK(answer(anyattn_group_forward_mha, plain.get(), &mha).status == ANYATTN_UNIMPLEMENTED);
  anyattn_context_chunk chunk{};
  chunk.struct_size = ANYATTN_CONTEXT_CHUNK_SIZE;
  anyattn_context_gather_args gather{};
  gather.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
  CHECK(answer(anyattn_group_context_gather, plain.get(), &chunk, &gather).status == ANYATTN_UNIMPLEMENTED);
  anyattn_merge_args merge{};
  merge.struct_size = ANYATTN_MERGE_ARGS_SIZE;
  CHECK(answer(anyattn_group_merge_states, plain.get(), &merge).status == ANYATTN_UNIMPLEMENTED);
  CHECK(backend_state().other_calls == 0);
}

TEST_CASE("group_lends_scratch_where_the_caller_has_none") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  fake::Step step(fake::info_of(group.get()), 2);
  REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
  void* const warm = backend_state().scratch;

  backend_state().scratch = nullptr;
  REQUIRE(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).status == ANYATTN_OK);
  CHECK(backend_state().scratch == warm);
  CHECK(step.args.scratch == nullptr);

  fake::Buffer own(4096);
  step.args.scratch = own.get();
  REQUIRE(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).status == ANYATTN_OK);
  CHECK(backend_state().scratch == own.get());
}

TEST_CASE("group_reads_args_of_older_and_newer_callers") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  fake::Step step(fake::info_of(group.get()), 2);
  REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);

  // Newer: fields behind ours, which the backend must not be shown.
  struct Newer {
    anyattn_forward_args args;
    uint64_t unknown = ~uint64_t{0};
  } newer{step.args};
  newer.args.struct_size = sizeof newer;
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &newer.args).status == ANYATTN_OK);
  CHECK(backend_state().args_size == ANYATTN_FORWARD_ARGS_SIZE);

  // Older: no scratch and stream yet.
  anyattn_forward_args older = step.args;
  older.struct_size = ANYATTN_END_OFFSET(anyattn_forward_args, lse);
  older.scratch = reinterpret_cast<void*>(uintptr_t{3});
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &older).status == ANYATTN_OK);

  anyattn_forward_args unset = step.args;
  unset.struct_size = 0;
  const Answer refusal = answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &unset);
  CHECK(refusal.status == ANYATTN_INVALID_ARGUMENT);
  CHECK(refusal.text == "anyattn_group_forward: struct_size is 0; set it to the end offset of the last field you know");
}

TEST_CASE("group_keeps_exceptions_of_hot_slots_in") {
  fake::reset_backend();
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  fake::Step step(fake::info_of(group.get()), 2);
  REQUIRE(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_OK);
  backend_state().throw_in = "forward";
  Answer thrown = answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args);
  CHECK(thrown.status == ANYATTN_INTERNAL);
  CHECK(thrown.text.find("planted exception") != std::string::npos);
  backend_state().throw_in = "kv_cache_update";
  CHECK(answer(anyattn_group_kv_cache_update, group.get(), &step.update).status == ANYATTN_INTERNAL);

  // A failed update leaves nothing that forward would use.
  backend_state().throw_in = "metadata_update";
  CHECK(answer(anyattn_group_update, group.get(), ANYATTN_PHASE_BOTH, &step.batch, nullptr).status == ANYATTN_INTERNAL);
  backend_state().throw_in = "";
  CHECK(answer(anyattn_group_forward, group.get(), ANYATTN_PHASE_BOTH, &step.args).status == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("group_calls_refuse_null") {
  fake::reset_backend();
  CHECK(answer(anyattn_group_update, static_cast<anyattn_group*>(nullptr), 0u, static_cast<anyattn_batch*>(nullptr), nullptr)
            .text == "anyattn_group_update: group is null; it is needed");
  fake::GroupMaker maker;
  auto problem = fake::plain_problem();
  const auto group = maker.make(problem.view(), {fake::plain_backend()});
  CHECK(anyattn_group_forward(group.get(), 0, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_group_kv_cache_update(group.get(), nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_group_forward_mqa(group.get(), nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_group_forward_mha(group.get(), nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_group_context_gather(group.get(), nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_group_merge_states(group.get(), nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  anyattn_group_destroy(nullptr);
}
