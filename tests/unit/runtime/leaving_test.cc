// SPDX-License-Identifier: Apache-2.0
// A group that must leave its backend and cannot, or not wholly: graph capture, no metadata from the next one, promises of MLA.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fake_backend.h"

using fake::backend_state;

namespace {

struct Answer {
  int32_t status = 0;
  std::string text;
};

// A group whose backend has failed twice, and what its next update is told before anything else happens.
struct Failing {
  explicit Failing(fake::OwnedWords problem, anyattn_backend first) : words(problem), backend(first) {
    fake::reset_backend();
    maker.origin = "order";
    maker.report.decode_threshold = 8;
    maker.base.quarantine_after = 2;
    maker.base.successor = [this](const anyattn::selector::Request::Successor& successor) {
      ++asked;
      auto next = maker.decide(words.view(), {backend});
      next->choices.front().backend.key.name = "NEXT_ATTN";
      if (const auto reason = successor.check(next_report)) {
        next->error = anyattn::selector::Error::kNobody;
        next->status = ANYATTN_UNSUPPORTED;
        next->text = reason->field + " " + reason->wanted + " wanted, " + reason->allowed + " given";
      }
      return next;
    };
    maker.base.moved = [this](const anyattn::registry::Key& left, const std::string& why, const anyattn::api::Impl& next) {
      moves.push_back(left.name + " to " + next.name() + ": " + why);
    };
  }

  void start() {
    next_report = maker.report;
    group = maker.make(words.view(), {backend});
    anyattn_error error{nullptr, 0, 0, 0, 0};
    for (int i = 0; i < 2; ++i) group->impls.front()->note_failure(ANYATTN_INTERNAL, &error);
  }

  Answer update(uint32_t phase) {
    std::vector<char> text(1024);
    anyattn_error error{text.data(), static_cast<uint32_t>(text.size()), 0, 0, 0};
    return {group->leave_failing_backend(phase, nullptr, &error), text.data()};
  }

  fake::OwnedWords words;
  anyattn_backend backend;
  anyattn_support_report next_report{};
  fake::GroupMaker maker;
  int asked = 0;
  std::vector<std::string> moves;
  std::unique_ptr<anyattn_group> group;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a_group_whose_launches_are_captured_stops_with_the_reason_instead_of_moving") {
  Failing failing(fake::plain_problem(), fake::plain_backend());
  failing.maker.base.metadata_mode = ANYATTN_METADATA_GRAPH_CAPTURE;
  failing.start();
  for (int i = 0; i < 2; ++i) {
    const Answer answer = failing.update(ANYATTN_PHASE_BOTH);
    INFO(answer.text);
    CHECK(answer.status == ANYATTN_UNSUPPORTED);
    for (const char* part :
         {"FAKE_ATTN", "failed 2 calls in a row", "captured graphs hold the backend's launches", "name a backend"})
      CHECK(contains(answer.text, part));
  }
  CHECK(failing.asked == 0);
  CHECK(failing.moves.empty());
  CHECK(backend_state().impls == 1);
}

TEST_CASE("one_that_takes_over_and_gives_no_metadata_stops_the_group_and_leaves_it_whole") {
  Failing failing(fake::plain_problem(), fake::plain_backend());
  failing.start();
  backend_state().fail_in = "metadata_create";
  for (int i = 0; i < 2; ++i) {
    const Answer answer = failing.update(ANYATTN_PHASE_BOTH);
    INFO(answer.text);
    CHECK(answer.status == ANYATTN_UNSUPPORTED);
    for (const char* part : {"NEXT_ATTN takes over and gets no metadata", "metadata_create failed", "planted failure in"})
      CHECK(contains(answer.text, part));
  }
  REQUIRE(failing.moves.size() == 1);
  CHECK(contains(failing.moves[0], "FAKE_ATTN to NEXT_ATTN: failed 2 calls in a row"));
  // The old part is there, without a batch: a forward is refused, not run on a batch of another backend.
  anyattn::api::Part* const part = failing.group->part(ANYATTN_PHASE_BOTH);
  REQUIRE(part);
  CHECK(part->impl == failing.group->impls.front().get());
  CHECK(part->metadata != nullptr);
  CHECK(backend_state().metadata == 1);
  CHECK(backend_state().impls == 2);
  failing.group.reset();
  CHECK(backend_state().metadata == 0);
  CHECK(backend_state().impls == 0);
}

TEST_CASE("an_mla_group_moves_part_by_part_and_only_where_the_promises_are_kept") {
  Failing kept(fake::mla_problem(), fake::mla_backend());
  kept.start();
  CHECK(kept.update(ANYATTN_PHASE_DECODE).status == ANYATTN_OK);
  CHECK(kept.group->part(ANYATTN_PHASE_DECODE)->impl == kept.group->impls.back().get());
  CHECK(kept.group->part(ANYATTN_PHASE_PREFILL)->impl == kept.group->impls.front().get());
  CHECK(kept.update(ANYATTN_PHASE_PREFILL).status == ANYATTN_OK);
  CHECK(kept.group->part(ANYATTN_PHASE_PREFILL)->impl == kept.group->impls.back().get());
  CHECK(kept.moves.size() == 1);

  const struct {
    void (*spoil)(anyattn_support_report&);
    const char* text;
  } cases[] = {
      {[](anyattn_support_report& report) { report.decode_threshold = 4; }, "decode_threshold 8 wanted, 4 given"},
      {[](anyattn_support_report& report) { report.query_lengths = ANYATTN_QUERY_SINGLE; },
       "query_lengths any wanted, single given"},
      {[](anyattn_support_report& report) { report.lse_bases = ANYATTN_LSE_BASE2; }, "lse_bases"},
      {[](anyattn_support_report& report) { report.needs_host_lengths = 1; }, "needs_host_lengths"},
  };
  for (const auto& one : cases) {
    CAPTURE(one.text);
    Failing refused(fake::mla_problem(), fake::mla_backend());
    refused.start();
    one.spoil(refused.next_report);
    const Answer answer = refused.update(ANYATTN_PHASE_DECODE);
    INFO(answer.text);
    CHECK(answer.status == ANYATTN_UNSUPPORTED);
    CHECK(contains(answer.text, one.text));
    CHECK(contains(answer.text, "nobody takes over"));
    CHECK(refused.moves.empty());
    CHECK(refused.group->part(ANYATTN_PHASE_DECODE)->impl == refused.group->impls.front().get());
    CHECK(backend_state().impls == 1);
  }
}
