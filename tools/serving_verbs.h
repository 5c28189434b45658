// SPDX-License-Identifier: Apache-2.0
// The flags of the verbs that make a model's layers ready and run them: run, warm. Included by main.cc, which lists the verbs.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace anyattn::tools {

// Each adds its verb with flags and help to the command, and returns what runs it.
std::function<int()> add_run(CLI::App& app);
std::function<int()> add_warm(CLI::App& app);

}  // namespace anyattn::tools
