// SPDX-License-Identifier: Apache-2.0
// One runtime call as a status and a sentence, and a guard that leaves the current device as it was.
// Included by the provider's files. The text uses CUDA's names; a vendor's vendor.h renames them.
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

// Makes `ordinal` current for a scope. cudaGetDevice and cudaSetDevice are thread-local and cost tens of nanoseconds when
// nothing changes.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t ordinal) {
    code_ = cudaGetDevice(&before_);
    if (code_ == cudaSuccess && before_ != ordinal) {
      code_ = cudaSetDevice(ordinal);
      changed_ = code_ == cudaSuccess;
    }
  }
  ~CurrentDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t code() const { return code_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t code_ = cudaSuccess;
};

// Runs `call` with the device current.
template <class Call>
int32_t on_device(int32_t ordinal, const char* what, anyattn_error* error, Call&& call) {
  const CurrentDevice current(ordinal);
  const cudaError_t code = current.code() == cudaSuccess ? call() : current.code();
  return check(code, what, ordinal, error);
}

}  // namespace anyattn::device
