// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a question: long verbs ask between steps, report what they have and return kExitInterrupted.
// Included by verbs that take longer than a moment. A second Ctrl-C ends the process at once.
#pragma once

namespace anyattn::tools {

// From now on the first SIGINT only sets the answer below.
void catch_interrupt();
bool interrupted();

}  // namespace anyattn::tools
