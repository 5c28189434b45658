// SPDX-License-Identifier: Apache-2.0
// A tensor that was checked once and is then read with plain loads: dtype, rank, shape, alignment, 64-bit strides.
// Included by plugins and tests. Views borrow; they own nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "anyattn/dtypes.hpp"
#include "anyattn/error.hpp"

namespace anyattn {

inline constexpr int64_t kAnySize = -1;

// Every text names the tensor: `q: dtype float16; needed: float32`.
inline constexpr int64_t kTensorAlignment = 16;

// A tensor of `Rank` dims whose dtype is known at run time. Strides are in bytes.
template <int Rank>
struct RawView {
  std::byte* data = nullptr;  // null: absent
  uint32_t dtype = ANYATTN_DTYPE_NONE;
  std::array<int64_t, Rank> shape{};
  std::array<int64_t, Rank> stride_bytes{};

  explicit operator bool() const { return data != nullptr; }

  template <class... Index>
  std::byte* at(Index... index) const {
    static_assert(sizeof...(Index) <= Rank);
    int64_t offset = 0;
    int dim = 0;
    ((offset += static_cast<int64_t>(index) * stride_bytes[static_cast<size_t>(dim++)]), ...);
    return data + offset;
  }
};

// Checks `tensor` and returns its view. shape: kAnySize takes any size; the first dim may be larger than asked for where
// `rows_at_least`. The last dim must lie densely. dtype 0 takes any whole-byte dtype.
template <int Rank>
RawView<Rank> view(const anyattn_tensor& tensor, const char* name, uint32_t dtype, const std::array<int64_t, Rank>& shape,
                   bool rows_at_least = false) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  if (!tensor.data) throw Error(kWrong, name, ": the tensor is absent; needed: ", Rank, " dims");
  if (tensor.ndim != Rank) throw Error(kWrong, name, ": ", tensor.ndim, " dims; needed: ", Rank);
  if (!tensor.shape || !tensor.strides) throw Error(kWrong, name, ": shape or strides are null; both are always needed");
  const uint32_t given = anyattn_tensor_dtype(&tensor);
  if (dtype != ANYATTN_DTYPE_NONE && given != dtype)
    throw Error(kWrong, name, ": dtype ", dtype_name(given), "; needed: ", dtype_name(dtype));
  const int64_t bytes = dtype_bytes(given);
  if (bytes == 0 || (given >> 16) != 1) throw Error(kWrong, name, ": dtype ", dtype_name(given), " has no whole bytes");
  if (reinterpret_cast<uintptr_t>(tensor.data) % kTensorAlignment != 0)
    throw Error(kWrong, name, ": data is ", reinterpret_cast<uintptr_t>(tensor.data) % kTensorAlignment,
                " bytes past a multiple of ", kTensorAlignment, "; needed: aligned data (byte_offset moves a view)");
  if (tensor.byte_offset % static_cast<uint64_t>(bytes) != 0)
    throw Error(kWrong, name, ": byte_offset ", tensor.byte_offset, "; needed: a multiple of ", bytes);
  RawView<Rank> result;
  result.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  result.dtype = given;
  for (int i = 0; i < Rank; ++i) {
    const auto dim = static_cast<size_t>(i);
    const bool larger_is_fine = i == 0 && rows_at_least;
    if (tensor.shape[i] < 0 ||
        (shape[dim] != kAnySize && tensor.shape[i] != shape[dim] && !(larger_is_fine && tensor.shape[i] > shape[dim])))
      throw Error(kWrong, name, ": size ", tensor.shape[i], " of dim ", i, "; needed: ", larger_is_fine ? "at least " : "",
                  shape[dim] == kAnySize ? 0 : shape[dim]);
    result.shape[dim] = tensor.shape[i];
    result.stride_bytes[dim] = tensor.strides[i] * bytes;
  }
  if (tensor.shape[Rank - 1] > 1 && tensor.strides[Rank - 1] != 1)
    throw Error(kWrong, name, ": stride ", tensor.strides[Rank - 1], " of the last dim; needed: 1");
  return result;
}

// The same where the tensor may be absent: the view is then empty.
template <int Rank>
RawView<Rank> optional_view(const anyattn_tensor& tensor, const char* name, uint32_t dtype,
                            const std::array<int64_t, Rank>& shape, bool rows_at_least = false) {
  if (!tensor.data) return {};
  return view<Rank>(tensor, name, dtype, shape, rows_at_least);
}

// A checked tensor of element type T. Strides are in elements.
template <class T, int Rank>
class TensorView {
 public:
  TensorView() = default;
  TensorView(const anyattn_tensor& tensor, const char* name, const std::array<int64_t, Rank>& shape, bool rows_at_least = false)
      : raw_(view<Rank>(tensor, name, DtypeOf<std::remove_const_t<T>>::value, shape, rows_at_least)) {}

  explicit operator bool() const { return raw_.data != nullptr; }
  T* data() const { return reinterpret_cast<T*>(raw_.data); }
  int64_t shape(int dim) const { return raw_.shape[static_cast<size_t>(dim)]; }
  int64_t stride(int dim) const { return raw_.stride_bytes[static_cast<size_t>(dim)] / static_cast<int64_t>(sizeof(T)); }

  template <class... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    return *reinterpret_cast<T*>(raw_.at(index...));
  }

 private:
  RawView<Rank> raw_;
};

}  // namespace anyattn
