// SPDX-License-Identifier: Apache-2.0
// Every way a tensor can be wrong is named with the tensor; a good one is read through 64-bit strides.
#include <string>

#include "anyattn/call_checks.hpp"
#include "anyattn/tensor_view.hpp"
#include "doctest/doctest.h"

namespace {

struct Sample {
  alignas(64) float data[64] = {};
  int64_t shape[3] = {3, 2, 4};
  int64_t strides[3] = {16, 4, 1};
  anyattn_tensor tensor{data, ANYATTN_DEVICE_CPU, 0, 3, 2, 32, 1, shape, strides, 0};
};

template <class Change>
std::string text_of(Change change, bool rows_at_least = false) {
  Sample sample;
  change(sample);
  try {
    anyattn::view<3>(sample.tensor,
                     {.name = "q", .dtype = ANYATTN_DTYPE_FLOAT32, .shape = {3, 2, 4}, .rows_at_least = rows_at_least});
  } catch (const anyattn::Error& error) {
    CHECK(error.status() == ANYATTN_INVALID_ARGUMENT);
    return error.what();
  }
  return "fine";
}

}  // namespace

TEST_CASE("tensor_mistakes_are_named_with_the_tensor_and_what_is_needed") {
  CHECK(text_of([](Sample&) {}) == "fine");
  CHECK(text_of([](Sample& s) { s.tensor.data = nullptr; }) == "q: the tensor is absent; needed: 3 dims");
  CHECK(text_of([](Sample& s) { s.tensor.ndim = 2; }) == "q: 2 dims; needed: 3");
  CHECK(text_of([](Sample& s) { s.tensor.strides = nullptr; }) == "q: shape or strides are null; both are always needed");
  CHECK(text_of([](Sample& s) { s.tensor.dtype_bits = 16; }) == "q: dtype float16; needed: float32");
  CHECK(text_of([](Sample& s) { s.tensor.dtype_lanes = 4; }).find("needed: float32") != std::string::npos);
  CHECK(text_of([](Sample& s) { s.tensor.data = s.data + 1; }) ==
        "q: data is 4 bytes past a multiple of 16; needed: aligned data, byte_offset moves a view");
  CHECK(text_of([](Sample& s) { s.tensor.byte_offset = 2; }) == "q: byte_offset 2; needed: a multiple of 4");
  CHECK(text_of([](Sample& s) { s.shape[1] = 5; }) == "q: size 5 of dim 1; needed: 2");
  CHECK(text_of([](Sample& s) { s.shape[0] = 4; }) == "q: size 4 of dim 0; needed: 3");
  CHECK(text_of([](Sample& s) { s.shape[0] = 4; }, true) == "fine");
  CHECK(text_of([](Sample& s) { s.shape[0] = 2; }, true) == "q: size 2 of dim 0; needed: at least 3");
  CHECK(text_of([](Sample& s) { s.shape[0] = -1; }) == "q: size -1 of dim 0; needed: 3");
  CHECK(text_of([](Sample& s) { s.strides[2] = 2; }) == "q: stride 2 of the last dim; needed: 1");
}

TEST_CASE("tensor_view_reads_through_strides_and_offset") {
  Sample sample;
  sample.data[4 + 16 + 4 + 3] = 7;
  sample.tensor.byte_offset = 16;
  const anyattn::TensorView<float, 3> view(sample.tensor, {.name = "q", .shape = {3, anyattn::kAnySize, 4}});
  CHECK(view(1, 1, 3) == 7);
  CHECK(view.stride(0) == 16);
  CHECK(view.shape(1) == 2);
  CHECK(!anyattn::optional_view<2>({}, {.name = "lse"}));
}

TEST_CASE("tensor_offsets_do_not_wrap_at_32_bits") {
  Sample sample;
  sample.strides[0] = int64_t{1} << 33;
  const auto view = anyattn::view<3>(sample.tensor, {.name = "q", .shape = {3, 2, 4}});
  CHECK(view.at(1) - view.data == int64_t{1} << 35);
}

TEST_CASE("wide_rows_have_strides_of_whole_16_bytes_forwards") {
  Sample sample;
  anyattn::RawView<3> rows = anyattn::view<3>(sample.tensor, {.name = "q", .shape = {3, 2, 4}});
  anyattn::check_wide_rows(rows, "q");
  rows.stride_bytes[0] = -64;
  CHECK_THROWS_WITH(anyattn::check_wide_rows(rows, "q"),
                    "q: stride of -64 bytes of dim 0; needed: a multiple of 16, 0 or more");
  rows.shape[0] = 1;  // of a single row it means nothing
  anyattn::check_wide_rows(rows, "q");
  rows.stride_bytes[1] = 24;
  CHECK_THROWS_WITH(anyattn::check_wide_rows(rows, "q"), "q: stride of 24 bytes of dim 1; needed: a multiple of 16, 0 or more");
}
