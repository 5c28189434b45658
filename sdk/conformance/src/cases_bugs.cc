// SPDX-License-Identifier: Apache-2.0
// Bugs reported against other attention backends, each with the small input that shows it and figures of the right result.
#include "cases.h"

namespace anyattn::conformance {
namespace {

constexpr Line kLines[] = {
    {"bug/1_nan_behind_the_last_key",
     "paged q=8 kv=2 d=32 lens=1/13,1/16,1/17 seed=111 lse=natural poisons "
     "golden=-9.108056826:94.241033387:0.455174813:66.593845920:24",
     Dtypes::kAll},
    {"bug/3_blocks_behind_the_window_@",
     "paged q=4 kv=2 d=64 scale=0.125 lens=1/100 seed=101 window=15 lse=natural @ "
     "golden=6.941417592:31.572919347:10.058133054:11.349064010:4",
     Dtypes::kAll, "freed|holes"},
    {"bug/5_cross_attention_ragged",
     "ragged q=4 kv=4 d=32 scale=0.2 lens=4/9 seed=271 noncausal lse=natural "
     "golden=4.042868694:78.690663302:4.635626566:35.556425310:16",
     Dtypes::kAll},
    {"bug/5_cross_attention_paged",
     "paged q=4 kv=4 d=32 scale=0.2 lens=4/9 seed=271 noncausal lse=natural "
     "golden=4.042868694:78.690663302:4.635626566:35.556425310:16"},
    {"bug/5_more_rows_than_encoder_tokens", "ragged q=4 kv=4 d=32 scale=0.2 lens=40/9 seed=271 noncausal lse=natural",
     Dtypes::kAll},
    {"bug/6_window_left_@", "paged d=16 lens=1/10 data=ramp lse=natural window=@", Dtypes::kAll, "0|1|2|3|4|5|6|7|8|9|10|11"},
    {"bug/6_window_in_a_chunk",
     "paged q=2 kv=1 d=16 scale=0.5 lens=10/24 seed=361 window=4 lse=natural "
     "golden=-17.189340143:71.043927570:-6.889328426:34.126301306:20",
     Dtypes::kAll},
    {"bug/8_causal_is_bottom_right",
     "paged q=2 kv=1 d=16 scale=1 lens=3/11 seed=164 lse=natural "
     "golden=-0.009619820:22.843910867:1.740627458:17.443197987:6",
     Dtypes::kAll},
    {"bug/8_more_rows_than_keys",
     "paged d=8 scale=1 lens=5/3 seed=161 lse=natural "
     "golden=-4.179722301:9.652098375:nan:3.633065705:3",
     Dtypes::kAll},
    {"bug/11_merge_@_parts", "merge q=4 d=16 lens=32/1 seed=11 parts=@", Dtypes::kAll, "1|2|3|7"},
    {"bug/16_lse_of_one_key_@", "paged d=8 scale=0.001 lens=1/1 data=cap lse=@", Dtypes::kAll, "natural|base2"},
    {"bug/16_merge_of_ranks_@",
     "paged q=2 kv=1 d=16 scale=4 lens=1/64 seed=131 cp=4:1 lse=@ "
     "golden=-2.478285388:6.074884954:-3.038023692:20.099309161:2",
     Dtypes::kAll, "natural|base2"},
    {"bug/18_ranks_with_few_keys",
     "paged q=4 kv=2 d=32 scale=0.3 lens=1/10 seed=221 cp=4:1 lse=natural "
     "golden=1.528037491:19.117788738:nan:9.133181817:4",
     Dtypes::kAll},
    {"bug/18_a_rank_without_keys",
     "paged q=4 kv=2 d=32 scale=0.3 lens=1/3 seeds=224:222:223 cp=4:1 lse=natural "
     "golden=8.026055958:34.936746289:nan:4.734155610:4",
     Dtypes::kAll},
    {"bug/18_interleave_@", "paged q=4 kv=2 d=32 lens=1/0,1/1,1/3,1/10,1/17,1/33 seed=225 lse=natural cp=@", Dtypes::kFloat32,
     "4:1|4:2|2:16|3:4"},
    {"bug/20_head_and_tail_chunks",
     "paged q=2 kv=1 d=16 scale=0.25 lens=4/4,8/12,4/16 prefix=16 seed=351 lse=natural "
     "golden=-19.365355101:108.106520699:-3.366456648:62.038073459:32",
     Dtypes::kAll},
    {"bug/20_row_p_is_half_of_p_@", "paged q=2 kv=1 d=16 lens=@ prefix=16 data=ramp lse=natural", Dtypes::kFloat32,
     "4/4,6/10,3/13|4/4,6/10,4/14|4/4,8/12,3/15|4/4,8/12,4/16"},
    {"bug/20_prefill_over_ranks_@", "paged q=2 kv=1 d=16 lens=4/4,8/12,4/16 prefix=0 seed=352 lse=natural cp=@",
     Dtypes::kFloat32, "2:1|2:4"},
    {"bug/21_padded_rows_@", "paged q=8 kv=2 d=32 lens=1/13,1/16,1/17,@ seed=111 lse=natural padded", Dtypes::kAll,
     "1/0|1/0,1/0,1/0,1/0,1/0"},
    {"bug/21_rows_past_the_last_request", "paged q=8 kv=2 d=32 lens=1/13,1/16,1/17 seed=111 lse=natural pad_rows=5",
     Dtypes::kAll},
    {"bug/23_block_offset_past_32_bits",
     "paged q=4 kv=2 d=64 lens=1/20 seed=23 table=2065,2066 stride_extra=4142336 lse=natural"},
    {"bug/23_block_offset_of_halves", "paged q=4 kv=2 d=64 lens=1/20 seed=23 table=2065,2066 stride_extra=2071168 lse=natural",
     Dtypes::kHalves},
    {"bug/25_soft_cap_of_large_scores_@", "paged d=8 scale=1 lens=1/4 data=cap cap=50 lse=natural gain=@", Dtypes::kAll,
     "1|-1"},
    {"bug/28_slopes_of_a_later_rank", "paged q=4 kv=4 d=16 lens=1/21 seed=281 alibi=linear slopes=8:4", Dtypes::kAll},
    {"bug/30_sink_counted_once",
     "paged q=4 kv=2 d=32 scale=0.25 lens=1/48 seed=171 window=7 sinks=0.5,-1,2,0 lse=natural "
     "golden=1.132968921:16.427143483:-3.873738496:9.672420783:4",
     Dtypes::kAll},
    {"bug/30_sink_without_keys", "paged q=4 kv=2 d=32 scale=0.25 lens=1/48,1/0,3/2 seed=171 sinks=0.5,-1,2,0 lse=natural",
     Dtypes::kAll},
    {"bug/30_sink_of_many_keys", "paged q=4 kv=2 d=32 scale=0.25 lens=1/3000 seed=171 sinks=6,-1,8,0 lse=natural"},
    {"bug/32_heads_6_over_2",
     "paged q=6 kv=2 d=64 scale=0.125 lens=1/33 seed=184 lse=natural "
     "golden=-5.823483530:33.767849213:-2.023064238:21.311490588:6",
     Dtypes::kAll},
    {"bug/32_heads_@", "paged @ d=64 lens=1/33,5/40 seed=187 lse=natural", Dtypes::kFloat32,
     "q=5 kv=1|q=24 kv=4|q=28 kv=4|q=40 kv=8|q=56 kv=8|q=64 kv=4|q=71 kv=1"},
    {"bug/37_manager_block_48", "paged q=4 kv=2 d=32 lens=1/70 seed=37 table=15-17,6-7 lse=natural"},
    {"bug/37_manager_block_528", "paged q=4 kv=2 d=32 lens=1/1000 seed=37 table=99-131,0-29 lse=natural"},
    {"bug/38_layout_@",
     "paged q=4 kv=2 d=16 scale=0.25 lens=1/20 seed=261 lse=natural layout=@ "
     "golden=1.688006102:6.237632410:-2.554603612:11.993983474:4",
     Dtypes::kAll, "HND|NHD|HND stride_extra=192|NHD stride_extra=192"},
    {"bug/46_rows_without_keys",
     "paged d=8 scale=1 lens=1/1,1/0,1/3,1/4,1/0,1/6 prefix=6 seed=381 lse=natural "
     "golden=1.905703800:8.743257542:-2.067590760:8.387056669:4",
     Dtypes::kAll},
    {"bug/49_shared_prefix_@",
     "paged q=4 kv=2 d=32 scale=0.3 lens=1/33,1/37,1/43 prefix=32 q_each seeds=240:232:233 shared=@ lse=natural "
     "golden=-2.429544901:32.217789072:-3.705004867:44.974179602:12",
     Dtypes::kFloat32, "0|16|32"},
    {"bug/49_shared_prefix_and_window_@",
     "paged q=4 kv=2 d=32 scale=0.3 lens=1/33,1/37,1/43 prefix=32 q_each seeds=240:232:233 shared=32 "
     "lse=natural window=@",
     Dtypes::kFloat32, "7|63"},
    {"bug/51_batch_mates_@",
     "paged q=4 kv=2 d=32 lens=1/1000,1/1,1/4096,1/333,1/64,3/65,1/2047,7/17 seed=51 lse=natural invariant @", Dtypes::kFloat32,
     "|window=127|noncausal"},
    {"bug/51_batch_mates_in_halves", "paged q=4 kv=2 d=32 lens=1/1000,1/1,1/333,1/64,3/65,7/17 seed=51 lse=natural invariant",
     Dtypes::kHalves},
    {"bug/53_table_longer_than_needed_@", "paged q=4 kv=2 d=32 seed=53 lse=natural surplus=1 @", Dtypes::kAll,
     "lens=1/16 table=4,9|lens=1/32 table=4,9,7"},
};

}  // namespace

const std::span<const Line> kBugLines(kLines);

}  // namespace anyattn::conformance
