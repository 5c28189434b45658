// SPDX-License-Identifier: Apache-2.0
// The one way in which this build of the plugin is wrong. Included by its files; NAIVE_MUTATION names the way.
#pragma once

namespace naive {

enum class Mutation {
  kNone,
  kWindowOffByOne,        // one key too many to the left
  kSinkPerSplit,          // the sink enters every split
  kLseBase2,              // base 2 where the natural base is asked for
  kTailOfLastBlock,       // values behind the last key are read, with weight 0
  kScaleOfKForV,          // v is dequantised with k's scale
  kHeadGroup,             // the last group of query heads reads the kv head before its own
  kAnnouncesAll,          // supports says yes to everything, forward knows causal attention only
  kWritesPastScratch,     // one byte
  kWritesCache,           // forward clears a slot
  kCrashes,               // an illegal instruction in forward
  kHangs,                 // forward does not return
  kLogsOnTheHotPath,      // in forward
  kCreatesWhatItRefuses,  // problems with a window
  kRefusesWindows,        // for the must-pass list
};

#ifndef NAIVE_MUTATION
#define NAIVE_MUTATION kNone
#endif
inline constexpr Mutation kMutation = Mutation::NAIVE_MUTATION;
constexpr bool mutated(Mutation mutation) { return kMutation == mutation; }

}  // namespace naive
