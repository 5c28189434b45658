// SPDX-License-Identifier: Apache-2.0
// Runs the helper program on one plugin file and waits for its verdict, never longer than asked. Included by the prober.
// Knows nothing of plugins: the helper opens, this side only listens.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "probe/verdict.h"

namespace anyattn::probe {

// What the helper is asked, and the descriptors it finds open.
inline constexpr int kReportDescriptor = 3;  // the helper writes one verdict in to_text's form, then ends

struct Question {
  std::string path;     // absolute, canonical, inspected
  std::string content;  // what the file held then
  std::vector<std::pair<std::string, std::string>> options;
  uint32_t timeout_ms = 10000;
};

// Thread-safe. Always answers, whatever helper and plugin do; kNoProbe where the helper itself cannot run.
Verdict ask_child(const std::string& helper, const Question& question);

}  // namespace anyattn::probe
