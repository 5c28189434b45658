// SPDX-License-Identifier: Apache-2.0
// Shapes of a serving engine's own tests (mixed, decode and prefill batches), random batches, real q, k and v.
#include "cases.h"

namespace anyattn::conformance {
namespace {

#define ANYATTN_MIXED "lens=1/1328,5/18,129/463"
#define ANYATTN_DECODE "lens=1/523,1/37,1/2011"

constexpr Line kLines[] = {
    {"shape/mixed", "paged q=4 kv=4 d=128 " ANYATTN_MIXED " seed=801 lse=natural", Dtypes::kAll},
    {"shape/mixed_@", "paged q=8 kv=2 d=128 " ANYATTN_MIXED " seed=802 @", Dtypes::kFloat32,
     "window=63|window=127 cap=50|cap=50 gain=40"},
    {"shape/decode_@", "paged d=128 " ANYATTN_DECODE " seed=803 lse=natural @", Dtypes::kAll, "q=4 kv=4|q=8 kv=2|q=5 kv=1"},
    {"shape/decode_d256_@", "paged q=8 kv=2 d=256 " ANYATTN_DECODE " seed=804 @", Dtypes::kFloat32,
     "window=255|cap=50|sinks=1,-1"},
    {"shape/decode_of_encoder_heads_@", "paged q=9 kv=3 d=96 lens=1/213,1/1,1/312,1/7,1/1812 seed=805 lse=natural @",
     Dtypes::kFloat32, "|window=255|alibi=linear|sinks=0.5"},
    {"shape/small_decode", "paged q=32 kv=8 d=128 lens=1/32,1/40 seed=806 lse=natural", Dtypes::kAll},
    {"shape/small_prefill", "paged q=32 kv=8 d=128 lens=8/32,8/40 seed=807 lse=natural", Dtypes::kAll},
    {"shape/mixed_small", "paged q=32 kv=8 d=128 lens=1/32,1/40,5/48,5/56 seed=808 lse=natural", Dtypes::kAll},
    {"shape/medium_decode", "paged q=8 kv=2 d=128 lens=1/128,1/256,1/512,1/1024,1/128,1/256,1/512,1/1024 seed=809 lse=natural",
     Dtypes::kFloat32},
    {"shape/mixed_medium", "paged q=8 kv=2 d=128 lens=1/512,1/1024,1/2048,7/512,7/1024,7/2048 seed=810 lse=natural",
     Dtypes::kHalves},
    {"shape/encoder_only", "ragged q=8 kv=8 d=64 lens=32/32,64/64,128/128 noncausal seed=811 lse=natural", Dtypes::kAll},
    {"shape/vision_encoder", "ragged q=16 kv=16 d=80 lens=50/50,50/50 noncausal seed=812", Dtypes::kHalves},
    {"shape/gemma_window", "paged q=8 kv=4 d=256 lens=20/600,1/1100 window=511 cap=50 gain=10 seed=813 lse=natural",
     Dtypes::kHalves},
    {"shape/gpt_oss", "paged q=64 kv=8 d=64 lens=4/200,1/300 window=127 sinks=1,0.5,-2,3 seed=814 lse=natural",
     Dtypes::kHalves},
    {"shape/mm_prefix", "paged q=8 kv=8 d=128 lens=96/352,1/513,1/200,1/97 mm=0:260-300,0:320-340 window=255 seed=815",
     Dtypes::kHalves},
    {"shape/one_long_decode", "paged q=8 kv=1 d=64 lens=1/7812 seed=816 lse=natural", Dtypes::kFloat32},
    {"shape/single_prefill", "paged q=8 kv=2 d=64 lens=64/1024 seed=817 lse=natural", Dtypes::kAll},

    {"random/plain", "paged q=4 kv=2 d=32 seed=901 limits=8/64/32/256 random=200 lse=natural", Dtypes::kFloat32},
    {"random/plain", "paged q=4 kv=2 d=32 seed=902 limits=8/64/32/256 random=60 lse=natural", Dtypes::kHalves},
    {"random/window_and_sinks",
     "paged q=6 kv=2 d=40 bs=24 seed=903 limits=6/48/48/200 random=60 window=30 sinks=1,-1,2 lse=natural", Dtypes::kAll},
    {"random/cap_and_alibi",
     "paged q=4 kv=4 d=64 bs=8 seed=904 limits=5/40/16/300 random=40 cap=4 gain=5 alibi=linear lse=natural", Dtypes::kFloat32},
    {"random/cap_and_alibi",
     "paged q=4 kv=4 d=64 bs=8 seed=914 limits=5/40/16/300 random=12 cap=4 gain=5 alibi=linear lse=natural", Dtypes::kHalves},
    {"random/long", "paged q=8 kv=1 d=64 seed=905 limits=4/16/8/4096 random=20 lse=natural", Dtypes::kFloat32},
    {"graph/replay", "paged q=8 kv=2 d=64 seed=907 limits=6/64/40/700 random=12 lse=natural mode=graph", Dtypes::kAll},
    {"graph/replay_d@", "paged q=8 kv=4 seed=908 limits=5/24/20/300 random=6 lse=natural mode=graph d=@", Dtypes::kHalves,
     "128|256"},
    {"graph/replay_window_sinks",
     "paged q=8 kv=2 d=64 seed=909 limits=6/40/24/500 random=8 window=90:20 sinks=1,-2 causal=1,0 lse=natural mode=graph",
     Dtypes::kAll},
    {"graph/replay_fp8_e4m3",
     "paged q=8 kv=2 d=128 seed=910 limits=5/20/12/300 random=5 scales=0.011:0.003 lse=natural mode=graph format=fp8_e4m3",
     Dtypes::kHalves},
    {"graph/replay_int8_per_token_head",
     "paged q=8 kv=2 d=64 seed=911 limits=5/24/20/300 random=6 lse=natural mode=graph format=int8_per_token_head",
     Dtypes::kHalves},
    {"graph/replay_mla",
     "mla_decode q=8 lora=512 nope=128 rope=64 vdim=128 seed=912 limits=5/16/4/300 random=6 lse=natural mode=graph",
     Dtypes::kAll},
    {"random/ragged", "ragged q=4 kv=2 d=32 seed=906 limits=6/80/40/120 random=40 noncausal lse=natural", Dtypes::kAll},

    {"stories/layer_@", "paged q=8 kv=4 d=8 lens=200/200 data=stories lse=natural layer=@", Dtypes::kAll, "0|1|2|3|4"},

    {"full/mixed_@", "paged d=128 " ANYATTN_MIXED " seed=821 lse=natural @", Dtypes::kAll,
     "q=4 kv=4 window=63|q=4 kv=4 window=127|q=4 kv=4 window=255|q=8 kv=2 cap=50|q=5 kv=1|q=5 kv=1 window=255 cap=50",
     Size::kLarge},
    {"full/head_size_@", "paged q=8 kv=2 " ANYATTN_MIXED " window=255 seed=822 lse=natural d=@", Dtypes::kHalves,
     "40|72|80|96|128|256", Size::kLarge},
    {"full/prefill_@", "paged q=4 kv=4 d=96 @ seed=823 lse=natural", Dtypes::kAll,
     "lens=2345/2345,5/5,3/16,134/5131|lens=992/2456,1/1234,98/1145,1/4162", Size::kLarge},
    {"full/encoder", "ragged q=8 kv=2 d=96 lens=1/1,678/678,1367/1367,145/145,36/36 noncausal seed=824 lse=natural",
     Dtypes::kAll, nullptr, Size::kLarge},
    {"full/shared_prefix", "paged q=8 kv=2 d=128 lens=129/871,18/280,37/988,1/257 prefix=256 shared=256 seed=825 lse=natural",
     Dtypes::kHalves, nullptr, Size::kLarge},
    {"full/medium_prefill", "paged q=32 kv=8 d=128 lens=16/256,16/512,16/1024,16/2048 seed=826 lse=natural", Dtypes::kHalves,
     nullptr, Size::kLarge},
    {"full/mixed_large", "paged q=32 kv=8 d=128 lens=1/1024,1/2048,1/4096,32/1024,32/2048,32/4096 seed=827 lse=natural",
     Dtypes::kHalves, nullptr, Size::kLarge},
    {"full/large_decode",
     "paged q=32 kv=8 d=128 lens=1/2048,1/2048,1/2048,1/2048,1/2048,1/2048,1/2048,1/2048 seed=828 lse=natural", Dtypes::kHalves,
     nullptr, Size::kLarge},
    {"full/batch_mates",
     "paged q=8 kv=2 d=128 lens=1/1000,1/1,1/4096,1/333,1/64,64/1065,1/2047,17/17 seed=829 lse=natural invariant", Dtypes::kAll,
     nullptr, Size::kLarge},
    {"full/random", "paged q=8 kv=2 d=64 seed=921 limits=16/512/256/2048 random=40 lse=natural", Dtypes::kAll, nullptr,
     Size::kLarge},
};

#undef ANYATTN_MIXED
#undef ANYATTN_DECODE

}  // namespace

const std::span<const Line> kShapeLines(kLines);

}  // namespace anyattn::conformance
