// SPDX-License-Identifier: Apache-2.0
// Rules of the interface that are no numbers. Included by the runner.
#ifndef ANYATTN_CONFORMANCE_CONTRACT_H
#define ANYATTN_CONFORMANCE_CONTRACT_H

#include <string>
#include <vector>

#include "session.h"

namespace anyattn::conformance {

// The values of check= of a contract case.
std::vector<std::string> contract_rules();

// Throws Failure where the rule is broken, CaseError where there is no such rule.
void run_contract(const Subject& subject, const Case& c);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CONTRACT_H
