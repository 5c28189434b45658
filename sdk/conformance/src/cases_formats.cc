// SPDX-License-Identifier: Apache-2.0
// Caches of every format: what kv_cache_update writes byte for byte, what forward makes of it. The dtype is the query's.
#include "cases.h"

namespace anyattn::conformance {
namespace {

#define ANYATTN_FORMATS "float32|float16|bfloat16|fp8_e4m3|fp8_e5m2|int8_per_token_head|fp8_per_token_head|int4_per_token_head"
#define ANYATTN_ROW_FORMATS "int8_per_token_head|fp8_per_token_head|int4_per_token_head"
#define ANYATTN_LATENT_FORMATS "float32|float16|bfloat16|fp8_e4m3|fp8_e5m2"
#define ANYATTN_DEEPSEEK "lora=512 nope=128 rope=64 vdim=128"

constexpr Line kLines[] = {
    {"format/decode/@", "paged q=8 kv=2 d=64 lens=1/13,1/64,1/200 seed=701 lse=natural poisons format=@", Dtypes::kAll,
     ANYATTN_FORMATS},
    {"format/prefill/@", "paged q=8 kv=2 d=128 bs=32 lens=40/40,7/90,1/33 seed=704 lse=natural format=@", Dtypes::kAll,
     ANYATTN_FORMATS},
    {"format/rows_of_many_sizes/@", "paged q=4 kv=2 d=32 lens=1/20,3/41 seed=707 data=powers lse=natural format=@",
     Dtypes::kAll, ANYATTN_FORMATS},
    {"format/token_major/@", "paged q=6 kv=3 d=32 lens=2/37 seed=710 lse=natural layout=NHD stride_extra=64 format=@",
     Dtypes::kHalves, ANYATTN_FORMATS},
    {"format/other_head_size_v/@", "paged q=4 kv=2 d=64 dv=32 bs=1 lens=1/37,2/5 seed=713 lse=natural format=@",
     Dtypes::kHalves, ANYATTN_FORMATS},
    {"format/head_size_72/@", "paged q=4 kv=2 d=72 bs=17 lens=1/37,2/5 seed=714 format=@", Dtypes::kHalves,
     "fp8_e4m3|fp8_e5m2|int8_per_token_head|fp8_per_token_head"},
    {"format/every_feature/@",
     "paged q=8 kv=2 d=64 lens=3/70,1/33,0/5,2/1 seed=716 window=40 cap=20 alibi=linear sinks=0.5,-1 pad_rows=2 fused "
     "lse=base2 format=@",
     Dtypes::kHalves, ANYATTN_FORMATS},
    {"format/few_rows_of_many_keys/@", "paged q=8 kv=2 d=128 lens=2/1000 seed=11 lse=natural format=@", Dtypes::kHalves,
     "int8_per_token_head|fp8_per_token_head|int4_per_token_head"},
    {"format/ranks/@", "paged q=4 kv=2 d=32 lens=1/10,1/3,1/50 seed=719 lse=natural cp=2:4 format=@", Dtypes::kFloat32,
     ANYATTN_FORMATS},
    {"format/batch_mates/@", "paged q=4 kv=2 d=64 lens=1/300,3/65,7/17 seed=722 lse=natural invariant format=@",
     Dtypes::kHalves, ANYATTN_FORMATS},
    {"format/block_size_of_choice/@", "paged q=4 kv=4 d=64 bs=0 lens=1/130 seed=723 format=@", Dtypes::kHalves,
     ANYATTN_FORMATS},
    {"format/scales/@", "paged q=4 kv=2 d=64 lens=1/50,9/70 seed=725 scales=0.011:0.003 lse=natural format=@", Dtypes::kAll,
     "fp8_e4m3|fp8_e5m2"},
    {"format/scales_per_head/@",
     "paged q=6 kv=3 d=64 lens=1/50,9/70 seed=728 scales=0.011:0.003 head_scales lse=natural format=@", Dtypes::kAll,
     "fp8_e4m3|fp8_e5m2"},
    {"format/values_past_the_range/@", "paged q=2 kv=1 d=32 lens=1/9 seed=731 scales=0.0001:0.00001 format=@", Dtypes::kFloat32,
     "fp8_e4m3|fp8_e5m2"},
    {"bug/23_block_offset_past_32_bits/@",
     "paged q=4 kv=2 d=64 lens=1/20 seed=23 table=2065,2066 stride_extra=4142336 lse=natural format=@", Dtypes::kFloat32,
     ANYATTN_ROW_FORMATS},
    {"bug/40_four_bits_of_head_size_@", "paged q=4 kv=2 lens=1/40 seed=40 format=int4_per_token_head d=@", Dtypes::kHalves,
     "64|128|256"},
    {"bug/41_int8_per_token_head",
     "paged q=4 kv=2 d=32 scale=0.1 lens=1/20 seed=211 data=powers lse=natural format=int8_per_token_head "
     "golden=-11.395725635:88.877628502:-0.804881681:18.541366451:4"},
    {"bug/44_scales_by_physical_block/@", "paged q=2 kv=1 d=32 lens=1/24 data=ramp lse=natural table=37,3 format=@",
     Dtypes::kAll, "int8_per_token_head|fp8_per_token_head"},
    {"format/full_decode/@", "paged q=32 kv=8 d=128 bs=64 lens=1/4096,1/1000 seed=740 lse=natural format=@", Dtypes::kHalves,
     ANYATTN_FORMATS, Size::kLarge},
    {"mla/format_decode/@", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/100,1/7,2/65 seed=751 lse=natural poisons format=@",
     Dtypes::kAll, ANYATTN_LATENT_FORMATS},
    {"mla/format_prefill/@", "mla_prefill q=4 " ANYATTN_DEEPSEEK " lens=9/50,3/3,1/40 context_chunk=16 seed=754 format=@",
     Dtypes::kAll, ANYATTN_LATENT_FORMATS},
    {"mla/format_scale/@",
     "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/100,2/65 seed=757 scales=0.003:0.003 lse=natural format=@", Dtypes::kAll,
     "fp8|fp8_e4m3|fp8_e5m2"},
    {"mla/format_scale_prefill/@",
     "mla_prefill q=4 " ANYATTN_DEEPSEEK " lens=4/50 context_chunk=16 seed=760 scales=0.003:0.003 format=@", Dtypes::kHalves,
     "fp8_e4m3|fp8_e5m2"},
    {"mla/format_records_decode_@",
     "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/100,1/7,2/65 seed=763 lse=natural format=fp8_ds_mla bs=@", Dtypes::kHalves,
     "16|64"},
    {"mla/format_records_prefill",
     "mla_prefill q=4 " ANYATTN_DEEPSEEK " lens=9/50,3/3 context_chunk=16 seed=766 format=fp8_ds_mla", Dtypes::kHalves},
    {"mla/format_many_heads/@", "mla_decode q=72 " ANYATTN_DEEPSEEK " lens=1/300,2/65 seed=772 lse=natural poisons format=@",
     Dtypes::kHalves, "fp8_e4m3|fp8_e5m2|fp8_ds_mla"},
    {"mla/format_records_of_ranks",
     "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/10,1/50 seed=769 lse=natural cp=2:4 poisons format=fp8_ds_mla",
     Dtypes::kHalves},
};

#undef ANYATTN_FORMATS
#undef ANYATTN_ROW_FORMATS
#undef ANYATTN_LATENT_FORMATS
#undef ANYATTN_DEEPSEEK

}  // namespace

const std::span<const Line> kFormatLines(kLines);

}  // namespace anyattn::conformance
