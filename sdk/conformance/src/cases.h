// SPDX-License-Identifier: Apache-2.0
// Tables of cases. Included by the files that hold them and by cases.cc, which spreads them over dtypes.
#ifndef ANYATTN_CONFORMANCE_CASES_H
#define ANYATTN_CONFORMANCE_CASES_H

#include <cstdint>
#include <span>
#include <vector>

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

enum class Dtypes { kFloat32, kAll, kHalves };
enum class Size { kSmall, kLarge };  // large: in the full grid only

// A case without its dtype: "KIND WORD...". '@' in a text or a name stands for each of the values in turn, see `values`.
struct Line {
  const char* name;
  const char* text;
  Dtypes dtypes = Dtypes::kFloat32;
  const char* values = nullptr;  // separated by '|'
  Size size = Size::kSmall;
};

extern const std::span<const Line> kBugLines;      // reported bugs of other products, with figures of the right result
extern const std::span<const Line> kFeatureLines;  // the smallest case that needs each feature
extern const std::span<const Line> kMeaningLines;  // what attention.h fixes, in combination
extern const std::span<const Line> kPrefixLines;   // a prefix that all requests share, told to the backend
extern const std::span<const Line> kShapeLines;    // shapes of a serving engine's own tests, random batches, a real model
extern const std::span<const Line> kFormatLines;   // caches of every format, written and read
extern const std::span<const Line> kMlaLines;

// Random problems, plain and latent ones, small; the same for one seed.
std::vector<Case> truth_cases(uint64_t seed);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_CASES_H
