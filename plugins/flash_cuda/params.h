// SPDX-License-Identifier: Apache-2.0
// What the host side and the kernel families say to each other: the problem, one step's batch, one call, and the table of a family.
// Included by both sides (C++20, no CUDA header). Decides nothing.
#pragma once

#include <cstdint>

namespace anyattn::flash {

enum Dtype : int { kF16 = 0, kBF16 = 1, kE4M3 = 2, kF32 = 3 };
enum Causality : int { kCausal = 0, kNonCausal = 1, kPerRequest = 2 };
enum Alibi : int { kAlibiNone = 0, kAlibiLinear = 1, kAlibiSqrt = 2, kAlibiSymmetric = 3 };

// Constant for an impl: what instances are chosen by.
struct Problem {
  int dtype;        // Dtype of q, and of k and v where keys are ragged: kF16 or kBF16; kE4M3 with such a cache
  int kv_dtype;     // Dtype of the cache: the same, or kE4M3
  int out_dtype;    // Dtype of out: kF16, kBF16 or kF32
  int head_size;    // of q and k: a multiple of 8 up to 256
  int head_size_v;  // of v and out: likewise
  int num_q_heads, num_kv_heads;
  int block_size;                 // tokens a kernel block; 0: ragged keys
  int head_major;                 // 1: rows of one kv head lie together in a block (HND); 0: NHD, or ragged
  int causality;                  // Causality
  int window_left, window_right;  // -1: unlimited
  int alibi;                      // Alibi
  int sinks;                      // 1: a logit per query head in the denominator
  float soft_cap;                 // 0: none
  int invariant;                  // 1: a row's keys are never split by what else is in the batch
  int lse;                        // 1: a call may ask for the log-sum-exp

  constexpr int group() const { return num_q_heads / num_kv_heads; }
};

// Which keys a row may see: read by visible.cuh.
struct Mask {
  int causality;                  // Causality
  int window_left, window_right;  // -1: unlimited
};
inline Mask mask_of(const Problem& problem) { return {problem.causality, problem.window_left, problem.window_right}; }

struct Device {
  int arch_major, arch_minor;
  int num_multiprocessors;
  int shared_memory_per_block;  // bytes, the most that a kernel may ask for
};

// anyattn_limits, in ints.
struct Limits {
  int max_num_reqs, max_num_tokens, max_query_len, max_seq_len, max_blocks_per_req;
};

// A tensor as [token, head, element], the elements dense; strides in bytes.
struct Rows {
  char* data;
  int64_t token_bytes, head_bytes;
};

// Keys that many requests share and a pass of its own attends (cascade): a row of the first `reqs` requests whose request sees all of
// keys [0, keys) in every row leaves them to that pass. Device memory, written by the pass's update.
struct SharedPrefix {
  int32_t keys;  // a multiple of kSharedStep; 0: no pass
  int32_t reqs;
};
inline constexpr int kSharedStep = 128;  // every family's tile of keys divides it

// The batch of metadata_update: device arrays, see attention.h.
struct Batch {
  const int32_t* query_start_loc;  // [num_reqs + 1]
  const int32_t* seq_lens;         // [num_reqs]
  const int32_t* block_table;      // [num_reqs, table_stride]; null where ragged
  const int32_t* key_start_loc;    // [num_reqs + 1]; null where paged
  const uint8_t* causal;           // [num_reqs]; null unless kPerRequest
  int64_t table_stride;
  int32_t num_reqs, num_tokens;
  const SharedPrefix* shared;  // null: no keys are left out
};

// One lane: the requests whose query length lies in [min_query, max_query]. The lane with min_query 0 also owns what no request
// does: rows of out and lse from query_start_loc[num_reqs] up to num_tokens become 0 and -inf.
// A row that sees no key, in any lane: out 0, lse -inf, or the sink where there is one.
struct Lane {
  Problem problem;
  Device device;
  Limits limits;
  int min_query, max_query;
};

// metadata_update: queue work that rewrites `persistent`; the host reads no length. Every family also stores *kept = batch (from
// the device), so that a captured forward finds the newest one.
struct Update {
  Batch batch;
  Batch* kept;       // device
  void* persistent;  // this lane's part, 256-byte aligned, zeroed once
  // The pass over a shared prefix alone:
  SharedPrefix* shared;  // device, written: what batch.shared of the lanes points at
  int shared_prefix;     // keys that all requests are said to share
  int always;            // 1: whatever the model says
};

inline constexpr int kCounterSets = 8;

// One call. Launches depend on lane and addresses only, never on the batch.
struct Forward {
  const Batch* kept;  // device
  void* persistent;   // what update wrote
  void* scratch;      // this lane's part, 256-byte aligned, holds nothing between calls
  int counter_set;    // in [0, kCounterSets): calls on this metadata with another number use other scratch, those with the
                      // same one follow each other on a stream, so that a lane may keep counters in `persistent`; -1: none left
  Rows q, out;
  Rows k, v;                                  // planes of block 0 (their offset applied), or ragged rows
  int64_t block_bytes;                        // from a block to the next
  uint64_t num_blocks;                        // table entries outside [0, num_blocks) are not followed
  int64_t num_tokens;                         // rows of q, out and lse
  int64_t num_keys;                           // rows of ragged k and v
  float* lse;                                 // [token, head] f32; null: not wanted
  int64_t lse_token_stride, lse_head_stride;  // elements
  float lse_factor;                           // times the natural logarithm: 1, or log2(e)
  const float* sinks;                         // [num_q_heads]; null unless problem.sinks
  const float* slopes;                        // [num_q_heads]; null unless problem.alibi
  const float *k_scale, *v_scale;             // [1] or [num_kv_heads]; null: 1
  int scales_per_head;
  const float* q_scale;  // [1] or [num_kv_heads]; null unless q is kE4M3
  int q_scales_per_head;
  float softmax_scale;
};

struct Memory {
  uint64_t scratch_bytes, persistent_bytes;  // enough for every batch within the limits
};

// A family of kernels. Every function but prepare, update and forward is pure. prepare, update and forward throw anyattn::Error.
struct Family {
  const char* name;  // in logs: "sm80", "sm90_decode", "sm90_prefill"
  // Longest query a lane of this family should get beside another that takes the longer ones; 0: this family does not do this
  // problem; kAnyQuery: any.
  int (*longest_query)(const Device&, const Problem&);
  Memory (*memory)(const Lane&);
  // Cold, once an impl (in warmup): attributes of the kernels that the lane will launch.
  void (*prepare)(const Lane&);
  // Each queues its launches on the stream; captured alike. No allocation, no wait.
  void (*update)(const Lane&, const Update&, void* stream);
  void (*forward)(const Lane&, const Forward&, void* stream);
};

inline constexpr int kAnyQuery = 0x7fffffff;

extern const Family kSm80Decode, kSm80Prefill;  // the general path: every feature, mma.sync, sm_80 and newer
extern const Family kSm90Decode, kSm90Prefill;  // wgmma and bulk copies, sm_90a

// The pass over a shared prefix. Its update comes before the lanes' and decides on the device whether and for which rows it runs; its
// forward comes after theirs, finds their results in out and lse (not null) and joins its own. max_query: the longest query whose rows
// take part.
extern const Family kSm80Cascade;

}  // namespace anyattn::flash
