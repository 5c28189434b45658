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

// What hosts promise of tensor data. Every text names the tensor: `q: dtype float16; needed: float32`.
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

// What a tensor has to be.
template <int Rank>
struct Wanted {
  const char* name;                      // of the tensor, for texts
  uint32_t dtype = ANYATTN_DTYPE_NONE;   // none: any of whole bytes
  std::array<int64_t, Rank> shape{};     // kAnySize takes any size
  bool rows_at_least = false;            // the first dim may be larger
  int64_t alignment = kTensorAlignment;  // of data; byte_offset moves on by whole elements
};

// Checks `tensor` and returns its view. The last dim must lie densely.
template <int Rank>
RawView<Rank> view(const anyattn_tensor& tensor, const Wanted<Rank>& wanted) {
  constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
  const char* name = wanted.name;
  if (!tensor.data) throw Error(kWrong, name, ": the tensor is absent; needed: ", Rank, " dims");
  if (tensor.ndim != Rank) throw Error(kWrong, name, ": ", tensor.ndim, " dims; needed: ", Rank);
  if (!tensor.shape || !tensor.strides) throw Error(kWrong, name, ": shape or strides are null; both are always needed");
  const uint32_t given = anyattn_tensor_dtype(&tensor);
  if (wanted.dtype != ANYATTN_DTYPE_NONE && given != wanted.dtype)
    throw Error(kWrong, name, ": dtype ", dtype_name(given), "; needed: ", dtype_name(wanted.dtype));
  const int64_t bytes = dtype_bytes(given);
  if (bytes == 0 || (given >> 16) != 1) throw Error(kWrong, name, ": dtype ", dtype_name(given), " has no whole bytes");
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uint64_t>(wanted.alignment));
  if (past != 0)
    throw Error(kWrong, name, ": data is ", past, " bytes past a multiple of ", wanted.alignment,
                "; needed: aligned data, byte_offset moves a view");
  if (tensor.byte_offset % static_cast<uint64_t>(bytes) != 0)
    throw Error(kWrong, name, ": byte_offset ", tensor.byte_offset, "; needed: a multiple of ", bytes);
  RawView<Rank> result;
  result.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  result.dtype = given;
  for (int i = 0; i < Rank; ++i) {
    const auto dim = static_cast<size_t>(i);
    const int64_t size = tensor.shape[i], needed = wanted.shape[dim];
    const bool larger_is_fine = i == 0 && wanted.rows_at_least;
    if (size < 0 || (needed != kAnySize && size != needed && !(larger_is_fine && size > needed)))
      throw Error(kWrong, name, ": size ", size, " of dim ", i, "; needed: ", larger_is_fine ? "at least " : "",
                  needed == kAnySize ? 0 : needed);
    result.shape[dim] = size;
    result.stride_bytes[dim] = tensor.strides[i] * bytes;
  }
  if (tensor.shape[Rank - 1] > 1 && tensor.strides[Rank - 1] != 1)
    throw Error(kWrong, name, ": stride ", tensor.strides[Rank - 1], " of the last dim; needed: 1");
  return result;
}

// The same where the tensor may be absent: the view is then empty.
template <int Rank>
RawView<Rank> optional_view(const anyattn_tensor& tensor, const Wanted<Rank>& wanted) {
  if (!tensor.data) return {};
  return view<Rank>(tensor, wanted);
}

// A checked tensor of element type T. Strides are in elements.
template <class T, int Rank>
class TensorView {
 public:
  TensorView() = default;
  // Aligned to T; wanted.dtype is T's.
  TensorView(const anyattn_tensor& tensor, Wanted<Rank> wanted) {
    wanted.dtype = DtypeOf<std::remove_const_t<T>>::value;
    wanted.alignment = alignof(T);
    raw_ = view<Rank>(tensor, wanted);
  }

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
