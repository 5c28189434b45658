// SPDX-License-Identifier: Apache-2.0
// The kernels for one instruction set; CMakeLists.txt names its flags.
#include "attention_codes-inl.h"
#include "formats-inl.h"
#include "quantised-inl.h"
#include "rows-inl.h"

namespace anyattn::cpu {

const Kernels kKernelsAmxBf16 = {
    "amx_bf16",
    &kKernelsAvx512Bf16,
    {},
    {nullptr, nullptr, &attend_tiles<BF16Rows>, &attend_tiles<E4M3Rows>, &attend_tiles<E5M2Rows>, &attend_int8,
     &attend_tiles<E4M3ScaledRows>, nullptr, nullptr, &attend_codes_of<Int4Rows<64>, 64>, &attend_codes_of<Int4Rows<128>, 128>},
    &combine,
    &merge_row,
    &convert,
    ANYATTN_STORE_ROWS,
    ANYATTN_LOAD_ROWS,
    &store_record,
    &rotate_row,
};

}  // namespace anyattn::cpu
