// SPDX-License-Identifier: Apache-2.0
// Real q, k and v of a small model, from a dump file. Included by case_data.cc; knows the file's format only.
#ifndef ANYATTN_CONFORMANCE_STORIES_H
#define ANYATTN_CONFORMANCE_STORIES_H

#include <string>

#include "case_data.h"

namespace anyattn::conformance {

// Fills q, k and v of a one-request case with the last query_len rows of q and the first key_len rows of k and v of layer
// c.layer. Throws DataMissing where the file is absent or too short, or its head counts differ from the case's.
void read_stories(const Case& c, const std::string& file, PlainData* data);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_STORIES_H
