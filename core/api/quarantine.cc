// SPDX-License-Identifier: Apache-2.0
// A group that leaves a failing backend: counts failures in a row, finds who takes over, moves part by part at updates.
#include <fmt/format.h>

#include <exception>
#include <memory>

#include "anyattn/util.h"
#include "api/group_object.h"
#include "device/status_error.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

// Of the caller, of the moment, or of a device on which no backend works.
bool speaks_of_backend(int32_t status) {
  return status != ANYATTN_OK && status != ANYATTN_INVALID_ARGUMENT && status != ANYATTN_MEMORY_NOT_NOW &&
         status != ANYATTN_DEVICE_LOST && status != ANYATTN_CAPTURE_VIOLATION;
}

// A name that a person wrote stays. Two backends in one group ("decode: ...; prefill: ...") are a rule's doing.
bool is_automatic(const std::string& origin) {
  return origin.starts_with("order") || origin.starts_with("unlisted") || origin.starts_with("profile");
}

// What the engine built on the report in use.
std::optional<selector::Reason> keeps_promises(const anyattn_group& group, const anyattn_support_report& next) {
  const auto wants = [](std::string field, std::string wanted, std::string allowed) {
    return selector::Reason{ANYATTN_REASON_COMBINATION, std::move(field), std::move(wanted), std::move(allowed), ""};
  };
  if (next.query_lengths < group.query_lengths)
    return wants("query_lengths", std::string(selector::query_lengths_name(group.query_lengths)),
                 std::string(selector::query_lengths_name(next.query_lengths)));
  if (group.expected.is_mla && next.decode_threshold < group.decode_threshold)
    return wants("decode_threshold", fmt::format("{}", group.decode_threshold), fmt::format("{}", next.decode_threshold));
  if (next.needs_host_lengths != 0 && !group.expected.needs_host_lengths)
    return wants("needs_host_lengths", "lengths on the device only", "lengths on the host");
  if (group.expected.has(ANYATTN_FEATURE_LSE) && (group.expected.lse_bases & ~next.lse_bases) != 0)
    return wants("lse_bases", fmt::format("bits {}", group.expected.lse_bases), fmt::format("bits {}", next.lse_bases));
  return std::nullopt;
}

}  // namespace

void Impl::note_rare(int32_t status, const anyattn_error* error) const noexcept {
  if (status == ANYATTN_OK) {
    failures_.store(0, std::memory_order_relaxed);
  } else {
    note_failure(status, error);
  }
}

void Impl::note_failure(int32_t status, const anyattn_error* error) const noexcept {
  if (!speaks_of_backend(status)) return;
  failures_.fetch_add(1, std::memory_order_relaxed);
  try {
    const std::lock_guard lock(mutex_);
    last_failure_ = error && error->text && error->capacity != 0 ? error->text : fmt::format("status {}", status);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory for a text; the count is what matters
  }
}

std::string Impl::last_failure() const {
  const std::lock_guard lock(mutex_);
  return last_failure_;
}

}  // namespace anyattn::api

using anyattn::api::Impl;
using anyattn::api::Part;

int32_t anyattn_group::leave_failing_backend(uint32_t phase, void* stream, anyattn_error* error) noexcept {
  try {
    return leave_or_stay(phase, stream, error);
  } catch (const std::exception& failure) {  // no memory for a text, and nothing has moved: the next update tries again
    return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "quarantine: %s", failure.what());
  }
}

int32_t anyattn_group::leave_or_stay(uint32_t phase, void* stream, anyattn_error* error) {
  const uint32_t limit = request.quarantine_after;
  if (limit == 0 || !anyattn::api::is_automatic(decision->origin)) return ANYATTN_OK;
  const Impl& newest = *impls.back();
  if (stopped_.empty() && newest.failures_in_a_row() >= limit) {
    const std::string why =
        fmt::format("failed {} calls in a row, the last with: {}", newest.failures_in_a_row(), newest.last_failure());
    try {
      take_over(why, stream);
    } catch (const std::exception& obstacle) {
      stopped_ = fmt::format("{}: {} {}; nobody takes over: {}; make the group again when that is mended, or name a backend",
                             expected.who, newest.name(), why, obstacle.what());
    }
  }
  if (!stopped_.empty()) return anyattn_error_set(error, ANYATTN_UNSUPPORTED, "%s", stopped_.c_str());
  if (parts[phase].impl == impls.back().get()) return ANYATTN_OK;
  try {
    // Work on the old metadata may be queued, so it stays.
    left_parts.push_back(std::move(parts[phase]));
    make_part(phase, *impls.back(), stream);
    return ANYATTN_OK;
  } catch (const std::exception& obstacle) {
    if (!parts[phase].metadata && !left_parts.empty()) {  // as it was, but without a batch
      std::destroy_at(&parts[phase]);
      std::construct_at(&parts[phase], std::move(left_parts.back()));
      left_parts.pop_back();
      parts[phase].state = {};
    }
    stopped_ = fmt::format("{}: {} takes over and gets no metadata: {}", expected.who, impls.back()->name(), obstacle.what());
    return anyattn_error_set(error, ANYATTN_UNSUPPORTED, "%s", stopped_.c_str());
  }
}

// Throws what keeps the group where it is; then nothing has changed.
void anyattn_group::take_over(const std::string& why, void* stream) {
  using anyattn::StatusError;
  if (request.metadata_mode == ANYATTN_METADATA_GRAPH_CAPTURE)
    throw StatusError(ANYATTN_UNSUPPORTED, "captured graphs hold the backend's launches");
  if (!request.successor) throw StatusError(ANYATTN_UNSUPPORTED, "no other backend is known");
  const Impl& left = *impls.back();
  anyattn::selector::Request::Successor successor{left.key(), why, expected.spec_digest, {}};
  successor.check = [this](const anyattn_support_report& report) { return anyattn::api::keeps_promises(*this, report); };
  const auto next = request.successor(successor);
  if (!next->ok()) throw StatusError(next->status, next->text);
  const auto& name = next->choices.front().backend.key.name;
  if (next->choices.size() != 1 || next->choices.front().backend.key == left.key())
    throw StatusError(ANYATTN_UNSUPPORTED, "a rule names " + name + " for the block size in use");
  const size_t before = impls.size();
  const uint32_t level = graph_level;
  try {
    warm_up(make_impl(next->choices.front()), stream);
  } catch (const std::exception& failure) {
    graph_level = level;
    impls.resize(before);
    throw StatusError(ANYATTN_UNSUPPORTED, name + " was next: " + failure.what());
  }
  writer.store(impls.back().get(), std::memory_order_release);  // from here on other threads may call it
  request.moved(left.key(), why, *impls.back());
}
