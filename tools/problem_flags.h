// SPDX-License-Identifier: Apache-2.0
// A problem given on the command line: one flag for each field and feature of problem.h, by the same name.
// Included by explain and by main.cc, which lists the flags. Asks no backend.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "anyattn/runtime.hpp"
#include "verbs.h"

namespace anyattn::tools {

struct ProblemFlag {
  std::string name;   // head_size; the flag is --head-size
  std::string value;  // N, X or "a|b|c"; empty: a feature that is on when named
  std::string help;
};
std::vector<ProblemFlag> problem_flags();

// The problem of {"head_size", "128"}, {"sinks", ""}, ...: a parameter turns its feature on. Not given: 32 query heads, as many kv
// heads, head_size_v as head_size, bfloat16; with kv_lora_rank nope 128, rope 64, v 128. Throws Failure(kExitUsage) naming the flag.
Problem problem_of(const std::vector<std::pair<std::string, std::string>>& flags, const TargetOptions& target);

// `problem` with the target's block size and cache format, where it reads a cache.
Problem on_target(Problem problem, const TargetOptions& target);

}  // namespace anyattn::tools
