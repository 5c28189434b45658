// SPDX-License-Identifier: Apache-2.0
#include "common/interrupt.h"

#include <csignal>

namespace anyattn::tools {
namespace {

volatile std::sig_atomic_t caught = 0;

extern "C" void note_interrupt(int) { caught = 1; }

}  // namespace

void catch_interrupt() {
  struct sigaction action{};
  action.sa_handler = note_interrupt;
  // Reset: the second one does what it always does. Restart: no read or write of ours fails half-way.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return caught != 0; }

}  // namespace anyattn::tools
