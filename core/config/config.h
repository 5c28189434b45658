// SPDX-License-Identifier: Apache-2.0
// The configuration as values: what the YAML file, the environment and flags said, each with its origin.
// Included by every part of the core that reads policy. Holds no YAML type; reading is in read.h.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace anyattn::config {

// Where a value came from: "default", "FILE:LINE", "environment NAME" or "flag".
struct Origin {
  std::string text = "default";
};

struct Option {
  std::string key;
  std::string value;  // as written: versions and 010 stay text
  Origin origin;
};

// plugins.entries[]: pins one plugin.
struct PluginEntry {
  std::string id;
  std::string file;  // absolute and canonical after reading; empty: any file in `search` with this id
  bool required = false;
  std::string hash;     // 64 hex digits that its content must have; empty: any
  std::string version;  // range it must lie in, as ">=1.2 <2"; empty: any
  std::string key;      // id of the key that must have signed its bundle; empty: any trusted one
  std::vector<Option> options;
  Origin origin;
};

// selection.rules[]: first match wins, a must.
struct Rule {
  std::vector<Option> when;  // problem field or feature name, or device -> text of the value, all must hold
  std::string backend;
  Origin origin;
};

enum class TrustLevel { kNone, kHash, kSigned };

struct Config {
  std::string file;                 // absolute path of the file read
  std::vector<std::string> search;  // absolute folders, in order
  Origin search_origin;             // "default": a folder that is not there is no mistake; else it is
  std::vector<PluginEntry> entries;
  std::string store;                                  // absolute folder of installed bundles; empty: none
  uint32_t max_contents = 8;                          // of one plugin id that a process opens one after another
  std::map<std::string, std::string> override_owner;  // backend name -> plugin id that may take it
  std::string backend;                                // a must; empty = none
  Origin backend_origin;
  std::vector<Rule> rules;
  std::map<std::string, std::vector<std::string>> order;  // device kind name -> backend names
  std::vector<std::string> allow_fallback;                // device kind names
  uint32_t quarantine_after = 3;                          // failing calls in a row; 0: no backend is left
  std::string lock;                                       // absolute file of selections that must come out; empty: none
  std::string profile;                                    // absolute file of measured orders; empty: none
  TrustLevel trust_level = TrustLevel::kNone;
  std::vector<std::string> trust_keys;
  bool probe_enabled = true;
  std::string probe_cache;  // absolute folder of verdicts; empty: the user's own
  uint32_t probe_timeout_ms = 10000;
  std::string log_level = "info";
  std::vector<std::string> library_path;  // LD_LIBRARY_PATH: where the linker looks before its cache

  // Every key with its value as text and its origin, in the file's order: what `anyattn config` prints.
  struct Value {
    std::string key;
    std::string value;
    std::string origin;
  };
  std::vector<Value> values;

  // No mistakes, but worth one log line each: a near-miss of a variable's name, variables ignored under raised rights.
  std::vector<std::string> warnings;
};

// A mistake in a YAML file or the environment, as one sentence with file, line, column, key path, what is allowed.
class ConfigError : public std::exception {
 public:
  explicit ConfigError(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace anyattn::config
