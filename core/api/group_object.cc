// SPDX-License-Identifier: Apache-2.0
#include "api/group_object.h"

#include <algorithm>

#include "anyattn/backend.h"
#include "device/status_error.h"
#include "loader/call.h"
#include "selector/problem_text.h"

namespace anyattn::api {
namespace {

// Throws where a cold slot failed.
void require_ok(int32_t status, const ErrorBuffer& error, const std::string& who, const char* slot) {
  if (status == ANYATTN_OK) return;
  throw StatusError(status, who + ": " + slot + " failed: " + error.text("the backend gave no text"));
}

anyattn_memory memory_of(const Impl& impl, const anyattn_limits& limits, const std::string& who) {
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  ErrorBuffer error;
  const int32_t status = loader::call({impl.name(), "memory"}, error.get(), impl.table().memory,
                                      static_cast<const anyattn_impl*>(impl.get()), &limits, &memory);
  require_ok(status, error, who, "memory");
  return memory;
}

std::string who_text(const std::string& label, const std::string& backend) {
  return label.empty() ? "group of " + backend : "group \"" + label + "\" (" + backend + ")";
}

}  // namespace

Impl::Impl(const selector::Choice& choice, const anyattn_device_facts& facts, const selector::OwnedProblem& problem,
           const anyattn_kv_cache_spec* spec, const std::string& who)
    : backend_(choice.backend) {
  const anyattn_problem view = problem.view();
  ErrorBuffer error;
  const int32_t status =
      loader::call({name(), "impl_create"}, error.get(), table().impl_create, backend_.host, &facts, &view, spec, &impl_);
  require_ok(status, error, who, "impl_create");
  if (!impl_) throw StatusError(ANYATTN_INTERNAL, who + ": impl_create said OK and gave no impl");
}

Impl::~Impl() {
  if (impl_) loader::call_void({name(), "impl_destroy"}, nullptr, table().impl_destroy, impl_);
}

Part::~Part() {
  if (metadata) loader::call_void({impl->name(), "metadata_destroy"}, nullptr, impl->table().metadata_destroy, metadata);
}

}  // namespace anyattn::api

using anyattn::ErrorBuffer;
using anyattn::StatusError;
using anyattn::api::GroupRequest;
using anyattn::api::Impl;
using anyattn::api::Part;

anyattn_group::anyattn_group(const GroupRequest& given)
    : request(given), decision(request.decision), scratch(request.scratch), label(request.label) {
  const anyattn::selector::Choice& decode = decision->decode();
  const std::string &decode_name = decode.backend.key.name, &prefill_name = decision->prefill().backend.key.name;
  kv_cache_dtype = decision->problem.kv_cache_dtype().value_or("");
  block_size = decision->problem.block_size();
  decode_threshold = std::max(1u, decode.report.decode_threshold);
  query_lengths = decode.report.query_lengths;
  expected.backend = prefill_name == decode_name ? prefill_name : decode_name + " and " + prefill_name;
  expected.who = anyattn::api::who_text(label, expected.backend);

  take_limits();
  if (expected.is_paged) {
    owned_spec = decision->specs.front();
    spec = owned_spec.view();
    expected.spec_digest = spec.digest;
    expected.spec_block_bytes = spec.block_bytes;
    expected.spec_alignment = spec.alignment;
  }
  for (const anyattn::selector::Choice& choice : decision->choices) make_impl(choice);
  graph_level = ANYATTN_GRAPH_ALWAYS;
  for (const auto& impl : impls) warm_up(*impl, request.stream);
  decode_as_made = impls.front().get();
  newest_as_made = impls.back().get();
  writer = newest_as_made;
  const bool is_split = expected.is_mla || impls.size() > 1;
  const uint32_t phase = decision->problem.phase();
  if (!is_split) {
    make_part(ANYATTN_PHASE_BOTH, *impls.front(), request.stream);
    return;
  }
  if (phase != ANYATTN_PHASE_PREFILL) make_part(ANYATTN_PHASE_DECODE, *impls.front(), request.stream);
  if (phase != ANYATTN_PHASE_DECODE) make_part(ANYATTN_PHASE_PREFILL, *impls.back(), request.stream);
}

