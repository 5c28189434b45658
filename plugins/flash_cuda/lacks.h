// SPDX-License-Identifier: Apache-2.0
// What keeps a family for one device from a problem: the words behind its longest_query of 0. Included by plan.cc, which shows
// them, and by the families.
#pragma once

#include "flash_cuda/params.h"

namespace anyattn::flash {

// Follows "needs"; null: nothing keeps it. Pure; lives for ever.
const char* sm90_decode_lacks(const Device& device, const Problem& problem);
const char* sm90_prefill_lacks(const Device& device, const Problem& problem);

}  // namespace anyattn::flash
