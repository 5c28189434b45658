// SPDX-License-Identifier: Apache-2.0
// What the first contact with a plugin file in a child process showed. Included by the prober, the helper program and the loader.
// Plain values with their sentence and their stored form; runs nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace anyattn::probe {

enum class Outcome {
  kOk,       // opened, negotiated, answered
  kRefused,  // the linker's, the plugin's or the host's own words at one stage
  kCrash,    // a signal ended the child
  kHang,     // the deadline passed
  kExit,     // the child ended by itself, in the middle of a stage
  kNoProbe,  // the helper did not run: nothing is known of the file
};
const char* outcome_name(Outcome outcome);  // ok, refused, crash, hang, exit, no_probe

struct Verdict {
  Outcome outcome = Outcome::kNoProbe;
  std::string stage;   // open, negotiate, register, supports: where it ended; empty with kOk and kNoProbe
  int signal = 0;      // kCrash
  int exit_code = 0;   // kExit
  double seconds = 0;  // kHang: how long was waited
  int32_t status = 0;  // kRefused: ANYATTN_*
  std::string reason;  // kRefused, kNoProbe: a sentence part
  std::string remedy;
  std::string said;                // the last line the child printed; empty: none
  std::vector<std::string> notes;  // kOk: what loading the file does to a process, one sentence part each
  bool transient = false;          // the same file may do better soon: kept for a while only

  // Of the file, for lists.
  std::string id;
  std::string path;
  std::string content;
  int64_t when = 0;  // seconds since 1970
};

// "crashes with signal 4 (Illegal instruction) at stage open"; continues "the plugin ...".
std::string reason_text(const Verdict& verdict);
// An instruction.
std::string remedy_text(const Verdict& verdict);

// One JSON object on one line, and back; nothing where the text is none of ours.
std::string to_text(const Verdict& verdict);
std::optional<Verdict> from_text(const std::string& text);

}  // namespace anyattn::probe
