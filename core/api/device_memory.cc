// SPDX-License-Identifier: Apache-2.0
// The C API's device memory: each call goes to the provider of the kind.
#include "anyattn/runtime.h"
#include "api/guard.h"
#include "api/provider_call.h"
#include "api/runtime_object.h"

using anyattn::api::call_provider;
using anyattn::api::guarded;
using anyattn::api::require_given;

int32_t anyattn_device_alloc(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, uint64_t bytes, void** memory,
                             anyattn_error* error) {
  return guarded("anyattn_device_alloc", error, [&] {
    require_given(runtime, "anyattn_device_alloc", "runtime");
    require_given(memory, "anyattn_device_alloc", "memory");
    *memory = nullptr;
    const anyattn_device_provider& provider = runtime->object->provider({kind, ordinal});
    call_provider(provider, "alloc", provider.alloc, ordinal, bytes, memory);
  });
}

void anyattn_device_free(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* memory) {
  if (!runtime || !memory) return;
  guarded("anyattn_device_free", nullptr, [&] {
    const anyattn_device_provider& provider = runtime->object->provider({kind, ordinal});
    anyattn::loader::call_void({"provider", "free"}, nullptr, provider.free, ordinal, memory);
  });
}

int32_t anyattn_device_copy(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* to, const void* from,
                            uint64_t bytes, uint32_t direction, void* stream, anyattn_error* error) {
  return guarded("anyattn_device_copy", error, [&] {
    require_given(runtime, "anyattn_device_copy", "runtime");
    if (bytes > 0) {
      require_given(to, "anyattn_device_copy", "to");
      require_given(from, "anyattn_device_copy", "from");
    }
    const anyattn_device_provider& provider = runtime->object->provider({kind, ordinal});
    call_provider(provider, "copy", provider.copy, ordinal, to, from, bytes, direction, stream);
  });
}

int32_t anyattn_device_synchronize(anyattn_runtime* runtime, uint32_t kind, int32_t ordinal, void* stream,
                                   anyattn_error* error) {
  return guarded("anyattn_device_synchronize", error, [&] {
    require_given(runtime, "anyattn_device_synchronize", "runtime");
    const anyattn_device_provider& provider = runtime->object->provider({kind, ordinal});
    call_provider(provider, "stream_synchronize", provider.stream_synchronize, ordinal, stream);
  });
}
