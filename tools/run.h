// SPDX-License-Identifier: Apache-2.0
// The verb `run`: replays a serving trace through the runtime, with continuous batching in virtual time.
// Included by main, which wires the flags. Knows no flag parser.
#pragma once

#include <cstdint>
#include <string>

#include "verbs.h"

namespace anyattn::tools {

struct RunOptions {
  CommonOptions common;
  TargetOptions target;          // dtype empty: the model's
  std::string model;             // an id of the model table
  std::string models_file;       // empty: the table installed with the library
  std::string trace;             // a file, or builtin:chat, builtin:code
  std::string format;            // azure, mooncake; empty: by the file's first line
  uint32_t requests = 0;         // at most that many; 0 = all (builtin: 100)
  uint32_t max_prompt = 0;       // skip requests with a longer prompt; 0 = the model's context decides
  uint32_t layers = 0;           // of each kind; 0 = as the model has
  uint32_t token_budget = 2048;  // tokens a step, decode and prefill together
  uint32_t max_num_reqs = 64;    // requests running at once
  uint64_t blocks = 0;  // KV budget in blocks of the largest group; 0 = what the requests need, at most a quarter of memory
  uint64_t seed = 0;
  bool saturate = false;        // all requests are there at once
  std::string graphs = "auto";  // steps as replays of captured graphs where device and backend have them; off: never
};

// Returns kExitOk, kExitFailed (a result outside its bound) or kExitInterrupted, after its report. Throws Failure for every
// mistake, as one sentence.
int run(const RunOptions& options);

}  // namespace anyattn::tools
