// SPDX-License-Identifier: Apache-2.0
// Buffers and structs of one correct step of a plain group of fake_backend.h; tests then break one thing. Decode rows only.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "anyattn/runtime.hpp"
#include "fake_backend.h"

namespace fake {

struct FreeAligned {
  void operator()(void* memory) const { std::free(memory); }
};
// 256-byte aligned, as the calls want it.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : memory_(std::aligned_alloc(256, (bytes + 255) / 256 * 256)) {}
  void* get() const { return memory_.get(); }

 private:
  std::unique_ptr<void, FreeAligned> memory_;
};

// `num_reqs` requests of one row each and 20 keys.
class Step {
 public:
  Step(const anyattn_group_info& info, uint32_t num_reqs, uint32_t table_width = 16)
      : num_reqs_(num_reqs),
        query_start_loc(num_reqs + 1),
        seq_lens(num_reqs, 20),
        block_table(static_cast<size_t>(num_reqs) * table_width, 1),
        q_(static_cast<size_t>(num_reqs) * 8 * 64 * 4),
        out_(static_cast<size_t>(num_reqs) * 8 * 64 * 4),
        kv_(static_cast<size_t>(num_reqs) * 2 * 64 * 4),
        slots_(static_cast<size_t>(num_reqs) * 8),
        blocks_(info.spec ? info.spec->block_bytes * 4 : 1) {
    for (uint32_t i = 0; i <= num_reqs; ++i) query_start_loc[i] = static_cast<int32_t>(i);
    const int64_t rows = num_reqs;
    q = anyattn::Tensor(q_.get(), ANYATTN_DTYPE_FLOAT32, {rows, 8, 64});
    out = anyattn::Tensor(out_.get(), ANYATTN_DTYPE_FLOAT32, {rows, 8, 64});
    k = v = anyattn::Tensor(kv_.get(), ANYATTN_DTYPE_FLOAT32, {rows, 2, 64});
    slots = anyattn::Tensor(slots_.get(), ANYATTN_DTYPE_INT64, {rows});

    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = batch.num_tokens = num_reqs;
    batch.max_query_len = 1;
    batch.max_seq_len = 20;
    batch.query_start_loc = query_start_loc.data();
    batch.seq_lens = seq_lens.data();
    batch.block_table = block_table.data();
    batch.block_table_stride = table_width;

    cache.struct_size = ANYATTN_CACHE_SIZE;
    cache.base = blocks_.get();
    cache.num_blocks = 4;
    cache.spec = info.spec;
    cache.block_stride_bytes = info.spec ? info.spec->block_bytes : 0;

    update.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    update.k = k;
    update.v = v;
    update.slot_mapping = slots;
    update.cache = &cache;

    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.softmax_scale = 0.125;
    args.q = q;
    args.out = out;
    args.cache = &cache;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  int64_t rows() const { return num_reqs_; }
  // A tensor whose dims live as long as the step.
  const anyattn::Tensor& keep(const anyattn::Tensor& tensor) { return kept_.emplace_back(tensor); }

 private:
  uint32_t num_reqs_;
  std::deque<anyattn::Tensor> kept_;

 public:
  std::vector<int32_t> query_start_loc;
  std::vector<int32_t> seq_lens;
  std::vector<int32_t> block_table;

 private:
  Buffer q_, out_, kv_, slots_, blocks_;

 public:
  anyattn::Tensor q, out, k, v, slots;
  anyattn_batch batch{};
  anyattn_cache cache{};
  anyattn_kv_cache_update_args update{};
  anyattn_forward_args args{};
};

// Status and text of one call.
struct Answer {
  int32_t status = ANYATTN_OK;
  std::string text;
};
template <class... Params, class... Args>
Answer answer(int32_t (*function)(Params...), Args... args) {
  char text[2048] = {};
  anyattn_error error{text, sizeof text, 0, 0, 0};
  Answer given;
  given.status = function(args..., &error);
  given.text = given.status == ANYATTN_OK ? "" : text;
  if (error.status != given.status) given.text += " (error.status differs)";
  return given;
}

inline anyattn_group_info info_of(const anyattn_group* group) {
  anyattn_group_info info{};
  info.struct_size = ANYATTN_GROUP_INFO_SIZE;
  anyattn::check(anyattn_group_get_info, group, &info);
  return info;
}

}  // namespace fake
