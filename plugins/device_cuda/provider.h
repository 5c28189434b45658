// SPDX-License-Identifier: Apache-2.0
// The provider table of CUDA devices. Included by plugin.cc.
#pragma once

#include <anyattn/device.h>

namespace anyattn::device_cuda {

extern const anyattn_device_provider kProvider;

}  // namespace anyattn::device_cuda
