// SPDX-License-Identifier: Apache-2.0
// The built-in device provider of the CPU. Included by the device list.
// Streams are synchronous and there are no graphs; host memory is device memory.
#pragma once

#include "anyattn/device.h"

namespace anyattn::device {

const anyattn_device_provider& cpu_provider();

// Bytes this process may ever have: physical memory, or the control group's limit where that is lower.
uint64_t cpu_memory_bytes();

}  // namespace anyattn::device