void anyattn_group::take_limits() {
  constexpr uint32_t kMostOfALimit = 1u << 30;  // past it, sums of two counts leave 32 bits
  anyattn_limits limits = request.limits;
  const struct {
    const char* field;
    uint32_t value;
  } counts[] = {{"max_num_reqs", limits.max_num_reqs},
                {"max_num_tokens", limits.max_num_tokens},
                {"max_query_len", limits.max_query_len},
                {"max_seq_len", limits.max_seq_len}};
  for (const auto& count : counts) {
    if (count.value == 0)
      throw StatusError(ANYATTN_INVALID_ARGUMENT, expected.who + ": limits." + count.field + " is 0; allowed: 1 and more");
    if (count.value > kMostOfALimit)
      throw StatusError(ANYATTN_INVALID_ARGUMENT, expected.who + ": limits." + count.field + " is " +
                                                      std::to_string(count.value) + "; allowed: up to " +
                                                      std::to_string(kMostOfALimit));
  }
  limits.struct_size = ANYATTN_LIMITS_SIZE;
  const anyattn_problem problem = decision->problem.view();
  if (problem.key_source == ANYATTN_KEYS_RAGGED) {
    limits.max_blocks_per_req = 0;
  } else if (limits.max_blocks_per_req == 0) {
    limits.max_blocks_per_req = limits.max_seq_len / block_size + (limits.max_seq_len % block_size != 0);
  }
  anyattn::api::expect_problem(problem, limits, &expected);
  expected.device_kind = static_cast<int32_t>(request.facts->device_kind);
  expected.device_ordinal = request.facts->ordinal;
  expected.host_memory = (request.facts->features & ANYATTN_DEVICE_HAS_HOST_MEMORY) != 0;
  expected.query_lengths = query_lengths;
  expected.lse_bases = ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2;
  for (const anyattn::selector::Choice& choice : decision->choices) {
    expected.lse_bases &= choice.report.lse_bases;
    expected.needs_host_lengths = expected.needs_host_lengths || choice.report.needs_host_lengths != 0;
  }
}

Impl& anyattn_group::make_impl(const anyattn::selector::Choice& choice) {
  anyattn::selector::OwnedProblem problem = decision->problem;
  problem.set_phase(choice.phase);
  auto impl = std::make_unique<Impl>(choice, *request.facts, problem, expected.is_paged ? &spec : nullptr, expected.who);
  const anyattn_memory memory = anyattn::api::memory_of(*impl, expected.limits, expected.who);
  const uint64_t bytes = std::max(scratch_bytes.load(), memory.scratch_bytes);
  scratch->reserve(bytes, expected.who);
  scratch_bytes = bytes;
  impls.push_back(std::move(impl));
  return *impls.back();
}

void anyattn_group::warm_up(const Impl& impl, void* stream) {
  ErrorBuffer error;
  void* block = nullptr;
  if (scratch_bytes != 0) {
    anyattn::api::require_ok(scratch->lend(stream, scratch_bytes, &block, error.get()), error, expected.who, "scratch");
  }
  uint32_t level = ANYATTN_GRAPH_NEVER;
  const int32_t status = anyattn::loader::call({impl.name(), "warmup"}, error.get(), impl.table().warmup, impl.get(),
                                               &expected.limits, stream, block, &level);
  anyattn::api::require_ok(status, error, expected.who, "warmup");
  graph_level = std::min(graph_level, level);
  const anyattn_problem problem = decision->problem.view();
  if (expected.has(ANYATTN_FEATURE_GRAPH) && graph_level < problem.graph_level) {
    throw StatusError(ANYATTN_UNSUPPORTED,
                      expected.who + ": warm-up reached graph level " +
                          std::string(anyattn::selector::graph_level_name(graph_level)) + "; the problem wants " +
                          std::string(anyattn::selector::graph_level_name(problem.graph_level)) + " at least");
  }
}

void anyattn_group::make_part(uint32_t phase, Impl& impl, void* stream) {
  using anyattn::memory::Block;
  using anyattn::memory::Place;
  const std::string& who = expected.who;
  const anyattn_memory memory = anyattn::api::memory_of(impl, expected.limits, who);
  const anyattn::device::DeviceId id{request.facts->device_kind, request.facts->ordinal};
  Part& part = parts[phase];
  part.persistent = Block(*request.provider, id, memory.persistent_bytes, Place::kDevice, who + ": persistent memory");
  part.persistent.zero(stream, who + ": persistent memory");
  part.pinned = Block(*request.provider, id, memory.pinned_bytes, Place::kPinned, who + ": pinned memory");
  part.pinned.zero(stream, who + ": pinned memory");
  ErrorBuffer error;
  anyattn_metadata* metadata = nullptr;
  const int32_t status =
      anyattn::loader::call({impl.name(), "metadata_create"}, error.get(), impl.table().metadata_create, impl.get(),
                            &expected.limits, request.metadata_mode, part.persistent.get(), part.pinned.get(), &metadata);
  anyattn::api::require_ok(status, error, who, "metadata_create");
  if (!metadata) throw StatusError(ANYATTN_INTERNAL, who + ": metadata_create said OK and gave no metadata");
  part.impl = &impl;
  part.metadata = metadata;
}
