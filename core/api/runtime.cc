// SPDX-License-Identifier: Apache-2.0
// The C API of a runtime: its life, registration, devices by name, threads.
#include "anyattn/runtime.h"

#include <cstdlib>

#include "api/guard.h"
#include "api/runtime_object.h"

using anyattn::api::guarded;
using anyattn::api::require_given;

void anyattn_text_free(char* text) { std::free(text); }

int32_t anyattn_runtime_create(const anyattn_runtime_options* options, anyattn_runtime** runtime, anyattn_error* error) {
  return guarded("anyattn_runtime_create", error, [&] {
    require_given(runtime, "anyattn_runtime_create", "runtime");
    *runtime = nullptr;
    anyattn_runtime_options own{};
    if (options) own = anyattn::api::read_options(options, ANYATTN_RUNTIME_OPTIONS_SIZE, "anyattn_runtime_create");
    *runtime = new anyattn_runtime{std::make_shared<anyattn::api::Runtime>(own)};
  });
}

void anyattn_runtime_destroy(anyattn_runtime* runtime) { delete runtime; }

uint64_t anyattn_runtime_generation(const anyattn_runtime* runtime) {
  return runtime ? runtime->object->registry()->generation() : 0;
}

int32_t anyattn_runtime_resolve_device(anyattn_runtime* runtime, const char* device, uint32_t* kind, int32_t* ordinal,
                                       anyattn_error* error) {
  return guarded("anyattn_runtime_resolve_device", error, [&] {
    require_given(runtime, "anyattn_runtime_resolve_device", "runtime");
    require_given(kind, "anyattn_runtime_resolve_device", "kind");
    require_given(ordinal, "anyattn_runtime_resolve_device", "ordinal");
    const anyattn::device::DeviceId id = runtime->object->resolve(device ? device : "auto");
    *kind = id.kind;
    *ordinal = id.ordinal;
  });
}

int32_t anyattn_runtime_register_backend(anyattn_runtime* runtime, const char* name, uint32_t device_kind, const char* where,
                                         anyattn_error* error) {
  return guarded("anyattn_runtime_register_backend", error, [&] {
    require_given(runtime, "anyattn_runtime_register_backend", "runtime");
    require_given(name, "anyattn_runtime_register_backend", "name");
    require_given(where, "anyattn_runtime_register_backend", "where");
    runtime->object->registry()->register_backend({name, device_kind}, where);
  });
}

int32_t anyattn_runtime_clear_override(anyattn_runtime* runtime, const char* name, uint32_t device_kind, anyattn_error* error) {
  return guarded("anyattn_runtime_clear_override", error, [&] {
    require_given(runtime, "anyattn_runtime_clear_override", "runtime");
    require_given(name, "anyattn_runtime_clear_override", "name");
    runtime->object->registry()->clear_override({name, device_kind});
  });
}

int32_t anyattn_runtime_reload(anyattn_runtime* runtime, anyattn_error* error) {
  return guarded("anyattn_runtime_reload", error, [&] {
    require_given(runtime, "anyattn_runtime_reload", "runtime");
    runtime->object->reload();
  });
}

int32_t anyattn_runtime_lock_memory(anyattn_runtime* runtime, anyattn_error* error) {
  return guarded("anyattn_runtime_lock_memory", error, [&] {
    require_given(runtime, "anyattn_runtime_lock_memory", "runtime");
    runtime->object->lock_memory();
  });
}

int32_t anyattn_parallel_for(anyattn_runtime* runtime, uint64_t count, uint64_t grain, anyattn_work_fn fn, void* argument) {
  return runtime ? runtime->object->pool().parallel_for(count, grain, fn, argument) : ANYATTN_INVALID_ARGUMENT;
}

uint32_t anyattn_num_workers(const anyattn_runtime* runtime) { return runtime ? runtime->object->pool().num_workers() : 0; }
