// SPDX-License-Identifier: Apache-2.0
// Runs one case and says how it went; runs many in a child process. Included by the library's entry.
#ifndef ANYATTN_CONFORMANCE_RUNNER_H
#define ANYATTN_CONFORMANCE_RUNNER_H

#include <functional>
#include <string>
#include <vector>

#include "session.h"

namespace anyattn::conformance {

// Never throws: what happens becomes a verdict.
CaseResult run_case(const Subject& subject, const Case& c);

// Runs the cases in order in a child process, calling done for each in this one. A crash or a case past timeout_ms is a
// failed verdict; a new child goes on with the next case.
void run_isolated(const Subject& subject, const std::vector<Case>& cases, int timeout_ms,
                  const std::function<void(CaseResult)>& done);

// Work in a child process that sends results, at most so many, which `done` hears in this one; returns how many came. `end`:
// how the child ended where it ended wrongly or early; a work that knows no number of results gives SIZE_MAX and looks at the
// status in the text.
using Send = std::function<bool(const CaseResult&)>;
size_t run_child(const std::function<void(const Send&)>& work, size_t most, int timeout_ms,
                 const std::function<void(CaseResult)>& done, std::string* end);

// The smallest cases of each CPU backend of the file, in children that also open the file `options.beside` and run it, before
// the checked one and behind it. Names: "beside/first/BACKEND/DTYPE" (the checked one is opened first), "beside/second/...".
// For a process that has opened neither file.
std::vector<CaseResult> run_beside(const std::string& path, const Options& options);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUNNER_H
