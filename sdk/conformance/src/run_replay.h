// SPDX-License-Identifier: Apache-2.0
// One captured forward, replayed for batches of other lengths, tables and sizes. Included by run_plain.cc.
#ifndef ANYATTN_CONFORMANCE_RUN_REPLAY_H
#define ANYATTN_CONFORMANCE_RUN_REPLAY_H

#include <functional>

#include "session.h"

namespace anyattn::conformance {

// Captures forward once, in mode graph; then for each batch of `next`: metadata_update, one graph launch, comparison with the
// reference. Host copies of the lengths are null. Plain caches only. Throws NotOffered where the device has no graphs.
void run_replay(const Subject& subject, const Case& c, const std::function<Case()>& next, CaseResult* result);

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_RUN_REPLAY_H
