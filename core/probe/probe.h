// SPDX-License-Identifier: Apache-2.0
// First contact with a plugin outside this process: what a prober is asked and what it answers. Will be included by the loader.
// An interface only: no prober exists yet, so probe.enabled is false by default and plugins are opened in the process.
#pragma once

#include <cstdint>
#include <string>

namespace anyattn::probe {

enum class Outcome { kOpened, kRefused, kCrashed, kHung };

struct Verdict {
  Outcome outcome = Outcome::kRefused;
  std::string reason;  // the loader's text, the signal's name, or the stage that took too long
  std::string remedy;
  bool is_permanent = false;  // may be kept under the file's content hash and the environment's fingerprint
  std::string plugin_id;      // kOpened: what a plugin without a sidecar says it is
};

class Prober {
 public:
  virtual ~Prober() = default;
  // `path`: absolute, canonical, inspected. Returns within timeout_ms, whatever the file does.
  virtual Verdict probe(const std::string& path, uint32_t timeout_ms) = 0;
};

}  // namespace anyattn::probe
