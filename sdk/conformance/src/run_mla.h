// SPDX-License-Identifier: Apache-2.0
// Runs one MLA case against a backend. Included by the runner.
#ifndef ANYATTN_CONFORMANCE_RUN_MLA_H
#define ANYATTN_CONFORMANCE_RUN_MLA_H

#include "session.h"

namespace anyattn::conformance {

// Fill ratios of `result`; throw Failure, Refused or NotOffered.
void run_mla_decode(const Subject& subject, const Case& c, CaseResult* result);
void run_mla_prefill(const Subject& subject, const Case& c, CaseResult* result);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUN_MLA_H
