// SPDX-License-Identifier: Apache-2.0
// Defines one instance. Included by the units that the build writes from instances.txt.
#pragma once

#include "cuda_common/launch.cuh"
#include "sm80/attend.cuh"
#include "sm80/instances.h"

namespace anyattn::flash::sm80 {

template <int kDtype, bool kFp8, int kHead, bool kPrefill>
struct AttendKernel {
  using Element = std::conditional_t<kDtype == kF16, __half, __nv_bfloat16>;
  using Code = std::conditional_t<kFp8, uint8_t, Element>;
  static constexpr Tile kTile = tile_of(kHead, kPrefill);
  static constexpr auto kKernel = attend<Element, Code, kHead, kPrefill>;
};

template <int kDtype, bool kFp8, int kHead, bool kPrefill>
cudaError_t AttendInstance<kDtype, kFp8, kHead, kPrefill>::prepare() {
  using Kernel = AttendKernel<kDtype, kFp8, kHead, kPrefill>;
  return cudaFuncSetAttribute(Kernel::kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kTile.shared_bytes());
}

template <int kDtype, bool kFp8, int kHead, bool kPrefill>
cudaError_t AttendInstance<kDtype, kFp8, kHead, kPrefill>::launch(const Call& call, cudaStream_t stream) {
  using Kernel = AttendKernel<kDtype, kFp8, kHead, kPrefill>;
  constexpr Tile kTile = Kernel::kTile;
  return cuda::launch({stream, call.work.num_blocks, kTile.threads(), kTile.shared_bytes(), call.overlaps != 0},
                      Kernel::kKernel, call);
}

}  // namespace anyattn::flash::sm80
