// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <algorithm>

#include "anyattn/conformance/numbers.h"
#include "failure.h"

namespace anyattn::conformance {
namespace {

size_t element_bytes(uint32_t dtype) { return ((dtype >> 8) & 0xffu) / 8; }

}  // namespace

Tensor::Tensor(const char* name, uint32_t dtype, int64_t rows, std::vector<int64_t> inner, int64_t row_gap)
    : name_(name), dtype_(dtype) {
  shape_ = {rows};
  shape_.insert(shape_.end(), inner.begin(), inner.end());
  strides_.assign(shape_.size(), 1);
  for (size_t i = shape_.size() - 1; i > 0; --i) strides_[i - 1] = strides_[i] * shape_[i];
  row_size_ = static_cast<size_t>(strides_[0]);
  strides_[0] += row_gap;
  row_stride_ = static_cast<size_t>(strides_[0]);
  const auto room = static_cast<size_t>(std::max<int64_t>(rows, 1));  // a tensor of no rows has an address, or it were absent
  block_ = Block(name_, room * row_stride_ * element_bytes(dtype), Fill::kNan);
}

anyattn_tensor Tensor::view() {
  anyattn_tensor tensor{};
  if (!present()) return tensor;
  tensor.data = block_.lent();
  tensor.device_type = static_cast<int32_t>(lending_device() ? lending_device()->kind() : ANYATTN_DEVICE_CPU);
  tensor.device_id = lending_device() ? lending_device()->ordinal() : 0;
  tensor.ndim = static_cast<int32_t>(shape_.size());
  tensor.dtype_code = static_cast<uint8_t>(dtype_ & 0xffu);
  tensor.dtype_bits = static_cast<uint8_t>((dtype_ >> 8) & 0xffu);
  tensor.dtype_lanes = static_cast<uint16_t>(dtype_ >> 16);
  tensor.shape = shape_.data();
  tensor.strides = strides_.data();
  return tensor;
}

void Tensor::write(std::span<const float> values) {
  const size_t bytes = element_bytes(dtype_);
  auto* base = block_.as<std::byte>();
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t at = i / row_size_ * row_stride_ + i % row_size_;
    store_element(dtype_, base + at * bytes, values[i]);
  }
}

std::vector<float> Tensor::read() const {
  const size_t bytes = element_bytes(dtype_);
  const auto* base = block_.as<std::byte>();
  std::vector<float> values(static_cast<size_t>(shape_[0]) * row_size_);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(dtype_, base + (i / row_size_ * row_stride_ + i % row_size_) * bytes);
  }
  return values;
}

void Tensor::check() const {
  if (!present()) return;
  block_.check();
  const size_t bytes = element_bytes(dtype_);
  const auto* base = block_.as<std::byte>();
  for (size_t row = 0; row < static_cast<size_t>(shape_[0]); ++row) {
    for (size_t i = row_size_ * bytes; i < row_stride_ * bytes; ++i) {
      if (base[row * row_stride_ * bytes + i] != std::byte{0xff}) {
        throw Failure(conformance::text("bytes between rows %zu and %zu of %s were written", row, row + 1, name_.c_str()));
      }
    }
  }
}

void ErrorText::expect_ok(int32_t status, const char* what) const {
  if (status != ANYATTN_OK) throw Failure(conformance::text("%s answers status %d: %s", what, status, text_));
}

void ErrorText::expect_refused(int32_t status, const char* what) const {
  if (status == ANYATTN_OK) throw Failure(conformance::text("%s answers OK; an error is right", what));
  if (error_.status != status || text_[0] == '\0') {
    throw Failure(conformance::text("%s answers status %d but fills the error slot with status %d and text '%s'", what, status,
                                    error_.status, text_));
  }
}

}  // namespace anyattn::conformance
