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

struct Isolation {
  int timeout_ms = 0;   // for one case
  int jobs = 1;         // child processes at work at a time
  double within_s = 0;  // no case is begun later; 0: no limit
};

// Runs the cases, begun in order, in child processes, calling done with a case's place and result for each in this one. A crash or
// a case past timeout_ms is a failed verdict; a new child goes on. Done hears nothing of cases that were not begun.
void run_isolated(const Subject& subject, const std::vector<Case>& cases, const Isolation& how,
                  const std::function<void(size_t, CaseResult)>& done);

// Work in a child process that sends results, which `done` hears in this one. Returns how the child ended: "... status 0" where
// nothing is wrong.
using Send = std::function<bool(const CaseResult&)>;
std::string run_child(const std::function<void(const Send&)>& work, int timeout_ms,
                      const std::function<void(CaseResult)>& done);

// The smallest cases of each CPU backend of the file, in children that also open the file `options.beside` and run it, before
// the checked one and behind it. Names: "beside/first/BACKEND/DTYPE" (the checked one is opened first), "beside/second/...".
// For a process that has opened neither file.
std::vector<CaseResult> run_beside(const std::string& path, const Options& options);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUNNER_H
