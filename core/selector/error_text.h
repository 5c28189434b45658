// SPDX-License-Identifier: Apache-2.0
// The sentences of a selection that chose nothing: four kinds for a name that was asked for, one for nobody.
// Included by the selector only.
#pragma once

#include <span>
#include <string>

#include "selector/policy.h"

namespace anyattn::selector {

struct ErrorText {
  Error error = Error::kNone;
  int32_t status = ANYATTN_OK;
  std::string text;
};

// Why the name that was asked for does not answer. `asked`: the candidates of this walk.
ErrorText explain_must(const Must& must, const OwnedProblem& problem, uint32_t device_kind, std::span<const Candidate> asked,
                       const config::Config& config, const registry::View& view);

// Why nobody answers.
ErrorText explain_nobody(const OwnedProblem& problem, uint32_t device_kind, std::span<const Candidate> asked,
                         const registry::View& view);

}  // namespace anyattn::selector
