// SPDX-License-Identifier: Apache-2.0
// The committed must-pass lists, put into the program when it is built. Included by conformance.cc.
#ifndef ANYATTN_CONFORMANCE_MUST_PASS_H
#define ANYATTN_CONFORMANCE_MUST_PASS_H

#include <span>

namespace anyattn::conformance {

struct MustPass {
  const char* backend;
  const char* text;
};
extern const std::span<const MustPass> kMustPass;

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_MUST_PASS_H
