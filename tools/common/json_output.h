// SPDX-License-Identifier: Apache-2.0
// Where a verb's JSON goes: nowhere, standard output alone, or a file beside the table. Included by every verb.
// Makes no JSON of its own.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace anyattn::tools {

// --json [F].
struct JsonOptions {
  bool wanted = false;
  std::string file;  // empty: standard output, which then holds nothing else
};

class JsonOutput {
 public:
  // Throws Failure(kExitUsage) for a file that exists, holds something and is no JSON: it is somebody's, and is not written over.
  explicit JsonOutput(const JsonOptions& options);
  // The table, progress and text belong on standard output.
  bool table() const { return !options_.wanted || !options_.file.empty(); }
  // Writes where it was asked for, if it was. Throws Failure(kExitFailed) with the system's reason.
  void write(const nlohmann::ordered_json& value) const;

 private:
  JsonOptions options_;
};

}  // namespace anyattn::tools
