// SPDX-License-Identifier: Apache-2.0
#include "fake_backend.h"

#include <cstring>
#include <new>
#include <stdexcept>

#include "anyattn/util.h"

struct anyattn_impl {
  int unused = 0;
};
struct anyattn_metadata {
  int unused = 0;
};

namespace fake {
namespace {

// The planted failure of a slot, if it is this one's turn.
int32_t misbehave(const char* slot, anyattn_error* error) {
  const BackendState& state = backend_state();
  if (std::strcmp(state.throw_in, slot) == 0) throw std::runtime_error("planted exception");
  if (std::strcmp(state.fail_in, slot) == 0) {
    return anyattn_error_set(error, ANYATTN_DEVICE_ERROR, "FAKE_ATTN: planted failure in %s", slot);
  }
  return ANYATTN_OK;
}

int32_t impl_create(const anyattn_host*, const anyattn_device_facts*, const anyattn_problem* problem,
                    const anyattn_kv_cache_spec*, anyattn_impl** impl, anyattn_error* error) {
  if (const int32_t status = misbehave("impl_create", error)) return status;
  backend_state().problem_phase = problem->phase;
  ++backend_state().impls;
  *impl = new anyattn_impl;
  return ANYATTN_OK;
}

void impl_destroy(anyattn_impl* impl) {
  --backend_state().impls;
  delete impl;
}

int32_t memory(const anyattn_impl*, const anyattn_limits*, anyattn_memory* out, anyattn_error* error) {
  if (const int32_t status = misbehave("memory", error)) return status;
  out->scratch_bytes = backend_state().scratch_bytes;
  out->persistent_bytes = backend_state().persistent_bytes;
  out->pinned_bytes = backend_state().pinned_bytes;
  return ANYATTN_OK;
}

int32_t warmup(anyattn_impl*, const anyattn_limits*, void*, void* scratch, uint32_t* graph_level, anyattn_error* error) {
  if (const int32_t status = misbehave("warmup", error)) return status;
  backend_state().scratch = scratch;
  *graph_level = backend_state().graph_level;
  return ANYATTN_OK;
}

int32_t metadata_create(anyattn_impl*, const anyattn_limits*, uint32_t, void* persistent, void*, anyattn_metadata** metadata,
                        anyattn_error* error) {
  if (const int32_t status = misbehave("metadata_create", error)) return status;
  BackendState& state = backend_state();
  for (uint64_t i = 0; i < state.persistent_bytes; ++i) {
    if (static_cast<const char*>(persistent)[i] != 0) state.persistent_was_zero = false;
  }
  ++state.metadata;
  *metadata = new anyattn_metadata;
  return ANYATTN_OK;
}

int32_t metadata_update(anyattn_metadata*, const anyattn_batch*, void*, anyattn_error* error) {
  if (const int32_t status = misbehave("metadata_update", error)) return status;
  ++backend_state().updates;
  return ANYATTN_OK;
}

void metadata_destroy(anyattn_metadata* metadata) {
  --backend_state().metadata;
  delete metadata;
}

int32_t kv_cache_update(anyattn_impl*, const anyattn_kv_cache_update_args*, anyattn_error* error) {
  if (const int32_t status = misbehave("kv_cache_update", error)) return status;
  ++backend_state().cache_updates;
  return ANYATTN_OK;
}

int32_t forward(anyattn_impl*, const anyattn_metadata*, const anyattn_forward_args* args, anyattn_error* error) {
  if (const int32_t status = misbehave("forward", error)) return status;
  BackendState& state = backend_state();
  state.forwards.fetch_add(1, std::memory_order_relaxed);
  state.scratch.store(args->scratch, std::memory_order_relaxed);
  state.args_size.store(args->struct_size, std::memory_order_relaxed);
  return ANYATTN_OK;
}

int32_t count_other(anyattn_error* error, const char* slot) {
  if (const int32_t status = misbehave(slot, error)) return status;
  ++backend_state().other_calls;
  return ANYATTN_OK;
}

anyattn_backend common() {
  anyattn_backend backend{};
  backend.struct_size = ANYATTN_BACKEND_SIZE;
  backend.device_kind = ANYATTN_DEVICE_CPU;
  backend.impl_create = impl_create;
  backend.impl_destroy = impl_destroy;
  backend.memory = memory;
  backend.warmup = warmup;
  backend.metadata_create = metadata_create;
  backend.metadata_update = metadata_update;
  backend.metadata_destroy = metadata_destroy;
  backend.kv_cache_update = kv_cache_update;
  backend.merge_states = [](anyattn_impl*, const anyattn_merge_args*, anyattn_error* error) {
    return count_other(error, "merge_states");
  };
  return backend;
}

anyattn::selector::OwnedSpec spec_for(const anyattn_problem& problem) {
  const bool mla = anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA) != 0;
  const int64_t block = problem.block_size;
  const int64_t head = problem.head_size;
  anyattn_plane planes[2] = {};
  planes[0].struct_size = planes[1].struct_size = ANYATTN_PLANE_SIZE;
  planes[0].dtype = planes[1].dtype = ANYATTN_DTYPE_FLOAT32;
  const int64_t plane_bytes = block * (mla ? 1 : problem.num_kv_heads) * head * 4;
  anyattn_kv_cache_spec spec{};
  spec.struct_size = ANYATTN_KV_CACHE_SPEC_SIZE;
  spec.block_size = problem.block_size;
  spec.num_planes = mla ? 1 : 2;
  spec.block_bytes = static_cast<uint64_t>(plane_bytes) * spec.num_planes;
  spec.alignment = 64;
  spec.plane_stride = sizeof planes[0];
  spec.planes = planes;
  spec.name = mla ? "latent" : "HND";
  for (uint32_t i = 0; i < spec.num_planes; ++i) {
    planes[i].role = mla ? ANYATTN_PLANE_LATENT : ANYATTN_PLANE_K + i;
    planes[i].ndim = mla ? 3 : 4;
    planes[i].byte_offset = static_cast<uint64_t>(plane_bytes) * i;
    const int64_t dims[] = {0, block, mla ? head : problem.num_kv_heads, head};
    const int64_t strides[] = {static_cast<int64_t>(spec.block_bytes), head * 4, mla ? 4 : block * head * 4, 4};
    std::memcpy(planes[i].dims, dims, planes[i].ndim * sizeof dims[0]);
    std::memcpy(planes[i].strides, strides, planes[i].ndim * sizeof strides[0]);
  }
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  return anyattn::selector::OwnedSpec(spec);
}

}  // namespace

