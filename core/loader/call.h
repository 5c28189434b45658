// SPDX-License-Identifier: Apache-2.0
// The one way into a plugin's code: a null slot and an escaping exception become statuses with a text.
// Included wherever a slot of a backend or provider is called. Costs nothing on the way that returns.
#pragma once

#include <cstdint>

#include "anyattn/types.h"

namespace anyattn::loader {

// Who is called, for texts: backend or provider name and slot. Borrowed for the call.
struct Callee {
  const char* name;
  const char* slot;
};

// Inside a catch block: describes the current exception. Returns ANYATTN_INTERNAL.
int32_t report_exception(Callee callee, anyattn_error* error) noexcept;
// Returns ANYATTN_UNIMPLEMENTED.
int32_t report_absent(Callee callee, anyattn_error* error) noexcept;
// A failure whose text the callee left empty gets one.
void complete_error(Callee callee, int32_t status, anyattn_error* error) noexcept;

// Calls fn(args..., error) and returns its status.
template <typename... Params, typename... Args>
inline int32_t call(Callee callee, anyattn_error* error, int32_t (*fn)(Params...), Args... args) noexcept {
  if (!fn) return report_absent(callee, error);
  try {
    if (error) error->length = 0;
    const int32_t status = fn(args..., error);
    if (status != ANYATTN_OK) [[unlikely]]
      complete_error(callee, status, error);
    return status;
  } catch (...) {
    return report_exception(callee, error);
  }
}

// For slots that return nothing (destroy, free, shutdown): an absent slot is skipped; an exception is the returned status.
template <typename... Params, typename... Args>
inline int32_t call_void(Callee callee, anyattn_error* error, void (*fn)(Params...), Args... args) noexcept {
  if (!fn) return ANYATTN_OK;
  try {
    fn(args...);
    return ANYATTN_OK;
  } catch (...) {
    return report_exception(callee, error);
  }
}

}  // namespace anyattn::loader
