// SPDX-License-Identifier: Apache-2.0
// Runs one plain case (paged or ragged keys) against a backend. Included by the runner.
#ifndef ANYATTN_CONFORMANCE_RUN_PLAIN_H
#define ANYATTN_CONFORMANCE_RUN_PLAIN_H

#include "session.h"

namespace anyattn::conformance {

// Fills ratios of `result`; throws Failure, Refused, NotOffered or DataMissing.
void run_plain(const Subject& subject, const Case& c, CaseResult* result);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUN_PLAIN_H
