// SPDX-License-Identifier: Apache-2.0
// SIGHUP reloads a runtime's configuration while it works. Included by verbs that run for long.
#pragma once

#include <atomic>
#include <thread>

#include "anyattn/runtime.hpp"

namespace anyattn::tools {

// Made before the runtime, so that none of its threads takes the signal's default, which is the end.
class HangupReload {
 public:
  HangupReload();
  ~HangupReload();
  HangupReload(const HangupReload&) = delete;
  HangupReload& operator=(const HangupReload&) = delete;

  // From now on. The runtime outlives this object. What came of a reload goes to standard error, one line.
  void watch(const Runtime& runtime);

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace anyattn::tools
