// SPDX-License-Identifier: Apache-2.0
// The provider table of one vendor's devices. Included by plugin.cc.
#pragma once

#include <anyattn/device.h>

namespace anyattn::device {

extern const anyattn_device_provider kProvider;

}  // namespace anyattn::device
