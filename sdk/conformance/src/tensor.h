// SPDX-License-Identifier: Apache-2.0
// Tensors lent to a backend: a guarded block, shape and strides. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_TENSOR_H
#define ANYATTN_CONFORMANCE_TENSOR_H

#include <span>
#include <string>
#include <vector>

#include "anyattn/types.h"
#include "memory.h"

namespace anyattn::conformance {

// [rows, inner...] whose rows may stand apart; the gaps hold NaN and stay as they are.
class Tensor {
 public:
  Tensor() = default;
  // Elements are NaN bytes until written. `inner` has one or two entries, or none for a vector.
  Tensor(const char* name, uint32_t dtype, int64_t rows, std::vector<int64_t> inner, int64_t row_gap = 0);

  // Borrowed as long as this object lives and is not moved; an absent tensor where none was made.
  anyattn_tensor view();
  void write(std::span<const float> values);  // all rows, compact
  template <class T>
  void write_raw(const std::vector<T>& values) {
    if (!values.empty()) std::memcpy(block_.data(), values.data(), values.size() * sizeof(T));
  }
  std::vector<float> read() const;
  // Throws Failure where bytes outside the elements changed.
  void check() const;
  bool present() const { return !shape_.empty(); }

 private:
  std::string name_;
  uint32_t dtype_ = 0;
  size_t row_size_ = 1;
  size_t row_stride_ = 1;
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  Block block_;
};

// An error slot and a check of what came back in it.
class ErrorText {
 public:
  ErrorText() { error_ = {.text = text_, .capacity = sizeof text_, .length = 0, .status = 0, .reserved = 0}; }
  anyattn_error* get() { return &error_; }
  const char* text() const { return text_; }
  // Throws Failure "<what> answers status n: text" unless status is OK.
  void expect_ok(int32_t status, const char* what) const;
  // Throws Failure unless status is an error whose slot was filled: a text, the same status.
  void expect_refused(int32_t status, const char* what) const;

 private:
  char text_[512] = {};
  anyattn_error error_{};
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_TENSOR_H
