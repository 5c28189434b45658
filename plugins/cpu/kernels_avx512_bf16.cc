// SPDX-License-Identifier: Apache-2.0
// The kernels for one instruction set; CMakeLists.txt names its flags.
#include "attention-inl.h"
#include "rows-inl.h"

namespace anyattn::cpu {

const Kernels kKernelsAvx512Bf16 = {
    "avx512_bf16",
    {&attend<F32, WideDot<F32>>, &attend<F16, WideDot<F16>>, &attend<BF16, WideDot<BF16>>},
    &attend<BF16, PairDot>,
    &combine,
    &merge_row,
    &convert,
};

}  // namespace anyattn::cpu
