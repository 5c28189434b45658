// SPDX-License-Identifier: Apache-2.0
// The kernels for one instruction set; CMakeLists.txt names its flags.
#include "attention-inl.h"
#include "formats-inl.h"
#include "rows-inl.h"

namespace anyattn::cpu {

const Kernels kKernelsX86V2 = {
    "x86_64_v2",
    nullptr,
    {&attend<F32Rows, WideDot<F32Rows>>, &attend<F16Rows, WideDot<F16Rows>>, &attend<BF16Rows, WideDot<BF16Rows>>},
    {},
    &combine,
    &merge_row,
    &convert,
    ANYATTN_STORE_ROWS,
    ANYATTN_LOAD_ROWS,
    &store_record,
    &rotate_row,
};

}  // namespace anyattn::cpu
