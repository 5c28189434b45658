// SPDX-License-Identifier: Apache-2.0
// Whole rows: conversion between element types and the weighted sum behind merge_states.
// Compiled once per instruction set behind simd-inl.h.
#include "simd-inl.h"

namespace anyattn::cpu {
namespace {

void convert(char* to, ElementKind to_kind, const char* from, ElementKind from_kind, uint64_t count) {
  with_kind(from_kind, [&](auto source) {
    with_kind(to_kind, [&](auto target) {
      constexpr int kFrom = decltype(source)::kBytes;
      constexpr int kTo = decltype(target)::kBytes;
      for (uint64_t i = 0; i < count; i += kLanes) {
        const int n = count - i < kLanes ? static_cast<int>(count - i) : kLanes;
        const Vec value = n == kLanes ? load(from + i * kFrom, source) : load_n(from + i * kFrom, n, source);
        store_n(to + i * kTo, value, n, target);
      }
    });
  });
}

// Reads a column of every part before it writes that column, so `out` may be a part.
void merge_row(const MergeRow* row) {
  with_kind(row->part_kind, [&](auto source) {
    with_kind(row->out_kind, [&](auto target) {
      constexpr size_t kFrom = decltype(source)::kBytes;
      constexpr size_t kTo = decltype(target)::kBytes;
      for (uint32_t i = 0; i < row->size; i += kLanes) {
        const int n = row->size - i < kLanes ? static_cast<int>(row->size - i) : kLanes;
        Vec total{};
        for (uint32_t part = 0; part < row->count; ++part) {
          if (row->weights[part] == 0.f) continue;
          total = fma(load_n(row->parts[part] + i * kFrom, n, source), splat(row->weights[part]), total);
        }
        store_n(row->out + i * kTo, total, n, target);
      }
    });
  });
}

}  // namespace
}  // namespace anyattn::cpu
