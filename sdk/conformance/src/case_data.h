// SPDX-License-Identifier: Apache-2.0
// The numbers of a case: stored q, k, v, the features' inputs, and the reference result. Included by the runs of the kit and
// by tests of the reference. Knows no backend.
#ifndef ANYATTN_CONFORMANCE_CASE_DATA_H
#define ANYATTN_CONFORMANCE_CASE_DATA_H

#include <string>

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

// Data the case needs is not there (the small model): the case is skipped with this text.
struct DataMissing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Everything a plain case reads, rounded to its dtype. Rows of q stand in request order, those past the last request hold
// NaN. Key rows: the shared prefix first, then each request's own keys.
struct PlainData {
  HeadShape shape;
  double softmax_scale = 1.0;
  std::vector<float> q;         // [num_tokens, num_q_heads, head_size]
  std::vector<float> k;         // [num_key_rows, num_kv_heads, head_size], as handed to the cache
  std::vector<float> v;         // [num_key_rows, num_kv_heads, head_size_v]
  std::vector<float> stored_k;  // as k, what a reader of the cache gets; ragged: k itself
  std::vector<float> stored_v;
  std::vector<float> slopes;             // [num_q_heads], or empty
  std::vector<float> sinks;              // [num_q_heads], or empty
  std::vector<int32_t> sparse;           // [num_tokens, top_k], or empty
  std::vector<int32_t> query_start_loc;  // [num_reqs + 1]
  std::vector<int64_t> own_start;        // [num_reqs], key row of the request's first key past the prefix
  int64_t num_tokens = 0;                // pad_rows counted
  int64_t num_key_rows = 0;
  int64_t prefix = 0;
  std::vector<std::vector<MmRange>> mm;  // [num_reqs]

  int64_t key_row(size_t request, int64_t position) const {
    return position < prefix ? position : own_start[request] + position - prefix;
  }
};

// model_file: a dump of real q, k and v (data=stories); may be empty.
PlainData make_plain_data(const Case& c, const std::string& model_file);

// Rules of one request of the case, for rank `rank` of its shards. Views point into `data`; the sparse view is set per row.
RowRules rules_of(const Case& c, const PlainData& data, size_t request, uint32_t rank);

// The right result of every row, padded rows included; `rank` with shards.
Reference plain_reference(const Case& c, const PlainData& data, uint32_t rank);

// Is the key of `request` at `position` seen by any of its rows?
bool any_row_sees(const Case& c, const PlainData& data, size_t request, int64_t position);

// slope of head h of n: 2^(-8 (h + 1) / n).
std::vector<float> alibi_slopes(int num_heads, int of, int first);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CASE_DATA_H
