// SPDX-License-Identifier: Apache-2.0
// Steps of changing batches through the library as an engine makes them: requests come and go in a pool, tables and slots are
// filled, two layers run. Everything is allocated beforehand. Included by tests that count what a step costs.
#pragma once

#include <cstdint>
#include <vector>

#include "anyattn/kv_pool.h"
#include "runtime_fixture.h"

namespace fake {

class LibrarySteps {
 public:
  static constexpr uint32_t kMaxReqs = 8;
  static constexpr uint32_t kMaxTokens = 64;
  static constexpr uint32_t kMaxLen = 256;

  // small_problem() answered by `backend`.
  LibrarySteps(const anyattn::Runtime& runtime, const std::string& backend)
      : group_(runtime, options(backend)), info_(group_.info()), memory_(runtime, {}, 4 * kTensorBytes + kMaxTokens * 8) {
    anyattn_kv_group_options one{};
    one.struct_size = ANYATTN_KV_GROUP_OPTIONS_SIZE;
    one.num_layers = 2;
    one.window_left = -1;
    one.spec = info_.spec;
    anyattn_kv_pool_options pool{};
    pool.struct_size = ANYATTN_KV_POOL_OPTIONS_SIZE;
    pool.num_groups = 1;
    pool.group_stride = sizeof one;
    pool.device_kind = ANYATTN_DEVICE_CPU;
    pool.max_num_reqs = kMaxReqs;
    pool.max_seq_len = kMaxLen;
    pool.groups = &one;
    pool.num_blocks = 64;
    anyattn::check(anyattn_kv_pool_create, runtime.get(), static_cast<const anyattn_kv_pool_options*>(&pool), &pool_);
    for (uint32_t layer = 0; layer < 2; ++layer) {
      caches_[layer].struct_size = ANYATTN_CACHE_SIZE;
      anyattn::check(anyattn_kv_pool_layer_cache, static_cast<const anyattn_kv_pool*>(pool_), 0u, layer, &caches_[layer]);
    }
    width_ = anyattn_kv_pool_max_blocks_per_req(pool_, 0);
    table_.resize(size_t{kMaxReqs} * width_);
  }
  ~LibrarySteps() { anyattn_kv_pool_destroy(pool_); }
  LibrarySteps(const LibrarySteps&) = delete;
  LibrarySteps& operator=(const LibrarySteps&) = delete;

  // One step: requests that are long enough go, one may come with a prompt of up to 20 tokens, the others get one token more.
  // Status of the first call that failed.
  int32_t step(uint64_t number) {
    for (uint32_t i = num_live_; i-- > 0;) {
      if (live_[i].tokens <= 60) continue;
      failed(anyattn_kv_pool_release(pool_, live_[i].id, nullptr));
      live_[i] = live_[--num_live_];
    }
    int32_t tokens = 0;
    for (uint32_t i = 0; i < num_live_; ++i) grow(i, 1, tokens);
    if (num_live_ < kMaxReqs && number % 3 != 2) {
      live_[num_live_] = {next_id_++, 0};
      uint32_t cached = 0;
      const auto prompt = static_cast<uint32_t>(1 + number % 20);
      failed(anyattn_kv_pool_begin(pool_, live_[num_live_].id, ids_, prompt, 0, &cached, nullptr));
      // The prefix that was found is computed again: what counts here is the calls.
      grow(num_live_++, static_cast<int32_t>(prompt), tokens);
    }
    return run(tokens);
  }
  // The same, whatever failed before.
  int32_t fresh_step(uint64_t number) {
    status_ = ANYATTN_OK;
    return step(number);
  }
  std::string backend() const { return group_.info().backend; }
  const char* last_text() const { return text_; }  // of the group's last call that failed

 private:
  static constexpr uint64_t kTensorBytes = uint64_t{kMaxTokens} * 8 * 64 * 4;
  struct Live {
    uint64_t id = 0;
    int32_t tokens = 0;
  };

