// SPDX-License-Identifier: Apache-2.0
// Write a class, get a backend table: BackendTable<B>::table turns B's methods into the C slots of backend.h.
// Included by plugins written in C++. Exceptions become statuses here; a slot whose method B lacks is null.
//
//   struct MyBackend {
//     static constexpr const char* kName = "MY_ATTN";
//     static constexpr const char* kDescription = "one line for people";
//     static constexpr uint32_t kDevice = ANYATTN_DEVICE_CPU;
//     static void supports(const Host&, const anyattn_device_facts&, const anyattn_problem&, Reasons&,
//     anyattn_support_report&); static void kv_cache_spec(const Host&, const anyattn_device_facts&, const anyattn_problem&,
//     const SpecSink&);   // paged MyBackend(const Host&, const anyattn_device_facts&, const anyattn_problem&, const
//     anyattn_kv_cache_spec*);      // impl void memory(const anyattn_limits&, anyattn_memory&) const; uint32_t warmup(const
//     anyattn_limits&, void* stream, void* scratch);                     // the graph level reached struct Metadata {
//       Metadata(MyBackend&, const anyattn_limits&, uint32_t mode, void* persistent, void* pinned);
//       void update(const anyattn_batch&, void* stream);
//       void update_block_table(const Metadata& from, const int32_t* block_table, int64_t stride, void* stream);      //
//       optional
//     };
//     void kv_cache_update(const anyattn_kv_cache_update_args&);                               // paged
//     void forward(const Metadata&, const anyattn_forward_args&);                              // plain, or the three of MLA:
//     void forward_mqa(const Metadata&, const anyattn_mqa_args&);
//     void context_gather(const Metadata&, const anyattn_context_chunk&, const anyattn_context_gather_args&);
//     void forward_mha(const anyattn_mha_args&);
//     void merge_states(const anyattn_merge_args&);                                            // with LSE
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>

#include "anyattn/backend.h"
#include "anyattn/error.hpp"
#include "anyattn/host.hpp"
#include "anyattn/problem.hpp"

namespace anyattn {

// A struct of any age as one of today's: the caller's own where it is long enough, else a zero-extended copy.
template <class T>
class Received {
 public:
  Received(const T* given, uint32_t size, const char* name) {
    if (!given) throw Error(ANYATTN_INVALID_ARGUMENT, name, " is null");
    if (given->struct_size >= size) {
      value_ = given;
    } else {
      anyattn_read_struct(&own_.emplace(), size, given);
      value_ = &*own_;
    }
  }
  Received(const Received&) = delete;
  Received& operator=(const Received&) = delete;
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_; }

 private:
  const T* value_;
  std::optional<T> own_;  // empty on the hot path: nothing to zero
};

// Writes what fits of `value` into the caller's out struct, whose struct_size stays.
template <class T>
void answer(T* out, T value, uint32_t own_size) {
  const uint32_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, size < own_size ? size : own_size);
  out->struct_size = size;
}

// Hands accepted cache specs to the host, best first.
class SpecSink {
 public:
  SpecSink(anyattn_spec_fn accept, void* context) : accept_(accept), context_(context) {}
  void operator()(const anyattn_kv_cache_spec& spec) const { accept_(context_, &spec); }

 private:
  anyattn_spec_fn accept_;
  void* context_;
};

// Past this, sums of two counts leave 32 bits.
inline constexpr uint32_t kMostOfALimit = 1u << 30;

inline const anyattn_limits& check_limits(const anyattn_limits& limits) {
  const struct {
    const char* field;
    uint32_t value;
  } counts[] = {{"max_num_reqs", limits.max_num_reqs},
                {"max_num_tokens", limits.max_num_tokens},
                {"max_query_len", limits.max_query_len},
                {"max_seq_len", limits.max_seq_len},
                {"max_blocks_per_req", limits.max_blocks_per_req}};
  for (const auto& [field, value] : counts) {
    if (value > kMostOfALimit)
      throw Error(ANYATTN_INVALID_ARGUMENT, "limits.", field, " ", value, "; allowed: up to ", kMostOfALimit);
  }
  return limits;
}

