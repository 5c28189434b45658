// SPDX-License-Identifier: Apache-2.0
// How the steps of opening say no to each other; loader.cc turns it into a Skip. Included inside core/loader only.
#pragma once

#include <cstdint>
#include <string>

#include "discovery/discovery.h"

namespace anyattn::loader {

// Thrown and caught inside core/loader.
struct Refusal {
  discovery::Stage stage = discovery::Stage::kOpen;
  int32_t status = ANYATTN_NOT_FOUND;
  std::string reason;
  std::string remedy;
};

}  // namespace anyattn::loader
