// SPDX-License-Identifier: Apache-2.0
// Addresses of shared memory as instructions want them. Included by the other headers of this folder.
#pragma once

#include <cstdint>

namespace anyattn::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

}  // namespace anyattn::cuda
