// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of the Hopper decode for one element type of q, one of the cache and one head size. Included by the units of
// decode_instances.txt, which instantiate it, and by decode.cu, which calls it. Holds no kernel text.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "flash_cuda/sm90/decode.h"

namespace anyattn::flash::sm90 {

using DecodeKernel = void (*)(CUtensorMap, CUtensorMap, DecodeArgs);

template <class T, class Code, int kHead>
struct DecodeInstance {
  static DecodeKernel kernel(bool wide);  // wide: units of more than 8 rows
};

}  // namespace anyattn::flash::sm90
