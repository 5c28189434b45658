// SPDX-License-Identifier: Apache-2.0
// Runs the real anyattn binary with an environment of its own and keeps what it said. Included by the end-to-end tests.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace anyattn::end_to_end {

struct Result {
  int code = -1;  // exit code; minus the number where a signal ended it
  std::string out;
  std::string err;

  // Standard output as JSON; a failed check with the text where it is none.
  nlohmann::json json() const;
};

// variables: over an environment without any ANYATTN_ name; an empty text unsets. Runs in a folder that holds nothing of ours.
Result cli(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables = {});
// The same with standard output on a terminal of `columns`.
Result cli_on_terminal(const std::vector<std::string>& arguments, int columns);
// The same, with a Ctrl-C as soon as the command is ready for one.
Result cli_interrupted(const std::vector<std::string>& arguments);
// Any program.
Result run_program(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables = {});

// A configuration that searches only the build tree's cpu plugin folder, with `more` (YAML) behind it.
std::string cpu_config(const std::string& more = "");

bool contains(const std::string& text, const std::string& part);

}  // namespace anyattn::end_to_end