BackendState& backend_state() {
  static BackendState state;
  return state;
}

void reset_backend() {
  BackendState& state = backend_state();
  state.~BackendState();
  new (&state) BackendState;
}

anyattn_backend plain_backend() {
  anyattn_backend backend = common();
  backend.name = "FAKE_ATTN";
  backend.forward = forward;
  return backend;
}

anyattn_backend mla_backend() {
  anyattn_backend backend = common();
  backend.name = "FAKE_MLA";
  backend.forward_mqa = [](anyattn_impl*, const anyattn_metadata*, const anyattn_mqa_args*, anyattn_error* error) {
    return count_other(error, "forward_mqa");
  };
  backend.context_gather = [](anyattn_impl*, const anyattn_metadata*, const anyattn_context_chunk*,
                              const anyattn_context_gather_args*,
                              anyattn_error* error) { return count_other(error, "context_gather"); };
  backend.forward_mha = [](anyattn_impl*, const anyattn_mha_args*, anyattn_error* error) {
    return count_other(error, "forward_mha");
  };
  return backend;
}

OwnedWords plain_problem() {
  OwnedWords words;
  anyattn_problem& problem = words.problem;
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_feature_words = 1;
  problem.num_q_heads = 8;
  problem.num_kv_heads = 2;
  problem.head_size = problem.head_size_v = 64;
  problem.q_dtype = problem.out_dtype = ANYATTN_DTYPE_FLOAT32;
  problem.block_size = 16;
  problem.kv_cache_dtype = "float32";
  return words;
}

OwnedWords mla_problem() {
  OwnedWords words = plain_problem();
  anyattn_problem& problem = words.problem;
  problem.num_q_heads = 4;
  problem.num_kv_heads = 1;
  problem.kv_lora_rank = problem.head_size_v = 512;
  problem.qk_rope_head_dim = 64;
  problem.head_size = 576;
  problem.qk_nope_head_dim = problem.v_head_dim = 128;
  words.set(ANYATTN_FEATURE_MLA).set(ANYATTN_FEATURE_LSE);
  return words;
}

anyattn_limits limits() { return {ANYATTN_LIMITS_SIZE, 8, 64, 32, 256, 0}; }

GroupMaker::GroupMaker()
    : scratch_(std::make_unique<anyattn::memory::Scratch>(*devices_.provider(ANYATTN_DEVICE_CPU),
                                                          anyattn::device::DeviceId{ANYATTN_DEVICE_CPU, 0},
                                                          [](const std::string&) {})) {
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  report.supported = 1;
  report.block_size = 16;
  report.query_lengths = ANYATTN_QUERY_ANY;
  report.lse_bases = ANYATTN_LSE_NATURAL;
}

std::shared_ptr<anyattn::selector::Decision> GroupMaker::decide(const anyattn_problem& problem,
                                                                std::initializer_list<anyattn_backend> backends) const {
  auto decision = std::make_shared<anyattn::selector::Decision>();
  decision->problem = anyattn::selector::OwnedProblem(problem);
  decision->device_kind = ANYATTN_DEVICE_CPU;
  for (const anyattn_backend& backend : backends) {
    anyattn::selector::Choice choice;
    choice.phase = backends.size() == 1        ? ANYATTN_PHASE_BOTH
                   : decision->choices.empty() ? ANYATTN_PHASE_DECODE
                                               : ANYATTN_PHASE_PREFILL;
    choice.backend.key = {backend.name, ANYATTN_DEVICE_CPU};
    choice.backend.table = backend;
    choice.backend.host = &host_;
    choice.report = report;
    decision->choices.push_back(choice);
  }
  if (problem.key_source == ANYATTN_KEYS_PAGED) decision->specs.push_back(spec_for(problem));
  decision->origin = origin;
  return decision;
}

std::unique_ptr<anyattn_group> GroupMaker::make(const anyattn_problem& problem, std::initializer_list<anyattn_backend> backends,
                                                const char* label) {
  anyattn::api::GroupRequest request = base;
  request.decision = decide(problem, backends);
  request.limits = limits();
  request.label = label;
  request.provider = devices_.provider(ANYATTN_DEVICE_CPU);
  request.facts = &devices_.facts({ANYATTN_DEVICE_CPU, 0});
  request.scratch = scratch_.get();
  return std::make_unique<anyattn_group>(request);
}

}  // namespace fake
