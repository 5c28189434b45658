// SPDX-License-Identifier: Apache-2.0
// One captured forward, replayed for batches of other lengths, tables and sizes. Included by run_plain.cc and run_mla.cc.
#ifndef ANYATTN_CONFORMANCE_RUN_REPLAY_H
#define ANYATTN_CONFORMANCE_RUN_REPLAY_H

#include "session.h"

namespace anyattn::conformance {

// Captures forward (forward_mqa with MLA) once, in mode graph; then for each of the case's random batches: kv_cache_update,
// metadata_update, one graph launch, comparison with the reference. Host copies of the lengths are null. Throws NotOffered where the
// device has no graphs.
void run_replay(const Subject& subject, const Case& c, CaseResult* result);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUN_REPLAY_H
