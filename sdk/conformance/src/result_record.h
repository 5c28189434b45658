// SPDX-License-Identifier: Apache-2.0
// A result on its way from the child process that ran the case. Read and written by the same program: no interface.
#ifndef ANYATTN_CONFORMANCE_RESULT_RECORD_H
#define ANYATTN_CONFORMANCE_RESULT_RECORD_H

#include <cstddef>
#include <string>

#include "anyattn/conformance/conformance.h"

namespace anyattn::conformance {

// `index`: of the case in the list at work.
std::string record_of(const CaseResult& result, size_t index);
// Throws std::runtime_error where the bytes are no whole record.
CaseResult read_record(const std::string& bytes, size_t* index);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RESULT_RECORD_H
