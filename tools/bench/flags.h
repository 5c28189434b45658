// SPDX-License-Identifier: Apache-2.0
// The flags of bench. Included by main.cc, which lists the verbs.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace anyattn::tools {

// Adds the verb; what it returns runs it.
std::function<int()> add_bench(CLI::App& app);

// As other verbs have them; defined in main.cc.
std::string footer(const std::string& examples);
std::string device_mistake(const std::string& text);
std::string positive_mistake(const std::string& text);

}  // namespace anyattn::tools