template <class B>
struct BackendTable {
  using Metadata = typename B::Metadata;

  static int32_t supports(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                          const anyattn_reason_sink* sink, anyattn_support_report* report, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      if (!report) throw Error(ANYATTN_INVALID_ARGUMENT, "report is null");
      const Received device(facts, ANYATTN_DEVICE_FACTS_SIZE, "device facts");
      const Received asked(problem, ANYATTN_PROBLEM_SIZE, "problem");
      Reasons reasons(sink);
      anyattn_support_report given{};
      B::supports(Host(host), *device, *asked, reasons, given);
      given.supported = reasons.count() == 0;
      answer(report, given, ANYATTN_SUPPORT_REPORT_SIZE);
    });
  }

  static int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                               anyattn_spec_fn accept, void* context, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      if (!accept) throw Error(ANYATTN_INVALID_ARGUMENT, "accept is null");
      const Received device(facts, ANYATTN_DEVICE_FACTS_SIZE, "device facts");
      const Received asked(problem, ANYATTN_PROBLEM_SIZE, "problem");
      B::kv_cache_spec(Host(host), *device, *asked, SpecSink(accept, context));
    });
  }

  static int32_t impl_create(const anyattn_host* host, const anyattn_device_facts* facts, const anyattn_problem* problem,
                             const anyattn_kv_cache_spec* spec, anyattn_impl** impl, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      if (!impl) throw Error(ANYATTN_INVALID_ARGUMENT, "impl is null");
      *impl = nullptr;
      const Received device(facts, ANYATTN_DEVICE_FACTS_SIZE, "device facts");
      const Received asked(problem, ANYATTN_PROBLEM_SIZE, "problem");
      if (!spec) {
        *impl = handle(new B(Host(host), *device, *asked, nullptr));
        return;
      }
      const Received layout(spec, ANYATTN_KV_CACHE_SPEC_SIZE, "cache spec");
      *impl = handle(new B(Host(host), *device, *asked, &*layout));
    });
  }

  static void impl_destroy(anyattn_impl* impl) { delete reinterpret_cast<B*>(impl); }

  static int32_t memory(const anyattn_impl* impl, const anyattn_limits* limits, anyattn_memory* memory, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      if (!memory) throw Error(ANYATTN_INVALID_ARGUMENT, "memory is null");
      const Received within(limits, ANYATTN_LIMITS_SIZE, "limits");
      anyattn_memory needed{};
      object(const_cast<anyattn_impl*>(impl)).memory(check_limits(*within), needed);
      answer(memory, needed, ANYATTN_MEMORY_SIZE);
    });
  }

  static int32_t warmup(anyattn_impl* impl, const anyattn_limits* limits, void* stream, void* scratch, uint32_t* graph_level,
                        anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received within(limits, ANYATTN_LIMITS_SIZE, "limits");
      const uint32_t level = object(impl).warmup(check_limits(*within), stream, scratch);
      if (graph_level) *graph_level = level;
    });
  }

  static int32_t metadata_create(anyattn_impl* impl, const anyattn_limits* limits, uint32_t mode, void* persistent,
                                 void* pinned, anyattn_metadata** metadata, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      if (!metadata) throw Error(ANYATTN_INVALID_ARGUMENT, "metadata is null");
      *metadata = nullptr;
      const Received within(limits, ANYATTN_LIMITS_SIZE, "limits");
      *metadata =
          reinterpret_cast<anyattn_metadata*>(new Metadata(object(impl), check_limits(*within), mode, persistent, pinned));
    });
  }

  static int32_t metadata_update(anyattn_metadata* metadata, const anyattn_batch* batch, void* stream, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received step(batch, ANYATTN_BATCH_SIZE, "batch");
      object(metadata).update(*step, stream);
    });
  }

  static void metadata_destroy(anyattn_metadata* metadata) { delete reinterpret_cast<Metadata*>(metadata); }

  static int32_t kv_cache_update(anyattn_impl* impl, const anyattn_kv_cache_update_args* args, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received call(args, ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE, "args");
      object(impl).kv_cache_update(*call);
    });
  }

  static int32_t forward(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_forward_args* args,
                         anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received call(args, ANYATTN_FORWARD_ARGS_SIZE, "args");
      object(impl).forward(object(metadata), *call);
    });
  }

  static int32_t forward_mqa(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_mqa_args* args,
                             anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received call(args, ANYATTN_MQA_ARGS_SIZE, "args");
      object(impl).forward_mqa(object(metadata), *call);
    });
  }

  static int32_t context_gather(anyattn_impl* impl, const anyattn_metadata* metadata, const anyattn_context_chunk* chunk,
                                const anyattn_context_gather_args* args, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received piece(chunk, ANYATTN_CONTEXT_CHUNK_SIZE, "chunk");
      const Received call(args, ANYATTN_CONTEXT_GATHER_ARGS_SIZE, "args");
      object(impl).context_gather(object(metadata), *piece, *call);
    });
  }

  static int32_t forward_mha(anyattn_impl* impl, const anyattn_mha_args* args, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received call(args, ANYATTN_MHA_ARGS_SIZE, "args");
      object(impl).forward_mha(*call);
    });
  }

  static int32_t merge_states(anyattn_impl* impl, const anyattn_merge_args* args, anyattn_error* error) {
    return guard(B::kName, error, [&] {
      const Received call(args, ANYATTN_MERGE_ARGS_SIZE, "args");
      object(impl).merge_states(*call);
    });
  }

  static int32_t update_block_table(anyattn_metadata* to, const anyattn_metadata* from, const int32_t* block_table,
                                    int64_t block_table_stride, void* stream, anyattn_error* error) {
    return guard(B::kName, error,
                 [&] { object(to).update_block_table(object(from), block_table, block_table_stride, stream); });
  }

  static constexpr anyattn_backend make() {
    anyattn_backend made{};
    made.struct_size = ANYATTN_BACKEND_SIZE;
    made.device_kind = B::kDevice;
    made.name = B::kName;
    made.description = B::kDescription;
    made.supports = &supports;
    if constexpr (requires { &B::kv_cache_spec; }) made.kv_cache_spec = &kv_cache_spec;
    made.impl_create = &impl_create;
    made.impl_destroy = &impl_destroy;
    made.memory = &memory;
    made.warmup = &warmup;
    made.metadata_create = &metadata_create;
    made.metadata_update = &metadata_update;
    made.metadata_destroy = &metadata_destroy;
    if constexpr (requires { &B::kv_cache_update; }) made.kv_cache_update = &kv_cache_update;
    if constexpr (requires { &B::forward; }) made.forward = &forward;
    if constexpr (requires { &B::forward_mqa; }) made.forward_mqa = &forward_mqa;
    if constexpr (requires { &B::context_gather; }) made.context_gather = &context_gather;
    if constexpr (requires { &B::forward_mha; }) made.forward_mha = &forward_mha;
    if constexpr (requires { &B::merge_states; }) made.merge_states = &merge_states;
    if constexpr (requires { &Metadata::update_block_table; }) made.update_block_table = &update_block_table;
    return made;
  }

  static constexpr anyattn_backend table = make();

 private:
  static anyattn_impl* handle(B* made) { return reinterpret_cast<anyattn_impl*>(made); }
  static B& object(anyattn_impl* impl) {
    if (!impl) throw Error(ANYATTN_INVALID_ARGUMENT, "impl is null");
    return *reinterpret_cast<B*>(impl);
  }
  static Metadata& object(anyattn_metadata* metadata) {
    if (!metadata) throw Error(ANYATTN_INVALID_ARGUMENT, "metadata is null");
    return *reinterpret_cast<Metadata*>(metadata);
  }
  static const Metadata& object(const anyattn_metadata* metadata) { return object(const_cast<anyattn_metadata*>(metadata)); }
};

}  // namespace anyattn
