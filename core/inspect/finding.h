// SPDX-License-Identifier: Apache-2.0
// A reason to refuse a file, with what to do about it. Used by inspect, trust and whoever reports their answers.
#pragma once

#include <string>

namespace anyattn::inspect {

struct Finding {
  std::string reason;  // continues "FILE ...": "is truncated: ..."
  std::string remedy;  // an instruction
};

}  // namespace anyattn::inspect
