// SPDX-License-Identifier: Apache-2.0
// One attention problem with its batch as data, run through CPU_ATTN's table and compared with the double reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "small_host.h"
#include "test_memory.h"

namespace anyattn::cpu_test {

struct Request {
  int32_t query_len = 1;
  int32_t seq_len = 1;
  bool causal = true;                               // read with per_request_causal
  std::vector<std::pair<int32_t, int32_t>> ranges;  // read with mm_prefix
};

struct AttnCase {
  uint64_t seed = 1;
  uint32_t num_q_heads = 4, num_kv_heads = 2, head_size = 16, head_size_v = 16, block_size = 16;
  uint32_t q_dtype = ANYATTN_DTYPE_FLOAT32, out_dtype = ANYATTN_DTYPE_FLOAT32, kv_dtype = ANYATTN_DTYPE_FLOAT32;
  uint64_t features = 0;
  int32_t window_left = -1, window_right = -1;
  double soft_cap = 30, softmax_scale = 0.25, amplitude = 1;
  uint32_t cp_world = 1, cp_rank = 0, cp_interleave = 1;
  bool ragged = false;
  uint32_t spec = 0;  // 0 head-major, 1 token-major
  uint32_t lse_base = ANYATTN_LSE_NATURAL;
  uint32_t padding_rows = 0;          // rows past the last request
  float poison = __builtin_nanf("");  // in every slot that no request owns
  std::vector<Request> requests;
  uint32_t num_workers = 1;
  std::string isa = "auto";

  AttnCase& with(uint32_t feature) {
    features |= uint64_t{1} << feature;
    return *this;
  }
  bool has(uint32_t feature) const { return ((features >> feature) & 1u) != 0; }
  std::string describe() const;
};

struct AttnResult {
  std::string failure;  // empty: every number is within its bound
  std::vector<float> out, lse;
  double ratio = 0;  // worst error over its bound
};

// The problem of the case; features must outlive it.
anyattn_problem problem_of(const AttnCase& test, const uint64_t& features, const char*& dtype_text);

// A case step by step: each step is repeated or changed by the tests of single rules. A step that fails leaves its text in
// `result.failure` and returns false.
struct AttnRun {
  explicit AttnRun(const AttnCase& test);
  AttnRun(const AttnRun&) = delete;
  AttnRun& operator=(const AttnRun&) = delete;

  bool prepare();  // supports, spec, impl, memory, warm-up, metadata, cache
  bool store();    // kv_cache_update of every key; one more row has slot -1
  bool update();   // metadata_update with `batch`
  bool forward();  // into NaN-filled out and lse
  void compare();  // with the reference
  std::vector<float> out_floats() const { return out.floats(); }

  AttnCase test;
  AttnResult result;
  SmallHost host;
  const anyattn_backend& backend;
  const char* dtype_text = nullptr;
  anyattn_problem problem;
  ErrorText text;
  std::vector<int32_t> query_start, seq_lens, key_start, range_start, ranges;
  std::vector<uint8_t> causal;
  anyattn_limits limits{};
  int64_t rows = 0, keys = 0;
  TestTensor q, k, v, out, lse, sinks, slopes;
  Specs specs;
  anyattn_impl* impl = nullptr;
  anyattn_metadata* metadata = nullptr;
  std::unique_ptr<Guarded> scratch, persistent;
  std::unique_ptr<PagedCache> cache;
  anyattn_batch batch{};
  anyattn_forward_args args{};

  ~AttnRun();

 private:
  bool ok(int32_t status, const char* step);
};

// All steps.
AttnResult run_case(const AttnCase& test);

}  // namespace anyattn::cpu_test
