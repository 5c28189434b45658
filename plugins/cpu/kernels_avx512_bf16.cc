// SPDX-License-Identifier: Apache-2.0
// The kernels for one instruction set; CMakeLists.txt names its flags.
#include "attention-inl.h"
#include "formats-inl.h"
#include "quantised-inl.h"
#include "rows-inl.h"

namespace anyattn::cpu {

const Kernels kKernelsAvx512Bf16 = {
    "avx512_bf16",
    nullptr,
    {&attend<F32Rows, WideDot<F32Rows>>, &attend<F16Rows, WideDot<F16Rows>>, &attend<BF16Rows, WideDot<BF16Rows>>,
     &attend<E4M3Rows, WideDot<E4M3Rows>>, &attend<E5M2Rows, WideDot<E5M2Rows>>, &attend<Int8Rows, WideDot<Int8Rows>>,
     &attend<E4M3ScaledRows, WideDot<E4M3ScaledRows>>, nullptr, nullptr, &attend<Int4Rows<64>, WideDot<Int4Rows<64>>>,
     &attend<Int4Rows<128>, WideDot<Int4Rows<128>>>},
    {nullptr, nullptr, &attend<BF16Rows, PairDot<BF16Rows>>, &attend<E4M3Rows, PairDot<E4M3Rows>>,
     &attend<E5M2Rows, PairDot<E5M2Rows>>, &attend<Int8Rows, PairDot<Int8Rows>>,
     &attend<E4M3ScaledRows, PairDot<E4M3ScaledRows>>},
    &combine,
    &merge_row,
    &convert,
    ANYATTN_STORE_ROWS,
    ANYATTN_LOAD_ROWS,
    &store_record,
    &rotate_row,
};

}  // namespace anyattn::cpu
