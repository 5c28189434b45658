// SPDX-License-Identifier: Apache-2.0
// A vendor's error code as a status of ours. Included by device providers and kernel plugins. CUDA's runtime and driver and HIP give
// these errors the same numbers (driver_types.h, cuda.h, hip_runtime_api.h).
#pragma once

#include <cstdint>

#include "anyattn/types.h"

namespace anyattn {

// DEVICE_LOST where nothing works on the device any more until the process ends, whoever's kernel it was; CAPTURE_VIOLATION where a
// stream is captured (900: the call is not allowed then, ... 908: the wrong thread); what remains speaks of the call.
constexpr int32_t status_of_device_error(int code) {
  switch (code) {
    case 0:
      return ANYATTN_OK;
    case 2:  // out of memory
      return ANYATTN_MEMORY_NOT_NOW;
    case 35:   // the driver is older than the runtime
    case 100:  // no device
    case 101:  // no such device
      return ANYATTN_NOT_FOUND;
    case 214:  // memory error that could not be corrected
    case 226:  // memory error that was contained
    case 700:  // illegal address
    case 702:  // launch timeout
    case 710:  // a kernel's assertion
    case 714:  // hardware stack
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failure
    case 721:  // tensor memory that leaks
      return ANYATTN_DEVICE_LOST;
    default:
      return code >= 900 && code <= 908 ? ANYATTN_CAPTURE_VIOLATION : ANYATTN_DEVICE_ERROR;
  }
}

}  // namespace anyattn
