// SPDX-License-Identifier: Apache-2.0
// Other cuts of a problem than the one that choose_tiles takes: what option `tiles` counts and `anyattn bench --tiles` measures.
// Included by plan.cc. Measures nothing and knows no option.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace anyattn::portable {

struct Alternative {
  Specialisation spec;
  std::string words;  // what differs: "decode: one tile more in flight"
};

// Of `spec` as choose_tiles left it, in an order that is the same for equal problems and devices. Each fits the device.
std::vector<Alternative> alternatives_of(const anyattn_device_facts& facts, const Specialisation& spec);

}  // namespace anyattn::portable
