// SPDX-License-Identifier: Apache-2.0
// The batches that random= draws. Included by the kit's runs of such cases.
#ifndef ANYATTN_CONFORMANCE_RANDOM_BATCH_H
#define ANYATTN_CONFORMANCE_RANDOM_BATCH_H

#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

inline constexpr int kEmptyBatch = 2;  // the place of the one batch that holds padded rows and no request

// Batch `index` of the case, within its limits: any lengths, padding, requests without rows or without keys. Where the case has a
// prefix, all keys hold it, and the backend is told of all, a part or none of it. Values of causal= are repeated over the requests.
Case random_batch(const Case& c, int index, SplitMix64* generator);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RANDOM_BATCH_H
