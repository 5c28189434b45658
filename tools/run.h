// SPDX-License-Identifier: Apache-2.0
// The verb `run`: replays a serving trace through the runtime, with continuous batching in virtual time.
// Included by main, which wires the flags. Knows no flag parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/failure.h"

namespace anyattn::tools {

struct RunOptions {
  std::string model;        // id in the model table
  std::string trace;        // a file, or builtin:chat, builtin:code
  std::string format;       // azure, mooncake; empty: by the file's first line
  uint32_t requests = 0;    // at most that many; 0 = all (builtin: 200)
  uint32_t max_prompt = 0;  // skip requests with a longer prompt; 0 = the model's context decides
  uint32_t layers = 0;      // of each kind; 0 = as the model has
  std::string device = "auto";
  uint32_t token_budget = 2048;  // tokens a step, decode and prefill together
  uint32_t max_num_reqs = 64;    // requests running at once
  uint64_t blocks = 0;  // KV budget in manager blocks of the largest group; 0 = 3/4 of what is free, at most what all need
  uint64_t seed = 0;
  bool saturate = false;            // all requests are there at once
  std::string dtype;                // float32, float16, bfloat16; empty: float32 on the CPU, else the model's
  std::string kv_cache_dtype;       // empty: auto
  uint32_t block_size = 0;          // tokens a kernel block; 0 = the backend's choice
  std::string models_file;          // empty: the table installed with the library
  std::string config_file;          // empty: as the runtime finds it
  std::optional<std::string> json;  // --json: "" writes only JSON to standard output, else the file's name
  bool verify = true;
};

// Returns an ExitCode; every mistake is one sentence on standard error.
int run(const RunOptions& options);

}  // namespace anyattn::tools
