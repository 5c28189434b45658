// SPDX-License-Identifier: Apache-2.0
// The one way in which this build of the plugin is wrong. Included by its files; NAIVE_MUTATION names the way, or, where
// NAIVE_MUTATION_BY_OPTION is defined, the plugin's option `mutation`, read in the entry.
#pragma once

#include <string_view>

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
  kOutScaleUpsideDown,    // multiplies by out_scale
  kQScaleForgotten,       // takes codes of q for values
  kWrongOffTheGrid,       // head sizes that no table of cases has: 4 more than a multiple of 8
  kAllocates,             // in forward, and gives it back
  kOtherBitsAgain,        // each call adds a little to the first element
  kWritesPastOut,         // one byte behind out
  kFreesHostText,         // impl_create frees the problem's kv_cache_dtype
  kNeedsWorkers,          // ends where there is one
  kTakesUnknownFormat,    // supports says yes to a kv_cache_dtype it does not know
  kWrongInCompany,        // when another plugin was there before it
};

#ifdef NAIVE_MUTATION_BY_OPTION
inline Mutation chosen = Mutation::kNone;
inline bool mutated(Mutation mutation) { return chosen == mutation; }
#else
#ifndef NAIVE_MUTATION
#define NAIVE_MUTATION kNone
#endif
inline constexpr Mutation chosen = Mutation::NAIVE_MUTATION;
constexpr bool mutated(Mutation mutation) { return chosen == mutation; }
#endif

struct MutationName {
  std::string_view name;
  Mutation mutation;
};
inline constexpr MutationName kChosenByOption[] = {
    {"out_scale_upside_down", Mutation::kOutScaleUpsideDown},
    {"q_scale_forgotten", Mutation::kQScaleForgotten},
    {"wrong_off_the_grid", Mutation::kWrongOffTheGrid},
    {"allocates", Mutation::kAllocates},
    {"other_bits_again", Mutation::kOtherBitsAgain},
    {"writes_past_out", Mutation::kWritesPastOut},
    {"frees_host_text", Mutation::kFreesHostText},
    {"needs_workers", Mutation::kNeedsWorkers},
    {"takes_unknown_format", Mutation::kTakesUnknownFormat},
    {"wrong_in_company", Mutation::kWrongInCompany},
};

}  // namespace naive
