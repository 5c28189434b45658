// SPDX-License-Identifier: Apache-2.0
// The hot calls of the C API: check, lend scratch, cross into the backend once. No lock, no allocation, no text on the way
// that succeeds.
#include <cinttypes>

#include "anyattn/backend.h"
#include "anyattn/runtime.h"
#include "anyattn/util.h"
#include "api/checks.h"
#include "api/group_object.h"
#include "loader/call.h"

namespace anyattn::api {
namespace {

constexpr const char* kPhaseNames[] = {"BOTH", "PREFILL", "DECODE"};

[[gnu::cold]] int32_t refuse_null(const char* function, const anyattn_group* group, anyattn_error* error) {
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "anyattn_group_%s: %s is null; it is needed", function,
                           group ? "a struct" : "group");
}

[[gnu::cold]] int32_t refuse_size(const char* function, uint32_t size, anyattn_error* error) {
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT,
                           "anyattn_group_%s: struct_size is %u; set it to the end offset of the last field you know", function,
                           size);
}

[[gnu::cold]] int32_t refuse_part(const anyattn_group& group, const char* function, uint32_t part, anyattn_error* error) {
  const bool is_split = group.parts[ANYATTN_PHASE_BOTH].metadata == nullptr;
  return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s: %s: there is no part %s; this group has %s",
                           group.expected.who.c_str(), function, part < 3 ? kPhaseNames[part] : "with that number",
                           !is_split                                      ? "BOTH"
                           : !group.parts[ANYATTN_PHASE_DECODE].metadata  ? "PREFILL"
                           : !group.parts[ANYATTN_PHASE_PREFILL].metadata ? "DECODE"
                                                                          : "DECODE and PREFILL");
}

[[gnu::cold]] int32_t refuse_family(const anyattn_group& group, const char* function, anyattn_error* error) {
  return anyattn_error_set(error, ANYATTN_UNIMPLEMENTED, "%s: %s is of %s backends; this one is %s: call %s",
                           group.expected.who.c_str(), function, group.expected.is_mla ? "plain" : "MLA",
                           group.expected.is_mla ? "MLA" : "plain",
                           group.expected.is_mla ? "forward_mqa, context_gather and forward_mha" : "forward");
}

// The struct as this library knows it: the caller's own where its size is ours, else a copy in `own`.
template <class Struct>
inline const Struct* receive(const Struct* given, uint32_t size, Struct& own) {
  if (given->struct_size == size) [[likely]]
    return given;
  anyattn_read_struct(&own, size, given);
  return &own;
}

// Args with scratch: where the caller lent none, a copy in `own` that has the runtime's.
template <class Args>
inline int32_t lend_scratch(anyattn_group& group, const Args*& args, Args& own, anyattn_error* error) {
  const uint64_t bytes = group.scratch_bytes.load(std::memory_order_relaxed);
  if (args->scratch || bytes == 0) return ANYATTN_OK;
  if (args != &own) own = *args;
  args = &own;
  return group.scratch->lend(own.stream, bytes, &own.scratch, error);
}

inline int32_t done(int32_t status, anyattn_error* error) {
  if (error) error->status = status;
  return status;
}

// Of calls that give an answer: their success ends a row of failures.
inline int32_t answered(const Impl& impl, int32_t status, anyattn_error* error) {
  impl.note(status, error);
  return done(status, error);
}

// Of all others.
inline int32_t served(const Impl& impl, int32_t status, anyattn_error* error) {
  if (status != ANYATTN_OK) [[unlikely]]
    impl.note_failure(status, error);
  return done(status, error);
}

int32_t update(anyattn_group& group, uint32_t phase, const anyattn_batch& batch, void* stream, anyattn_error* error) {
  Part* part = group.part(phase);
  if (!part) return refuse_part(group, "update", phase, error);
  if (const int32_t status = check_batch(group.expected, phase, batch, error)) return status;
  if (const int32_t status = group.leave_failing_backend(phase, stream, error)) return status;
  // A failed update leaves metadata that nobody may use.
  part->state.is_ready = false;
  const Impl& impl = *part->impl;
  const int32_t status =
      loader::call({impl.name(), "metadata_update"}, error, impl.table().metadata_update, part->metadata, &batch, stream);
  if (status != ANYATTN_OK) {
    impl.note_failure(status, error);
    return status;
  }
  part->state = {true, batch.num_reqs, batch.num_tokens};
  return ANYATTN_OK;
}

}  // namespace
}  // namespace anyattn::api

using namespace anyattn::api;  // NOLINT(google-build-using-namespace): this file is the API of that namespace
namespace loader = anyattn::loader;

int32_t anyattn_group_update(anyattn_group* group, uint32_t part, const anyattn_batch* batch, void* stream,
                             anyattn_error* error) {
  if (!group || !batch) return refuse_null("update", group, error);
  if (batch->struct_size < sizeof(uint32_t)) return refuse_size("update", batch->struct_size, error);
  anyattn_batch own;
  return done(update(*group, part, *receive(batch, ANYATTN_BATCH_SIZE, own), stream, error), error);
}

int32_t anyattn_group_kv_cache_update(anyattn_group* group, const anyattn_kv_cache_update_args* args, anyattn_error* error) {
  if (!group || !args) return refuse_null("kv_cache_update", group, error);
  if (args->struct_size < sizeof(uint32_t)) return refuse_size("kv_cache_update", args->struct_size, error);
  anyattn_kv_cache_update_args own;
  args = receive(args, ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE, own);
  if (const int32_t status = check_kv_cache_update(group->expected, *args, error)) return status;
  // With two backends either may write: they share the spec.
  const Impl& impl = *group->writer.load(std::memory_order_acquire);
  return served(impl, loader::call({impl.name(), "kv_cache_update"}, error, impl.table().kv_cache_update, impl.get(), args),
                error);
}

