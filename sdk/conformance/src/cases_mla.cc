// SPDX-License-Identifier: Apache-2.0
// MLA: decode over the latent cache, prefill in chunks over a cached context.
#include "cases.h"

namespace anyattn::conformance {
namespace {

#define ANYATTN_DEEPSEEK "lora=512 nope=128 rope=64 vdim=128"
#define ANYATTN_SMALL "lora=256 nope=64 rope=64 vdim=64"

constexpr Line kLines[] = {
    {"mla/bug_9_rows_of_a_request", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=3/5,3/33,3/64,3/65 seed=91 lse=natural",
     Dtypes::kAll},
    {"mla/bug_14_prefix_runs_out_chunk_@",
     "mla_prefill q=5 lora=32 nope=16 rope=8 vdim=16 scale=0.2041241452319315 lens=3/43,4/12,2/2 "
     "seeds=311:312:313:314:315 golden=51.188251615:480.956922959:-48.302715731:114.897431950:45 context_chunk=@",
     Dtypes::kFloat32, "8|16|24|64"},
    {"mla/bug_14_prefix_runs_out_512_chunk_@",
     "mla_prefill q=5 " ANYATTN_DEEPSEEK " lens=3/43,4/12,2/2 seeds=311:312:313:314:315 "
     "lse=natural context_chunk=@",
     Dtypes::kAll, "8|16|24|64"},
    {"mla/bug_21_padded_rows_@", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/13,1/16,1/17,@ seed=211 lse=natural padded",
     Dtypes::kAll, "1/0|1/0,1/0,1/0,1/0,1/0"},
    {"mla/bug_21_rows_past_the_last_request",
     "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/13,1/16 seed=211 lse=natural pad_rows=3"},
    {"mla/bug_23_block_offset_past_32_bits",
     "mla_decode q=4 " ANYATTN_DEEPSEEK " bs=480 table=7767,7768 lens=1/500 seed=231 lse=natural", Dtypes::kAll},
    {"mla/bug_34_heads_@", "mla_decode " ANYATTN_DEEPSEEK " scale=0.04 lens=1/13 seeds=431:432:433 lse=natural q=@",
     Dtypes::kAll, "1|4|5|8|12|16|20|128"},
    {"mla/bug_51_batch_mates",
     "mla_decode q=4 " ANYATTN_DEEPSEEK " lens=1/600,1/1,1/1500,2/33,1/64 seed=511 lse=natural invariant", Dtypes::kFloat32},
    {"mla/unowned_slots", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/13,1/16,2/17 seed=212 lse=natural poisons", Dtypes::kAll},
    {"mla/decode_lora_256", "mla_decode q=16 " ANYATTN_SMALL " lens=1/100,1/7,2/65 seed=213 lse=natural", Dtypes::kAll},
    {"mla/decode_lse_@", "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/300,1/7 seed=214 lse=@", Dtypes::kAll, "natural|base2"},
    {"mla/decode_@", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=3/30,3/7 seed=226 lse=natural @", Dtypes::kAll,
     "noncausal|causal=0,1"},
    {"mla/nan_of_a_query", "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/300,2/7,3/64 seed=227 data=nan_q lse=natural",
     Dtypes::kAll},
    {"mla/decode_without_lse", "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/300,1/7 seed=214", Dtypes::kAll},
    {"mla/decode_parts_adjacent", "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/30,1/7 seed=215 fused lse=natural",
     Dtypes::kAll},
    {"mla/block_size_@", "mla_decode q=4 " ANYATTN_DEEPSEEK " lens=1/70,2/33 seed=216 lse=natural bs=@", Dtypes::kFloat32,
     "0|1|15|16|32|64|128"},
    {"mla/rows_of_every_kind", "mla_decode q=4 " ANYATTN_DEEPSEEK " lens=0/20,1/0,5/2,1/1 pad_rows=2 seed=217 lse=natural"},
    {"mla/padded_stride", "mla_decode q=4 " ANYATTN_DEEPSEEK " lens=1/70 stride_extra=4096 seed=218 lse=natural", Dtypes::kAll},
    {"mla/ranks_@", "mla_decode q=8 " ANYATTN_DEEPSEEK " lens=1/10,1/3,1/50,1/0 seed=219 lse=natural cp=@", Dtypes::kFloat32,
     "4:1|2:16"},
    {"mla/prefill_without_context", "mla_prefill q=8 " ANYATTN_DEEPSEEK " lens=9/9,1/1,20/20 context_chunk=16 seed=220",
     Dtypes::kAll},
    {"mla/prefill_lora_256", "mla_prefill q=8 " ANYATTN_SMALL " lens=9/90,3/3,5/40 context_chunk=32 seed=221 fused",
     Dtypes::kAll},
    {"mla/prefill_base_2", "mla_prefill q=4 " ANYATTN_DEEPSEEK " lens=4/50,3/7 context_chunk=16 seed=222 lse=base2"},
    {"mla/prefill_128_heads", "mla_prefill q=128 " ANYATTN_DEEPSEEK " lens=2/20 context_chunk=16 seed=223", Dtypes::kHalves},
    {"mla/merge_@_parts", "merge q=4 d=16 " ANYATTN_DEEPSEEK " lens=32/1 seed=11 parts=@", Dtypes::kAll, "2|3"},
    {"mla/full_decode_@", "mla_decode q=16 " ANYATTN_DEEPSEEK " lens=1/4096,1/1000,2/2047 seed=224 lse=natural bs=@",
     Dtypes::kAll, "16|64", Size::kLarge},
    {"mla/full_prefill", "mla_prefill q=16 " ANYATTN_DEEPSEEK " lens=64/600,17/300,64/64 context_chunk=128 seed=225",
     Dtypes::kAll, nullptr, Size::kLarge},
};

#undef ANYATTN_DEEPSEEK
#undef ANYATTN_SMALL

}  // namespace

const std::span<const Line> kMlaLines(kLines);

}  // namespace anyattn::conformance
