// SPDX-License-Identifier: Apache-2.0
// What the registry is made of: keys, candidates of discovery, opened plugins, handles, failures.
// Included by the selector and the API. Plain values; nothing here opens a file.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/plugin.h"
#include "config/config.h"
#include "discovery/discovery.h"

namespace anyattn::registry {

// A backend's key: names are open, the same name may stand on several device kinds.
struct Key {
  std::string name;
  uint32_t device_kind = 0;  // ANYATTN_DEVICE_*
  auto operator<=>(const Key&) const = default;
};
std::string describe(const Key& key);  // "CPU_ATTN on cpu"

// How far a plugin or backend came: discover, trust, inspect, probe, open, negotiate, register, supports.
using discovery::Stage;
using discovery::stage_name;

enum class State {
  kListed,    // known from its sidecar, not opened
  kOpen,      // opened, answers
  kDraining,  // answers no more (overridden, cleared), but something made from it lives
  kRetired,   // answers no more, nothing made from it lives
};
std::string_view state_name(State state);  // listed, open, draining, retired

// Why a plugin is not there: one entry of `list`'s skipped[].
struct Failure {
  Stage stage = Stage::kOpen;
  int32_t status = ANYATTN_INTERNAL;  // what a must on one of its names returns
  std::string plugin;                 // id, empty where it was never learnt
  std::string path;
  std::string reason;  // the loader's or the plugin's own words
  std::string remedy;
};
std::string describe(const Failure& failure);  // "plugin ID (PATH) failed at STAGE: REASON; REMEDY"

// What discovery knows of one plugin file before it is opened.
struct Candidate {
  std::string id;            // of the sidecar or of plugins.entries; empty where neither says
  std::string path;          // absolute, canonical
  std::string origin;        // why it is looked at: "plugins.entries FILE:LINE", "search FOLDER", "call"
  bool has_sidecar = false;  // true: opened at first need. false: opened when added
  bool required = false;     // opened when added; a failure is thrown
  std::string vendor;
  std::string version;
  std::string license;
  uint32_t abi_min = 0;
  uint32_t abi_max = 0;
  std::string content;                // BLAKE2b-256 of the file, hex
  std::string signed_by;              // id of the key; empty: nobody
  std::set<std::string> device_code;  // "sm_90a", "gfx942": what the file holds code for
  std::vector<Key> backends;          // of the sidecar
  std::vector<uint32_t> providers;    // of the sidecar: device kinds
  std::vector<config::Option> options;
};

// An opened plugin, read through struct_size: absent slots are null. Never unloaded; `loaded` holds the loader's object.
struct OpenPlugin {
  std::string id;
  std::string vendor;
  std::string version;
  std::string license;
  std::string path;
  uint32_t abi_min = 0;
  uint32_t abi_max = 0;
  uint32_t abi_version = 0;  // negotiated
  std::string content;       // BLAKE2b-256 of the file, hex
  std::vector<anyattn_backend> backends;
  std::vector<anyattn_device_provider> providers;
  const anyattn_host* host = nullptr;  // lives as long as `loaded`
  std::shared_ptr<const void> loaded;
};

// One backend in use: copying it keeps plugin and table alive, whatever the registry does meanwhile.
struct OpenBackend {
  Key key;
  std::shared_ptr<const OpenPlugin> plugin;
  anyattn_backend table{};
  const anyattn_host* host = nullptr;
  std::shared_ptr<const void> use;  // counted: draining becomes retired when the last is gone
};

struct OpenProvider {
  uint32_t device_kind = 0;
  std::shared_ptr<const OpenPlugin> plugin;
  anyattn_device_provider table{};
  const anyattn_host* host = nullptr;
};

}  // namespace anyattn::registry
