// SPDX-License-Identifier: Apache-2.0
#include "common/hangup.h"

#include <fmt/format.h>
#include <signal.h>

#include <ctime>

namespace anyattn::tools {
namespace {

sigset_t hangup_only() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGHUP);
  return set;
}

void reload(const Runtime& runtime) {
  try {
    runtime.reload();
    fmt::print(stderr, "anyattn: reloaded, generation {}; groups that are there keep their plugin\n", runtime.generation());
  } catch (const RuntimeError& error) {
    fmt::print(stderr, "anyattn: not reloaded, nothing changed: {}\n", error.what());
  }
}

}  // namespace

HangupReload::HangupReload() {
  const sigset_t set = hangup_only();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

HangupReload::~HangupReload() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void HangupReload::watch(const Runtime& runtime) {
  thread_ = std::thread([this, &runtime] {
    const sigset_t set = hangup_only();
    const timespec often{0, 100'000'000};
    while (!stop_)
      if (::sigtimedwait(&set, nullptr, &often) == SIGHUP) reload(runtime);
  });
}

}  // namespace anyattn::tools
