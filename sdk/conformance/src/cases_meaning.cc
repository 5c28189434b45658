// SPDX-License-Identifier: Apache-2.0
// What attention.h fixes, in combinations: order of cap, bias and mask; empty rows; sizes of heads and blocks; strides.
#include "cases.h"

namespace anyattn::conformance {
namespace {

constexpr Line kLines[] = {
    {"meaning/cap_then_alibi_then_mask",
     "paged q=4 kv=2 d=64 lens=5/40,1/33 seed=701 cap=2 gain=6 alibi=linear window=11 lse=natural", Dtypes::kAll},
    {"meaning/sink_is_not_capped_or_scaled",
     "paged q=4 kv=2 d=64 lens=5/40,1/33 seed=702 cap=1 gain=4 sinks=3,-3,0.25,9 lse=natural", Dtypes::kAll},
    {"meaning/window_cap_sinks",
     "paged q=8 kv=2 d=64 lens=17/90,1/64,3/3 seed=703 window=20 cap=3 gain=6 sinks=1,-1,2 lse=natural fused", Dtypes::kAll},
    {"meaning/window_is_two_sided_@", "ragged q=4 kv=2 d=32 lens=40/40,3/3,17/17 seed=704 noncausal lse=natural window=@",
     Dtypes::kFloat32, "8:8|8:0|0:8|8|-1:3"},
    {"meaning/window_is_two_sided_in_halves_@", "paged q=4 kv=2 lens=40/140,3/90,1/30 seed=704 noncausal lse=natural @",
     Dtypes::kHalves, "d=64 window=8:2|d=128 window=20:8|d=192 dv=128 window=-1:3 sinks=1"},
    {"meaning/window_wider_than_the_rest", "paged q=2 kv=1 d=32 lens=9/9,1/30 seed=705 window=29 lse=natural"},
    {"meaning/causality_of_each_request", "paged q=4 kv=2 d=64 lens=7/20,7/20,1/17,16/16 causal=1,0,0,0 seed=706 lse=natural",
     Dtypes::kAll},
    {"meaning/causality_and_window", "paged q=4 kv=2 d=64 lens=7/20,7/20,9/16 causal=1,0,0 window=4:2 seed=707 lse=natural"},
    {"meaning/encoder_@", "ragged q=4 kv=4 d=64 lens=33/33,1/1,70/70 seed=708 noncausal lse=natural @", Dtypes::kAll,
     "|fused|alibi=symmetric"},
    {"meaning/ragged_causal", "ragged q=4 kv=2 d=64 lens=9/9,5/30,4/2,0/6,2/0 seed=709 lse=natural", Dtypes::kAll},
    {"meaning/mm_ranges_@", "paged q=4 kv=2 d=64 lens=40/60,12/12,1/30 seed=710 mm=0:25-35,0:50-55,1:0-3,2:28-29 lse=natural @",
     Dtypes::kAll, "|window=6"},
    {"meaning/mm_ranges_and_holes", "paged q=2 kv=1 d=32 lens=4/100 seed=711 mm=0:16-20,0:97-98 window=3 holes lse=natural"},
    {"meaning/chunks_@", "paged q=4 kv=2 d=64 lens=4/6,10/17,5/9,1/33 seed=712 lse=natural chunk=@", Dtypes::kFloat32,
     "4|16|7"},
    {"meaning/sparse_@", "paged q=4 kv=2 d=64 lens=1/100,5/60,2/4 seed=713 lse=natural topk=@", Dtypes::kFloat32, "1|16|64"},
    {"meaning/block_size_@", "paged q=4 kv=2 d=64 lens=1/1,5/37,1/130 seed=714 lse=natural poisons bs=@", Dtypes::kFloat32,
     "0|1|2|8|15|16|17|24|32|33|64|128|256"},
    {"meaning/block_size_in_halves_@", "paged q=4 kv=2 d=64 lens=1/1,5/37,1/130 seed=714 lse=natural bs=@", Dtypes::kHalves,
     "1|15|16|32|128|256"},
    {"meaning/head_size_@", "paged q=4 kv=2 lens=5/37,1/50 seed=715 lse=natural d=@", Dtypes::kAll,
     "8|16|24|32|40|48|64|72|80|96|112|120|128|160|192|256|512|576"},
    {"meaning/head_sizes_@", "paged q=4 kv=2 lens=5/37,1/50 seed=716 lse=natural @", Dtypes::kFloat32,
     "d=192 dv=128|d=64 dv=128|d=128 dv=8|d=72 dv=200|d=64 dv=1|d=64 dv=33|d=576 dv=512"},
    {"meaning/head_size_in_halves_@", "paged q=4 kv=2 lens=5/37,1/50 seed=715 lse=natural d=@", Dtypes::kHalves,
     "56|88|104|136|168|200|224|248"},
    {"meaning/head_sizes_in_halves_@", "paged q=4 kv=2 lens=5/37,1/50,70/90 seed=716 lse=natural @", Dtypes::kHalves,
     "d=192 dv=128|d=64 dv=128|d=128 dv=8|d=72 dv=200|d=256 dv=64"},
    {"meaning/ragged_head_sizes", "ragged q=4 kv=4 d=192 dv=128 lens=20/20,3/30 seed=717 lse=natural fused", Dtypes::kAll},
    {"meaning/strided_rows", "paged q=8 kv=2 d=64 lens=5/37,1/50 seed=718 fused lse=natural", Dtypes::kAll},
    {"meaning/rows_of_every_kind", "paged q=4 kv=2 d=64 lens=0/20,1/0,3/0,5/2,1/1,16/16,0/0 pad_rows=2 seed=719 lse=natural",
     Dtypes::kAll},
    {"meaning/sinks_and_rows_of_no_request",
     "paged q=4 kv=2 d=64 lens=1/9,5/70,2/0 pad_rows=3 sinks=0.5,-1 seed=731 lse=natural", Dtypes::kAll},
    {"meaning/no_request_has_keys", "paged q=4 kv=2 d=64 lens=1/0,2/0 seed=720 lse=natural sinks=1,-1"},
    {"meaning/large_scores", "paged q=4 kv=2 d=64 lens=3/200,1/77 seed=721 gain=200 lse=natural", Dtypes::kAll},
    {"meaning/limits_larger_than_the_batch", "paged q=4 kv=2 d=64 lens=3/20,1/7 limits=16/256/64/4096 seed=722 lse=natural",
     Dtypes::kAll},
    {"meaning/freed_blocks_of_a_chunk", "paged q=4 kv=2 d=64 lens=17/150,1/140 seed=723 window=30 holes lse=natural poisons",
     Dtypes::kAll},
    {"meaning/ranks_with_window_and_sinks_@",
     "paged q=4 kv=2 d=32 lens=1/50,1/9 seed=724 window=20 sinks=1,-1,3 lse=natural cp=@", Dtypes::kFloat32, "2:1|3:4"},
    {"meaning/ranks_with_alibi", "paged q=4 kv=2 d=32 lens=1/50,1/9 seed=725 alibi=linear lse=natural cp=2:4"},
    {"meaning/prefill_of_ranks_@", "paged q=4 kv=2 d=32 lens=9/50,20/20,1/9 seed=726 lse=natural cp=@", Dtypes::kFloat32,
     "2:1|2:16|4:2"},
    {"meaning/shared_prefix_of_many", "paged q=8 kv=2 d=64 lens=1/70,3/65,1/99,1/64 prefix=64 shared=64 seed=727 lse=natural",
     Dtypes::kAll},
    {"meaning/out_dtype_@", "paged q=4 kv=2 d=64 lens=5/37,1/50 seed=728 lse=natural out=@", Dtypes::kHalves, "float32"},
    {"meaning/out_narrower_@", "paged q=4 kv=2 d=64 lens=5/37,1/50 seed=728 lse=natural out=@", Dtypes::kFloat32,
     "float16|bfloat16"},
    {"meaning/out_scale_@", "paged q=8 kv=2 d=64 lens=5/37,1/900,40/50,0/0 pad_rows=2 fused seed=732 lse=natural out_scale=@",
     Dtypes::kAll, "0.01|0.0002"},  // the second saturates
    {"meaning/out_scale_of_@_columns", "ragged q=4 kv=4 d=32 dv=@ lens=9/9,33/70 seed=733 out_scale=0.02", Dtypes::kHalves,
     "30|37"},
    {"meaning/quantised_query_@",
     "paged q=4 kv=2 d=128 lens=5/37,1/300,0/0,70/141 pad_rows=2 seed=734 lse=natural q_scale=0.01 format=fp8_e4m3 @",
     Dtypes::kHalves, "|scales=0.01:0.02 head_scales|window=100 sinks=1,-2|noncausal cap=3 gain=4|bs=128 dv=64 poisons"},
    {"meaning/metadata_mode_@", "paged q=4 kv=2 d=64 lens=1/37,1/50,1/600 seed=729 lse=natural mode=@", Dtypes::kAll,
     "fast|graph"},
    {"meaning/same_bits_again", "paged q=8 kv=2 d=64 lens=1/900,33/300,1/7 seed=731 lse=natural again", Dtypes::kAll},
    {"meaning/another_block_table", "paged q=4 kv=2 d=64 lens=5/37,1/50 seed=730 lse=natural retable", Dtypes::kAll},
};

}  // namespace

const std::span<const Line> kMeaningLines(kLines);

}  // namespace anyattn::conformance
