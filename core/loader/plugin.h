// SPDX-License-Identifier: Apache-2.0
// An opened plugin as one runtime sees it: its tables read through struct_size into copies of our own, and its host table.
// Included by the registry, device and everyone who calls a backend. Opening is in loader.h, calling in call.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/plugin.h"

namespace anyattn::loader {

class Image;       // the opened file, one per content and process, never closed
struct HostTable;  // the anyattn_host of one plugin and what it points to
struct Tables;     // what the plugin answered in its entry

// One backend of a plugin. `table` is a copy: slots the plugin does not have are null, struct_size says what was read.
struct Backend {
  std::string name;
  std::string description;
  uint32_t device_kind = 0;
  bool is_mla = false;  // forward_mqa, context_gather, forward_mha instead of forward
  anyattn_backend table{};
};

struct Provider {
  std::string name;
  uint32_t device_kind = 0;
  bool has_graphs = false;  // all four graph slots are there
  anyattn_device_provider table{};
};

struct OptionInfo {
  std::string key;
  std::string fallback;
  std::string allowed;
};

// Held by shared_ptr by the registry and by every impl made of it; the code stays mapped for ever, so tables never dangle.
// When the last Plugin of a file goes, the file's shutdown is called, once a process at most.
class Plugin {
 public:
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  std::string id;
  std::string vendor;
  std::string version;
  std::string license;
  std::string path;          // absolute and canonical
  std::string content;       // BLAKE2b-256 of the file, hex
  uint32_t abi_version = 0;  // negotiated
  uint32_t abi_min = 0;      // range the plugin speaks
  uint32_t abi_max = 0;
  std::vector<Backend> backends;
  std::vector<Provider> providers;
  std::vector<OptionInfo> options;

  // Lent to every call that takes a host: this plugin's options, the runtime's services. Lives as long as the Plugin.
  const anyattn_host* host() const;

 private:
  friend class Loader;
  Plugin(std::shared_ptr<Image> image, std::string content_hash, Tables tables, std::unique_ptr<HostTable> host);
  void become_user();  // of its file, once nothing can fail any more
  bool is_user_ = false;
  std::shared_ptr<Image> image_;
  std::unique_ptr<HostTable> host_;
  void (*shutdown_)(void) = nullptr;
};

}  // namespace anyattn::loader
