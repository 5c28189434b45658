// SPDX-License-Identifier: Apache-2.0
// The cache format and the scales of a case. Included by the kit's data and runs. Knows no backend.
#ifndef ANYATTN_CONFORMANCE_FORMAT_CASE_H
#define ANYATTN_CONFORMANCE_FORMAT_CASE_H

#include <vector>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/conformance/case.h"

namespace anyattn::conformance {

// Throws CaseError where the kit does not know the name.
const CacheFormat& format_of(const Case& c);

// [1] or, with head_scales, [num_kv_heads].
std::vector<float> q_scales_of(const Case& c);
// q [any, num_q_heads, head_size] as float8_e4m3fn codes, and what these stand for; as it is without q_scale.
std::vector<float> q_codes_of(const Case& c, std::vector<float> q);
std::vector<float> q_values_of(const Case& c, std::vector<float> q);

// [1] or, with head_scales, [num_kv_heads]; empty where the case has no scales.
std::vector<float> k_scales_of(const Case& c);
std::vector<float> v_scales_of(const Case& c);
// The one for a kv head; 1 where there are none.
float scale_for(const std::vector<float>& scales, int64_t head);

// rows [any, heads, size] as a reader of the cache gets them.
std::vector<float> stored_rows(const Case& c, RowKind kind, const std::vector<float>& rows, int64_t heads, int64_t size,
                               const std::vector<float>& scales);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_FORMAT_CASE_H
