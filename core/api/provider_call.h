// SPDX-License-Identifier: Apache-2.0
// One slot of a device provider called cold: its words as an exception. Included by the API's device functions.
#pragma once

#include "anyattn/device.h"
#include "device/status_error.h"
#include "loader/call.h"

namespace anyattn::api {

// Throws StatusError with what the slot answered where that is not OK.
template <class... Params, class... Args>
void call_provider(const anyattn_device_provider& provider, const char* slot, int32_t (*fn)(Params...), Args... args) {
  ErrorBuffer error;
  const int32_t status = loader::call({provider.name ? provider.name : "provider", slot}, error.get(), fn, args...);
  if (status != ANYATTN_OK) throw StatusError(status, error.text());
}

}  // namespace anyattn::api
