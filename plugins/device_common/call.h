// SPDX-License-Identifier: Apache-2.0
// One runtime call as a status and a sentence, with the device current and what was current restored.
// Included by the provider's files. The text uses CUDA's names; a vendor's vendor.h renames them and brings CurrentDevice.
#pragma once

#include <anyattn/util.h>
#include <anyattn/device_status.hpp>

#include "vendor.h"

namespace anyattn::device {

// The driver's words behind ours.
inline int32_t failed(cudaError_t code, const char* what, int32_t ordinal, anyattn_error* error) {
  (void)cudaGetLastError();  // so that the next call does not report this one
  return anyattn_error_set(error, status_of_device_error(code), "%s:%d: %s: %s (%s)", kDevice, ordinal, what,
                           cudaGetErrorString(code), cudaGetErrorName(code));
}

inline int32_t check(cudaError_t code, const char* what, int32_t ordinal, anyattn_error* error) {
  return code == cudaSuccess ? ANYATTN_OK : failed(code, what, ordinal, error);
}

// Runs `call` with the device current.
template <class Call>
int32_t on_device(int32_t ordinal, const char* what, anyattn_error* error, Call&& call) {
  const CurrentDevice current(ordinal);
  const cudaError_t code = current.code() == cudaSuccess ? call() : current.code();
  return check(code, what, ordinal, error);
}

}  // namespace anyattn::device
