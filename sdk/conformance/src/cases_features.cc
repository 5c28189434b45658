// SPDX-License-Identifier: Apache-2.0
// The smallest case that needs each feature: a backend that announces a feature and does not do it fails here, by name.
#include "cases.h"

namespace anyattn::conformance {
namespace {

constexpr Line kLines[] = {
    {"feature/plain", "paged q=2 kv=1 d=64 lens=3/7 seed=601", Dtypes::kAll},
    {"feature/non_causal", "paged q=2 kv=1 d=64 lens=3/7 seed=602 noncausal", Dtypes::kAll},
    {"feature/per_request_causal", "paged q=2 kv=1 d=64 lens=3/7,3/7 seed=603 causal=1,0", Dtypes::kAll},
    {"feature/window", "paged q=2 kv=1 d=64 lens=1/9 seed=604 window=2", Dtypes::kAll},
    {"feature/window/right", "paged q=2 kv=1 d=64 lens=9/9 seed=604 window=2:1 noncausal", Dtypes::kAll},
    {"feature/soft_cap", "paged q=2 kv=1 d=64 lens=1/9 seed=605 cap=1 gain=4", Dtypes::kAll},
    {"feature/alibi", "paged q=2 kv=1 d=64 lens=2/9 seed=606 alibi=linear lse=natural", Dtypes::kAll},
    {"feature/alibi_sqrt", "paged q=2 kv=1 d=64 lens=2/9 seed=607 alibi=sqrt lse=natural", Dtypes::kAll},
    {"feature/alibi_sqrt/right", "paged q=2 kv=1 d=64 lens=9/9 seed=607 alibi=sqrt noncausal", Dtypes::kAll},
    {"feature/alibi_symmetric", "ragged q=2 kv=1 d=64 lens=9/9 seed=608 alibi=symmetric noncausal", Dtypes::kAll},
    {"feature/sinks", "paged q=2 kv=1 d=64 lens=1/9 seed=609 sinks=1,-2", Dtypes::kAll},
    {"feature/mm_prefix", "paged q=2 kv=1 d=64 lens=8/9 seed=610 mm=0:2-5", Dtypes::kAll},
    {"feature/sparse_topk", "paged q=2 kv=1 d=64 lens=2/19 seed=611 topk=5", Dtypes::kAll},
    {"feature/chunked_local", "paged q=2 kv=1 d=64 lens=3/10 seed=612 chunk=4", Dtypes::kAll},
    {"feature/cp_decode", "paged q=2 kv=1 d=64 lens=1/9 seed=613 cp=2:1 lse=natural", Dtypes::kAll},
    {"feature/cp_prefill", "paged q=2 kv=1 d=64 lens=4/9 seed=614 cp=2:1 lse=natural", Dtypes::kAll},
    {"feature/lse/@", "paged q=2 kv=1 d=64 lens=3/9 seed=615 lse=@", Dtypes::kAll, "natural|base2"},
    {"feature/batch_invariant", "paged q=2 kv=1 d=64 lens=1/700,1/9,3/70 seed=616 invariant", Dtypes::kAll},
    {"feature/kv_scales", "paged q=2 kv=1 d=64 lens=3/9 seed=617 scales=2:0.5 format=fp8_e4m3", Dtypes::kAll},
    {"feature/kv_scales/@", "paged q=2 kv=1 d=64 lens=3/9 seed=617 scales=2:0.5 format=@", Dtypes::kHalves,
     "float32|float16|bfloat16|fp8|fp8_e5m2"},
    {"feature/kv_scales_per_head", "paged q=4 kv=2 d=64 lens=3/9 seed=622 scales=0.01:0.02 head_scales format=fp8_e4m3",
     Dtypes::kAll},
    {"feature/out_scale", "paged q=2 kv=1 d=64 lens=3/7 seed=623 out_scale=0.01", Dtypes::kAll},
    {"feature/quantised_query", "paged q=2 kv=1 d=64 lens=3/9 seed=624 q_scale=0.02 scales=0.01:0.02 format=fp8_e4m3",
     Dtypes::kHalves},
    {"feature/kv_transfer", "paged q=2 kv=1 d=64 lens=3/9 seed=620 kv_transfer", Dtypes::kAll},
    {"feature/graph/never", "paged q=2 kv=1 d=64 lens=1/9 seed=621 graph=0", Dtypes::kAll},
    {"feature/mla", "mla_decode q=2 lora=512 nope=128 rope=64 vdim=128 lens=1/9 seed=618", Dtypes::kAll},
    {"feature/ragged", "ragged q=2 kv=1 d=64 lens=3/7,2/2 seed=619", Dtypes::kAll},
};

}  // namespace

const std::span<const Line> kFeatureLines(kLines);

}  // namespace anyattn::conformance
