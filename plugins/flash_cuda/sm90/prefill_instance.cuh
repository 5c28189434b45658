// SPDX-License-Identifier: Apache-2.0
// One compiled kernel of the Hopper prefill: element type and row of kPrefillTiles. Included by the units of instances.txt, which
// instantiate it, and by prefill.cu, which calls it. Holds no kernel text.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "flash_cuda/sm90/prefill_args.h"
#include "flash_cuda/sm90/prefill_tile.h"

namespace anyattn::flash {

template <class Element, int kRow>
struct PrefillInstance {
  static void prepare();  // once a device: the shared memory it needs
  static void launch(const PrefillMaps& maps, const PrefillArgs& args, int blocks, void* stream);
};

}  // namespace anyattn::flash
