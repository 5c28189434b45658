// SPDX-License-Identifier: Apache-2.0
// A failed cold-path call inside the core: a status of types.h and one sentence. The C API turns it into its return value.
// Included by the core's parts from the device upwards. Hot paths return statuses and never throw.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "anyattn/types.h"

namespace anyattn {

class StatusError : public std::exception {
 public:
  StatusError(int32_t status, std::string text) : status_(status), text_(std::move(text)) {}
  int32_t status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int32_t status_;
  std::string text_;
};

// A caller-owned anyattn_error with room for long texts: handed to providers and plugins on cold paths.
class ErrorBuffer {
 public:
  ErrorBuffer() : text_(4096, '\0') { error_ = {text_.data(), static_cast<uint32_t>(text_.size()), 0, 0, 0}; }
  ErrorBuffer(const ErrorBuffer&) = delete;
  ErrorBuffer& operator=(const ErrorBuffer&) = delete;
  anyattn_error* get() { return &error_; }
  // What was written, or `otherwise` where the callee left the slot empty.
  std::string text(const char* otherwise = "no text was given") const {
    return text_[0] != '\0' ? std::string(text_.c_str()) : std::string(otherwise);
  }

 private:
  std::string text_;
  anyattn_error error_{};
};

}  // namespace anyattn
