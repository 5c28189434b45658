// SPDX-License-Identifier: Apache-2.0
// Attention as attention.h means it, in double, and the tolerance that follows from it. Included by the kit, by tests and by
// `anyattn run`, which recomputes single tokens. Reads no cache and calls no backend: keys come from two functions.
#ifndef ANYATTN_CONFORMANCE_REFERENCE_H
#define ANYATTN_CONFORMANCE_REFERENCE_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "anyattn/conformance/numbers.h"

namespace anyattn::conformance {

enum class Alibi { kNone, kLinear, kSqrt, kSymmetric };

// Positions in one request that see each other both ways; both ends inside.
struct MmRange {
  int64_t first;
  int64_t last;
};

// What a row sees and how its scores are formed. Views are borrowed.
struct RowRules {
  double softmax_scale = 1.0;
  bool causal = true;
  int64_t window_left = -1;   // keys to the left besides the own one; -1 = unlimited
  int64_t window_right = -1;  // read where not causal
  double soft_cap = 0.0;      // 0 = none
  int64_t chunk_size = 0;     // chunked local attention; 0 = none
  Alibi alibi = Alibi::kNone;
  std::span<const float> alibi_slopes = {};      // [num_q_heads] with any Alibi but kNone
  std::span<const float> sinks = {};             // [num_q_heads], or empty: none
  std::span<const MmRange> mm_ranges = {};       // of this request
  bool sparse = false;                           // only keys listed below are seen
  std::span<const int32_t> sparse_indices = {};  // positions in the request; -1 is skipped
  uint32_t cp_world_size = 1;                    // keys are this rank's share: see position_of_key
  uint32_t cp_rank = 0;
  uint32_t cp_interleave = 1;
};

// Keys of a request of `seq_len` keys that a rank holds.
int64_t shard_length(int64_t seq_len, uint32_t world_size, uint32_t rank, uint32_t interleave);

// Position in the request of the rank's key number `key`.
int64_t position_of_key(const RowRules& rules, int64_t key);

// Does the row at `position` see the key at `key_position`?
bool sees(const RowRules& rules, int64_t position, int64_t key_position);

struct HeadShape {
  int num_q_heads = 1;
  int num_kv_heads = 1;
  int head_size = 1;
  int head_size_v = 1;
};

// Reads the stored (rounded, dequantised) values of local key number `key`. MLA: `value` fills the first kv_lora_rank
// entries of what `key` fills.
struct KeyReader {
  std::function<void(int64_t key, float* into)> key;    // fills [num_kv_heads, head_size]
  std::function<void(int64_t key, float* into)> value;  // fills [num_kv_heads, head_size_v]
};

// The exact result of the rows seen so far, what a naive computation in the query's own precision gives for them, and the
// maxima of the bound. Row-major, one row an attend_row().
struct Reference {
  std::vector<double> exact;      // [rows, num_q_heads, head_size_v]
  std::vector<double> naive;      // likewise
  std::vector<double> exact_lse;  // [rows, num_q_heads], natural logarithm; -inf where nothing is seen
  std::vector<double> naive_lse;  // likewise
  double max_score = 0.0;         // |score| as it enters the softmax, sinks included
  double max_value = 0.0;         // |v| over the visible keys
};

// Computes one row (one token, all heads) and appends it to `into`.
//   position   of the row in its request: seq_len - query_len + i; may be negative (more rows than keys)
//   num_keys   local keys of the request: seq_len, or shard_length() of it
//   q          [num_q_heads, head_size], stored values
//   q_dtype    what the naive computation rounds scores and probabilities to; its sums are float32. float8_e4m3fn: scores to
//              bfloat16, probabilities to codes with a row's largest at 2^8
// The reader is called once for each visible key and once for its value; sums run over 16 keys at a time.
// value.
void attend_row(const HeadShape& shape, const RowRules& rules, int64_t position, int64_t num_keys, const float* q,
                const KeyReader& keys, uint32_t q_dtype, Reference* into);

// Appends a row that belongs to no request: out 0, lse -inf.
void append_empty_row(const HeadShape& shape, Reference* into);

// The tolerance, one number for every element of the case (max-norm):
//   out  2 * |naive - exact| + u_acc * (1 + max|score|) * max|v| + u_out * max|out|
//   lse  2 * |naive - exact| + u_acc * (1 + max|score| + |lse|), finite ones, in the natural base
struct Bound {
  double out = 0.0;
  double lse = 0.0;
};
Bound bound_of(const Reference& reference, uint32_t out_dtype);

// How far `got` is from `exact`. Infinities and NaN must stand at the same places with the same sign.
struct Comparison {
  double worst_error = 0.0;  // infinity where one side is not finite or the signs differ
  double ratio = 0.0;        // worst_error / bound; <= 1 passes
  size_t worst_index = 0;
  std::string failure;  // empty, or one sentence
  bool ok() const { return failure.empty(); }
};
Comparison compare(std::span<const float> got, std::span<const double> exact, double bound, const char* what);

// One partial result of a merge.
struct State {
  std::span<const double> out;  // [rows, head_size]
  std::span<const double> lse;  // [rows], natural; +inf reads as -inf
};
// Merges states in double into out [rows, head_size] and lse [rows]. A part with lse -inf is not read.
void merge_exact(std::span<const State> states, size_t head_size, std::vector<double>* out, std::vector<double>* lse);

// What merging partial results gives: exact merged in double, naive merged after each part was rounded to `out_dtype`, since
// that is how parts are stored between two calls.
Reference merge_parts(std::span<const Reference> parts, size_t head_size, uint32_t out_dtype);

// S, A, Wt, Ls of the recipes: sums that stand for a whole output.
struct Figures {
  double sum = 0.0;         // of out
  double sum_of_abs = 0.0;  // of |out|
  double weighted = 0.0;    // of ((i mod 7) - 3) * out_i
  double sum_of_lse = 0.0;  // finite ones
  size_t count_of_lse = 0;
};
Figures figures_of(std::span<const double> out, std::span<const double> lse);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_REFERENCE_H
