// SPDX-License-Identifier: Apache-2.0
// What a queued call keeps of its arguments. Included by the backends of the pretended device.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>

#include "anyattn/backend.h"
#include "queue.h"

namespace pretend {

// Arguments that outlive the call: tensors with shapes of their own, and the cache.
template <class Args>
struct Kept {
  explicit Kept(const Args& given) : args(given) {
    if (given.cache) cache = *given.cache;
    args.cache = given.cache ? &cache : nullptr;
  }
  Kept(const Kept&) = delete;
  void own(anyattn_tensor& tensor) {
    for (int64_t** list : {&tensor.shape, &tensor.strides}) {
      if (!*list) continue;
      auto& copy = lists.emplace_back();
      std::copy_n(*list, tensor.ndim, copy.begin());
      *list = copy.data();
    }
  }
  Args args;
  anyattn_cache cache{};
  std::deque<std::array<int64_t, 4>> lists;
};

}  // namespace pretend
