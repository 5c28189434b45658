// SPDX-License-Identifier: Apache-2.0
// A case as data: everything one test of a backend needs, written on one line that can be pasted back. Included by the kit
// and by tools that take --case. Runs nothing.
//
//   paged bfloat16 q=8 kv=2 d=128 bs=16 lens=1/1328,5/18,129/463 window=255 cap=50 lse=natural seed=7
//
// The first word is the kind, the second the dtype of q, k, v, cache (but for format=) and out; then key=value words and flags in any order.
#ifndef ANYATTN_CONFORMANCE_CASE_H
#define ANYATTN_CONFORMANCE_CASE_H

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/backend.h"
#include "anyattn/conformance/reference.h"

namespace anyattn::conformance {

enum class Kind {
  kPaged,       // keys in a paged cache
  kRagged,      // keys in args, no cache
  kMlaDecode,   // forward_mqa over a latent cache
  kMlaPrefill,  // context_gather and forward_mha over chunks, merged
  kMerge,       // merge_states alone
  kContract,    // a rule of the interface that is no number
};

// Where the numbers of q, k and v come from.
enum class Data {
  kUniform,  // D(seed), D(seed + 1), D(seed + 2), or the three `seeds`
  kRamp,     // q = 0, v[j] = j in every dim: the mean of the visible positions
  kCap,      // d = 1..., q = 100 and k = 10, 50, 100, -100 in dim 0; v = the unit vectors
  kNanQ,     // uniform, but the first query row of each request is NaN: so are its out and lse, and no other row's
  kPowers,   // uniform, k[j] times 2^(j mod 5), v[j] times 2^((j + 2) mod 5): every row a scale of its own
  kStories,  // q, k, v of a small model's layer, see Options::model_file
};

struct RequestLens {
  int32_t query_len = 1;
  int32_t key_len = 1;  // 0 with rows: a padded request
  bool operator==(const RequestLens&) const = default;
};

// Sizes the impl is made for; 0 = as large as the case needs.
struct CaseLimits {
  uint32_t num_reqs = 0;
  uint32_t num_tokens = 0;
  uint32_t query_len = 0;
  uint32_t seq_len = 0;
  bool operator==(const CaseLimits&) const = default;
};

struct MmSpan {
  int32_t request = 0;
  int32_t first = 0;
  int32_t last = 0;
  bool operator==(const MmSpan&) const = default;
};

struct Case {
  std::string name;  // not part of the text
  Kind kind = Kind::kPaged;
  uint32_t dtype = ANYATTN_DTYPE_FLOAT32;
  uint32_t out_dtype = 0;  // out=; 0 = dtype
  float out_scale = 0;     // out_scale=: out holds float8_e4m3fn codes of value / out_scale; 0 = floats
  float q_scale = 0;       // q_scale=: q holds float8_e4m3fn codes of value / q_scale; 0 = floats
  std::string format;      // format= of the cache, a kv_cache_dtype; empty = the dtype's own

  int num_q_heads = 1;            // q=
  int num_kv_heads = 1;           // kv=
  int head_size = 64;             // d=
  int head_size_v = 0;            // dv=; 0 = head_size
  int block_size = 16;            // bs=; 0 = the backend's choice
  std::vector<RequestLens> lens;  // lens=query/keys,...
  CaseLimits limits;              // limits=reqs/tokens/query_len/seq_len
  double softmax_scale = 0.0;     // scale=; 0 = 1 / sqrt(head_size)

  Data data = Data::kUniform;            // data=uniform|ramp|cap|stories
  int layer = 0;                         // layer=, of the model
  std::vector<uint64_t> seeds{1, 2, 3};  // seed=n or seeds=q:k:v
  bool q_each = false;                   // q_each: request r draws its q from seed + r
  double gain = 1.0;                     // gain=, multiplies q
  std::vector<double> golden;            // golden=S:A:Wt:Ls:count

  bool non_causal = false;  // noncausal
  std::vector<int> causal;  // causal=1,0,...: per request; of random batches: repeated over them
  int window_left = -1;     // window=left[:right]
  int window_right = -1;
  double soft_cap = 0.0;       // cap=
  Alibi alibi = Alibi::kNone;  // alibi=linear|sqrt|symmetric
  int slopes_of = 0;           // slopes=of:first; heads in all, 0 = num_q_heads
  int slopes_first = 0;
  std::vector<float> sinks;  // sinks=a,b,... ; repeated over the heads
  std::vector<MmSpan> mm;    // mm=request:first-last,...
  int chunk_size = 0;        // chunk=
  int top_k = 0;             // topk=
  int cp_world_size = 0;     // cp=world:interleave; 0 = not sharded
  int cp_interleave = 1;
  uint32_t lse_base = 0;         // lse=natural|base2; 0 = not asked
  bool invariant = false;        // invariant: alone and in company, bitwise
  std::vector<float> kv_scales;  // scales=k:v
  bool head_scales = false;      // head_scales: kv head h takes h + 1 times the scales, q_scale too
  bool kv_transfer = false;      // kv_transfer: blocks are read by another process
  int graph_level = -1;          // graph=level asked for; -1 = the feature is not set

  std::string layout;                       // layout=NHD: the accepted spec of that name
  int stride_extra = 0;                     // stride_extra=bytes added to the block stride
  std::vector<int64_t> table;               // table=5,9-12: block ids in order of request and block
  int prefix = 0;                           // prefix=tokens that all requests share
  int shared_prefix = 0;                    // shared=, told to the backend
  int surplus = 0;                          // surplus=blocks handed out beyond the need, full of NaN
  bool freed = false;                       // freed: blocks wholly outside the window hold NaN
  bool holes = false;                       // holes: freed, and their table entries are -1
  bool poisons = false;                     // poisons: NaN, inf, 1e30, 0 in unowned slots, bitwise equal
  bool padded = false;                      // padded: rows as without the requests of key length 0, bitwise
  int pad_rows = 0;                         // pad_rows= after the last request
  bool fused = false;                       // fused: q, k, v are slices of wider rows
  int random = 0;                           // random=batches within the limits, drawn from the seed
  uint32_t mode = ANYATTN_METADATA_NORMAL;  // mode=fast|graph
  bool again = false;                       // again: the same call three times, bitwise equal
  bool retable = false;                     // retable: metadata through update_block_table, bitwise as without

  int kv_lora_rank = 0;   // lora=
  int nope = 0;           // nope=
  int rope = 0;           // rope=
  int v_head_dim = 0;     // vdim=
  int context_chunk = 0;  // context_chunk=rows a request gives to a chunk
  int num_states = 2;     // parts=
  std::string check;      // check=rule of a contract case

  bool operator==(const Case&) const = default;
};

inline uint32_t out_dtype_of(const Case& c) {
  return c.out_scale > 0 ? ANYATTN_DTYPE_FLOAT8_E4M3FN : c.out_dtype ? c.out_dtype : c.dtype;
}

inline uint32_t q_dtype_of(const Case& c) { return c.q_scale > 0 ? ANYATTN_DTYPE_FLOAT8_E4M3FN : c.dtype; }

// The text is no case: says which word, what is allowed.
struct CaseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// parse_case(case_text(c)) equals c but for its name. Throws CaseError.
Case parse_case(std::string_view text);
std::string case_text(const Case& c);

// Words of the grammar, one line each, for --help.
std::string case_grammar();

// Every case of a grid in order; names are unique. small: about a minute on one slow core; full adds large shapes.
// truth_seed: of the random problems truth/*.
enum class Grid { kSmall, kFull };
std::vector<Case> all_cases(Grid grid, uint64_t truth_seed = 1);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CASE_H
