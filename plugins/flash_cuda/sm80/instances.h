// SPDX-License-Identifier: Apache-2.0
// The instances of the general attention kernel by tile and dtype; each unit of instances.txt defines one. Included by launch.cu and
// by the units.
#pragma once

#include <cuda_runtime.h>

#include "sm80/launch.h"

namespace anyattn::flash::sm80 {

template <int kDtype, bool kFp8, int kHead, bool kPrefill>
struct AttendInstance {
  static cudaError_t prepare();  // the shared memory it needs
  static cudaError_t launch(const Call& call, cudaStream_t stream);
};

}  // namespace anyattn::flash::sm80
