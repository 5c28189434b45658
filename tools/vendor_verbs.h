// SPDX-License-Identifier: Apache-2.0
// Verbs for those who write, ship and install plugins. Included by main.cc, which lists them, and by the verbs' own files.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "verbs.h"

namespace CLI {
class App;
}

namespace anyattn::tools {

// --config and --json, and what of a target, as other verbs have them; defined in main.cc.
void add_common(CLI::App& verb, CommonOptions& common);
void add_target(CLI::App& verb, TargetOptions& target);
void add_backend(CLI::App& verb, TargetOptions& target);

struct NewPluginOptions {
  std::string name;  // acme
  std::string folder;
  std::string id;  // empty: com.example.NAME
  std::string vendor = "Example";
};
int new_plugin(const NewPluginOptions& options);

struct VerdictsOptions {
  std::string action;  // list, why, clear
  std::string which;   // a plugin's id or file; why needs one
  CommonOptions common;
};
int verdicts(const VerdictsOptions& options);

struct BundleOptions {
  std::string action;   // build, sign, verify, install, list, remove, show
  std::string subject;  // a folder or a .tar.zst; remove: an id or the name of a folder
  std::string out;      // build
  std::string key;      // sign
  std::string into;     // install; empty: the first folder of plugins.search
  uint32_t driver = 0;  // build: lowest driver version
  bool allow_downgrade = false;
  bool any_machine = false;
  CommonOptions common;
};
int bundle(const BundleOptions& options);

struct KeyOptions {
  std::string action;  // new, export, trust
  std::string name;    // new: NAME.key and NAME.pub are made; else a key file
  std::string into;    // trust: folder of trusted keys; empty: keys
};
int key(const KeyOptions& options);

// What `explain` shows, as JSON.
nlohmann::ordered_json explained(const ExplainOptions& options);

struct LockOptions {
  std::vector<std::string> models;
  std::string out;
  ExplainOptions explain;  // target and configuration
};
int lock(const LockOptions& options);

// Each adds its verb with flags and help to the command, and returns what runs it.
std::function<int()> add_new_plugin(CLI::App& app);
std::function<int()> add_verdicts(CLI::App& app);
std::function<int()> add_bundle(CLI::App& app);
std::function<int()> add_key(CLI::App& app);
std::function<int()> add_lock(CLI::App& app);

}  // namespace anyattn::tools