  static anyattn::Group::Options options(const std::string& backend) {
    anyattn::Group::Options options = group_options(problem().view());
    options.limits = {ANYATTN_LIMITS_SIZE, kMaxReqs, kMaxTokens, 32, kMaxLen, 0};
    options.backend = backend;
    return options;
  }
  static const anyattn::Problem& problem() {
    static const anyattn::Problem problem = small_problem();
    return problem;
  }

  void failed(int32_t status) { status_ = status_ != ANYATTN_OK ? status_ : status; }

  // Adds rows of request `i` to the batch.
  void grow(uint32_t i, int32_t rows, int32_t& tokens) {
    Live& request = live_[i];
    failed(anyattn_kv_pool_reserve(pool_, request.id, static_cast<uint32_t>(request.tokens + rows), nullptr));
    failed(anyattn_kv_pool_slot_mapping(pool_, 0, request.id, static_cast<uint32_t>(request.tokens),
                                        static_cast<uint32_t>(rows), slots() + tokens, nullptr));
    request.tokens += rows;
    tokens += rows;
    starts_[i + 1] = tokens;
    lens_[i] = request.tokens;
    order_[i] = request.id;
  }

  int64_t* slots() const { return reinterpret_cast<int64_t*>(static_cast<char*>(memory_.get()) + 4 * kTensorBytes); }
  anyattn::Tensor tensor(int index, int64_t rows, int64_t heads) const {
    return {static_cast<char*>(memory_.get()) + index * static_cast<int64_t>(kTensorBytes),
            ANYATTN_DTYPE_FLOAT32,
            {rows, heads, 64}};
  }

  int32_t run(int32_t tokens) {
    failed(anyattn_kv_pool_block_table(pool_, 0, order_, num_live_, table_.data(), width_, nullptr));
    anyattn_batch batch{};
    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = num_live_;
    batch.num_tokens = static_cast<uint32_t>(tokens);
    batch.max_query_len = 20;
    batch.max_seq_len = kMaxLen;
    batch.query_start_loc = batch.query_start_loc_host = starts_;
    batch.seq_lens = batch.seq_lens_host = lens_;
    batch.block_table = table_.data();
    batch.block_table_stride = width_;
    anyattn_error error{text_, sizeof text_, 0, 0, 0};
    failed(anyattn_group_update(group_.get(), ANYATTN_PHASE_BOTH, &batch, nullptr, &error));
    if (status_ != ANYATTN_OK) return status_;
    const anyattn::Tensor q = tensor(0, tokens, 8), out = tensor(1, tokens, 8), k = tensor(2, tokens, 2),
                          v = tensor(3, tokens, 2);
    const anyattn::Tensor slot_mapping(slots(), ANYATTN_DTYPE_INT64, {tokens});
    for (const anyattn_cache& cache : caches_) {
      anyattn_kv_cache_update_args update{};
      update.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
      update.k = k;
      update.v = v;
      update.slot_mapping = slot_mapping;
      update.cache = &cache;
      failed(anyattn_group_kv_cache_update(group_.get(), &update, nullptr));
      anyattn_forward_args args{};
      args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
      args.softmax_scale = 0.125;
      args.q = q;
      args.out = out;
      args.cache = &cache;
      failed(anyattn_group_forward(group_.get(), ANYATTN_PHASE_BOTH, &args, &error));
    }
    for (uint32_t i = 0; i < num_live_; ++i) {
      failed(anyattn_kv_pool_commit(pool_, live_[i].id, static_cast<uint32_t>(live_[i].tokens), nullptr));
    }
    return status_;
  }

  anyattn::Group group_;
  anyattn_group_info info_;
  anyattn::DeviceMemory memory_;  // q, out, k, v, slots
  anyattn_kv_pool* pool_ = nullptr;
  anyattn_cache caches_[2] = {};
  int64_t width_ = 0;
  std::vector<int32_t> table_;
  Live live_[kMaxReqs];
  uint32_t num_live_ = 0;
  uint64_t next_id_ = 1;
  int32_t starts_[kMaxReqs + 1] = {};
  int32_t lens_[kMaxReqs] = {};
  uint64_t order_[kMaxReqs] = {};
  int32_t ids_[kMaxLen] = {};
  char text_[1024] = {};
  int32_t status_ = ANYATTN_OK;
};

}  // namespace fake
