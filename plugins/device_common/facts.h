// SPDX-License-Identifier: Apache-2.0
// Which devices of the vendor there are and what they are. Included by provider.cc.
#pragma once

#include <anyattn/device.h>

namespace anyattn::device {

int32_t enumerate(const anyattn_host* host, uint32_t* count, anyattn_error* why);
int32_t facts(const anyattn_host* host, int32_t ordinal, anyattn_device_facts* facts, anyattn_error* error);

}  // namespace anyattn::device
