// SPDX-License-Identifier: Apache-2.0
// What a call gave, and its judgement against the reference. Included by the kit's runs.
#ifndef ANYATTN_CONFORMANCE_OUTPUTS_H
#define ANYATTN_CONFORMANCE_OUTPUTS_H

#include <string>
#include <vector>

#include "anyattn/conformance/conformance.h"

namespace anyattn::conformance {

struct Outputs {
  std::vector<float> out;
  std::vector<float> lse;  // empty where not asked for, in the base that was asked for
};

// Compares with the reference and raises the result's ratios. Throws Failure with `who` in front; an lse in another base
// than declared is named as such.
void judge(const Outputs& got, const Reference& reference, uint32_t lse_base, uint32_t out_dtype, const std::string& who,
           CaseResult* result);

// Throws Failure unless rows [first, first + count) of `got` are bitwise rows [other_first, ...) of `other`.
void want_same_bits(const Outputs& got, size_t first, const Outputs& other, size_t other_first, size_t count, size_t out_row,
                    size_t lse_row, const std::string& who);

// Throws Failure unless S, A, Wt and Ls are those of the recipe (float32 only).
void want_figures(const Outputs& got, const std::vector<double>& golden, uint32_t lse_base);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_OUTPUTS_H
