// SPDX-License-Identifier: Apache-2.0
// How a verb ends: the exit codes, and the exception that carries one with its sentence to main.
// Included by every verb. Printing happens once, in main.cc.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace anyattn::tools {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // understood, but refused or failed
  kExitUsage = 2,          // wrong flags, input files or configuration: nothing was tried
  kExitInterrupted = 130,  // Ctrl-C; what was done so far is reported
};

class Failure : public std::exception {
 public:
  Failure(ExitCode code, std::string text) : code_(code), text_(std::move(text)) {}
  ExitCode code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ExitCode code_;
  std::string text_;
};

}  // namespace anyattn::tools