int32_t anyattn_group_forward(anyattn_group* group, uint32_t part, const anyattn_forward_args* args, anyattn_error* error) {
  if (!group || !args) return refuse_null("forward", group, error);
  if (args->struct_size < sizeof(uint32_t)) return refuse_size("forward", args->struct_size, error);
  if (group->expected.is_mla) return refuse_family(*group, "forward", error);
  const Part* rows = group->part(part);
  if (!rows) return refuse_part(*group, "forward", part, error);
  anyattn_forward_args own;
  args = receive(args, ANYATTN_FORWARD_ARGS_SIZE, own);
  if (const int32_t status = check_forward(group->expected, rows->state, *args, error)) return status;
  if (const int32_t status = lend_scratch(*group, args, own, error)) return status;
  const Impl& impl = *rows->impl;
  return answered(impl,
                  loader::call({impl.name(), "forward"}, error, impl.table().forward, impl.get(),
                               static_cast<const anyattn_metadata*>(rows->metadata), args),
                  error);
}

int32_t anyattn_group_forward_mqa(anyattn_group* group, const anyattn_mqa_args* args, anyattn_error* error) {
  if (!group || !args) return refuse_null("forward_mqa", group, error);
  if (args->struct_size < sizeof(uint32_t)) return refuse_size("forward_mqa", args->struct_size, error);
  if (!group->expected.is_mla) return refuse_family(*group, "forward_mqa", error);
  const Part* rows = group->part(ANYATTN_PHASE_DECODE);
  if (!rows) return refuse_part(*group, "forward_mqa", ANYATTN_PHASE_DECODE, error);
  anyattn_mqa_args own;
  args = receive(args, ANYATTN_MQA_ARGS_SIZE, own);
  if (const int32_t status = check_mqa(group->expected, rows->state, *args, error)) return status;
  if (const int32_t status = lend_scratch(*group, args, own, error)) return status;
  const Impl& impl = *rows->impl;
  return answered(impl,
                  loader::call({impl.name(), "forward_mqa"}, error, impl.table().forward_mqa, impl.get(),
                               static_cast<const anyattn_metadata*>(rows->metadata), args),
                  error);
}

int32_t anyattn_group_context_gather(anyattn_group* group, const anyattn_context_chunk* chunk,
                                     const anyattn_context_gather_args* args, anyattn_error* error) {
  if (!group || !chunk || !args) return refuse_null("context_gather", group, error);
  const uint32_t size = args->struct_size < chunk->struct_size ? args->struct_size : chunk->struct_size;
  if (size < sizeof(uint32_t)) return refuse_size("context_gather", size, error);
  if (!group->expected.is_mla) return refuse_family(*group, "context_gather", error);
  const Part* rows = group->part(ANYATTN_PHASE_PREFILL);
  if (!rows) return refuse_part(*group, "context_gather", ANYATTN_PHASE_PREFILL, error);
  anyattn_context_chunk own_chunk;
  anyattn_context_gather_args own;
  chunk = receive(chunk, ANYATTN_CONTEXT_CHUNK_SIZE, own_chunk);
  args = receive(args, ANYATTN_CONTEXT_GATHER_ARGS_SIZE, own);
  if (const int32_t status = check_context_gather(group->expected, rows->state, *chunk, *args, error)) return status;
  const Impl& impl = *rows->impl;
  return served(impl,
                loader::call({impl.name(), "context_gather"}, error, impl.table().context_gather, impl.get(),
                             static_cast<const anyattn_metadata*>(rows->metadata), chunk, args),
                error);
}

int32_t anyattn_group_forward_mha(anyattn_group* group, const anyattn_mha_args* args, anyattn_error* error) {
  if (!group || !args) return refuse_null("forward_mha", group, error);
  if (args->struct_size < sizeof(uint32_t)) return refuse_size("forward_mha", args->struct_size, error);
  if (!group->expected.is_mla) return refuse_family(*group, "forward_mha", error);
  anyattn_mha_args own;
  args = receive(args, ANYATTN_MHA_ARGS_SIZE, own);
  if (const int32_t status = check_mha(group->expected, *args, error)) return status;
  if (const int32_t status = lend_scratch(*group, args, own, error)) return status;
  const Impl& impl = *group->writer.load(std::memory_order_acquire);
  return answered(impl, loader::call({impl.name(), "forward_mha"}, error, impl.table().forward_mha, impl.get(), args), error);
}

int32_t anyattn_group_merge_states(anyattn_group* group, const anyattn_merge_args* args, anyattn_error* error) {
  if (!group || !args) return refuse_null("merge_states", group, error);
  if (args->struct_size < sizeof(uint32_t)) return refuse_size("merge_states", args->struct_size, error);
  anyattn_merge_args own;
  args = receive(args, ANYATTN_MERGE_ARGS_SIZE, own);
  if (!group->expected.has(ANYATTN_FEATURE_LSE)) {
    return anyattn_error_set(error, ANYATTN_UNIMPLEMENTED,
                             "%s: merge_states: this group's problem does not carry lse; make the group with it",
                             group->expected.who.c_str());
  }
  if (const int32_t status = check_merge(group->expected, *args, error)) return status;
  const Impl& impl = *group->writer.load(std::memory_order_acquire);
  return served(impl, loader::call({impl.name(), "merge_states"}, error, impl.table().merge_states, impl.get(), args), error);
}
