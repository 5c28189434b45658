// SPDX-License-Identifier: Apache-2.0
// Requests that share their first tokens, and a batch that says so: speed may follow from it, the answer never does.
#include "cases.h"

namespace anyattn::conformance {
namespace {

// Decode rows over a prefix of 256, some of them in its last blocks' neighbourhood; all rows see the whole prefix.
#define ANYATTN_SHARING "lens=1/257,1/300,3/290,1/256,1/511,2/400,0/300,1/333 prefix=256 shared=256 lse=natural"

constexpr Line kLines[] = {
    {"meaning/prefix_@", "paged q=8 kv=2 d=64 " ANYATTN_SHARING " seed=741 @", Dtypes::kAll,
     "|window=600|window=299|window=100|sinks=1,-1,2|cap=3 gain=6|window=600 cap=3 gain=6 "
     "sinks=2,-1|noncausal|fused|bs=32|bs=8"},
    {"meaning/prefix_and_alibi", "paged q=8 kv=2 d=64 " ANYATTN_SHARING " seed=742 alibi=linear", Dtypes::kAll},
    {"meaning/prefix_and_batch_mates",
     "paged q=8 kv=2 d=64 lens=1/257,1/300,3/290,1/511,2/400 prefix=256 shared=256 lse=natural seed=743 invariant",
     Dtypes::kAll},
    {"meaning/prefix_same_bits_again", "paged q=8 kv=2 d=64 " ANYATTN_SHARING " seed=744 again", Dtypes::kAll},
    {"meaning/prefix_of_heads_@", "paged " ANYATTN_SHARING " seed=745 @", Dtypes::kHalves,
     "q=4 kv=4 d=128|q=6 kv=2 d=40|q=16 kv=2 d=72|q=32 kv=1 d=128|q=4 kv=2 d=192 dv=128|q=4 kv=2 d=256"},
    {"meaning/prefix_told_as_@",
     "paged q=8 kv=2 d=64 lens=1/300,4/257,1/256,2/290,1/280,1/310 prefix=256 lse=natural seed=746 shared=@", Dtypes::kAll,
     "0|1|130|200|255"},
    {"meaning/prefix_and_rows_inside_it",
     "paged q=8 kv=2 d=64 lens=20/260,1/300,40/256,2/257,4/258,1/259,1/290 prefix=256 shared=256 "
     "lse=natural seed=747",
     Dtypes::kAll},
    {"meaning/prefix_and_rows_of_every_kind",
     "paged q=8 kv=2 d=64 lens=1/0,1/300,2/0,4/260,0/0,1/270,0/280,1/290 pad_rows=2 prefix=256 shared=256 lse=natural "
     "sinks=0.5,-1 "
     "seed=748",
     Dtypes::kAll},
    {"meaning/prefix_and_causality_of_each",
     "paged q=8 kv=2 d=64 lens=4/270,4/270,3/258,1/300,2/256 causal=1,0,0,1,0 prefix=256 shared=256 "
     "lse=natural seed=749",
     Dtypes::kAll},
    {"meaning/prefix_and_prefill",
     "paged q=8 kv=2 d=64 lens=40/300,70/330,33/296,1/300,1/290 prefix=256 shared=256 lse=natural seed=750", Dtypes::kAll},

    {"random/prefix", "paged q=8 kv=2 d=64 seed=922 limits=12/48/16/600 prefix=256 shared=256 random=12 lse=natural",
     Dtypes::kAll},
    {"graph/replay_prefix_@",
     "paged q=8 kv=2 d=64 limits=12/48/16/600 prefix=256 shared=256 random=8 lse=natural mode=graph seed=@", Dtypes::kAll,
     "923|924"},

    {"full/prefix_of_many",
     "paged q=8 kv=2 d=128 lens=1/1023,1/879,1/778,1/1777,1/1023,1/879,1/778,1/1777,1/1023,1/879,1/778,1/1777 prefix=512 "
     "shared=512 seed=827 "
     "lse=natural cap=50",
     Dtypes::kHalves, nullptr, Size::kLarge},
};

#undef ANYATTN_SHARING

}  // namespace

const std::span<const Line> kPrefixLines(kLines);

}  // namespace anyattn::conformance
