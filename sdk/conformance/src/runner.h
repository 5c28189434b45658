// SPDX-License-Identifier: Apache-2.0
// Runs one case and says how it went; runs many in a child process. Included by the library's entry.
#ifndef ANYATTN_CONFORMANCE_RUNNER_H
#define ANYATTN_CONFORMANCE_RUNNER_H

#include <functional>
#include <vector>

#include "session.h"

namespace anyattn::conformance {

// Never throws: what happens becomes a verdict.
CaseResult run_case(const Subject& subject, const Case& c);

// Runs the cases in order in a child process, calling done for each in this one. A crash or a case past timeout_ms is a
// failed verdict; a new child goes on with the next case.
void run_isolated(const Subject& subject, const std::vector<Case>& cases, int timeout_ms,
                  const std::function<void(CaseResult)>& done);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUNNER_H
