// SPDX-License-Identifier: Apache-2.0
#include "loader/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>

#include "anyattn/util.h"
#include "loader/call.h"
#include "loader/slots.h"

namespace anyattn::loader {
namespace {

using discovery::abi_text;

constexpr uint32_t kMaxElements = 1024;  // of any array of a plugin table
constexpr const char* kAskVendor = "ask the plugin's vendor for a build that follows ABI.md";

std::string range_text(uint32_t min, uint32_t max) { return fmt::format("{} to {}", abi_text(min), abi_text(max)); }

const char* who_updates(uint32_t plugin_min, AbiRange range) {
  return plugin_min > range.max ? "update the host" : "update the plugin";
}

// Up to the range: what even a plugin that does not meet the host's range may show.
struct Header {
  uint32_t abi_min = 0, abi_max = 0;
};
std::optional<Header> read_header(const anyattn_plugin* plugin) {
  if (!plugin || plugin->struct_size < ANYATTN_END_OFFSET(anyattn_plugin, abi_max)) return std::nullopt;
  return Header{plugin->abi_min, plugin->abi_max};
}

[[noreturn]] void refuse_versions(const anyattn_plugin* plugin, AbiRange range, const char* plugin_text) {
  const std::string said = *plugin_text ? fmt::format(" (the plugin says: {})", plugin_text) : std::string();
  const std::optional<Header> header = read_header(plugin);
  if (!header) {
    refuse(ANYATTN_ABI_MISMATCH,
           fmt::format("the plugin refuses this host, which speaks ABI {}{}", range_text(range.min, range.max), said),
           "update the older of the two");
  }
  refuse(ANYATTN_ABI_MISMATCH,
         fmt::format("the version ranges do not meet: the plugin speaks ABI {}, this host {}{}",
                     range_text(header->abi_min, header->abi_max), range_text(range.min, range.max), said),
         who_updates(header->abi_min, range));
}

const anyattn_plugin* call_entry(anyattn_plugin_entry_fn entry, AbiRange range, const anyattn_host& host) {
  std::array<char, 1024> text{};
  anyattn_error error{text.data(), text.size(), 0, 0, 0};
  const anyattn_plugin* plugin = nullptr;
  const int32_t status = call({"the plugin", ANYATTN_PLUGIN_ENTRY_NAME}, &error, entry, range.min, range.max, &host, &plugin);
  if (status == ANYATTN_ABI_MISMATCH) refuse_versions(plugin, range, text.data());
  if (status != ANYATTN_OK) {
    refuse(status, fmt::format("its entry function failed with status {}: {}", status, text.data()), kAskVendor);
  }
  if (!plugin) refuse(ANYATTN_ABI_MISMATCH, "its entry function answers OK without a table", kAskVendor);
  return plugin;
}

void check_versions(const anyattn_plugin& plugin, AbiRange range) {
  const std::string plugin_range = range_text(plugin.abi_min, plugin.abi_max);
  const std::string host_range = range_text(range.min, range.max);
  if (plugin.abi_min > plugin.abi_max) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("its version range {} is empty", plugin_range), kAskVendor);
  }
  if (plugin.abi_version < plugin.abi_min || plugin.abi_version > plugin.abi_max || plugin.abi_version < range.min ||
      plugin.abi_version > range.max) {
    refuse(ANYATTN_ABI_MISMATCH,
           fmt::format("it chose ABI {}, which is not in both ranges: the plugin's {} and this host's {}",
                       abi_text(plugin.abi_version), plugin_range, host_range),
           plugin.abi_max >= range.min && plugin.abi_min <= range.max ? kAskVendor : who_updates(plugin.abi_min, range));
  }
}

// Lower-case parts joined by dots, at least two: org.anyattn.cpu.
bool is_plugin_id(const std::string& id) {
  bool starts_part = true;
  size_t parts = 1;
  for (const char c : id) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (c == '.' && !starts_part) {
      ++parts;
      starts_part = true;
    } else if (is_word || (!starts_part && (c == '-' || c == '_'))) {
      starts_part = false;
    } else {
      return false;
    }
  }
  return parts >= 2 && !starts_part;
}

void check_array(const void* elements, uint32_t count, const char* what) {
  if (count > kMaxElements) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("its table counts {} {}, more than {}", count, what, kMaxElements), kAskVendor);
  }
  if (count > 0 && !elements) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("its table counts {} {} and points to none", count, what), kAskVendor);
  }
}

std::vector<OptionInfo> read_options(const anyattn_plugin& plugin) {
  check_array(plugin.options, plugin.num_options, "options");
  constexpr uint32_t kNeed = ANYATTN_END_OFFSET(anyattn_option_info, key);
  if (plugin.num_options > 0 && plugin.option_stride < kNeed) {
    refuse(ANYATTN_ABI_MISMATCH,
           fmt::format("its option_stride is {}, an anyattn_option_info needs at least {}", plugin.option_stride, kNeed),
           kAskVendor);
  }
  std::vector<OptionInfo> options;
  for (uint32_t i = 0; i < plugin.num_options; ++i) {
    const auto* given = reinterpret_cast<const char*>(plugin.options) + size_t{i} * plugin.option_stride;
    require_size(given, fmt::format("option {} of its table (anyattn_option_info)", i), kNeed);
    anyattn_option_info info;
    anyattn_read_struct(&info, sizeof info, given);
    const std::string what = fmt::format("of option {}", i);
    options.push_back({read_text(info.key, "the key " + what), read_text(info.fallback, "the fallback " + what, true),
                       read_text(info.allowed, "the allowed values " + what, true)});
  }
  return options;
}

void check_unique(const Tables& tables) {
  std::set<std::tuple<std::string, uint32_t>> names;
  for (const Backend& backend : tables.backends) {
    if (!names.emplace(backend.name, backend.device_kind).second) {
      refuse(ANYATTN_ABI_MISMATCH, fmt::format("its table has the backend {} twice for one device kind", backend.name),
             kAskVendor);
    }
  }
  std::set<uint32_t> kinds;
  for (const Provider& provider : tables.providers) {
    if (!kinds.insert(provider.device_kind).second) {
      refuse(ANYATTN_ABI_MISMATCH, fmt::format("its table has the device provider {} twice", provider.name), kAskVendor);
    }
  }
}

}  // namespace

Tables negotiate(anyattn_plugin_entry_fn entry, AbiRange range, const anyattn_host& host) {
  const anyattn_plugin* given = call_entry(entry, range, host);
  require_size(given, "its anyattn_plugin", ANYATTN_END_OFFSET(anyattn_plugin, options));
  anyattn_plugin plugin;
  anyattn_read_struct(&plugin, sizeof plugin, given);
  check_versions(plugin, range);

  Tables tables;
  tables.id = read_text(plugin.id, "its id");
  if (!is_plugin_id(tables.id)) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("its id '{}' is no reverse domain name such as org.anyattn.cpu", tables.id),
           kAskVendor);
  }
  tables.vendor = read_text(plugin.vendor, "its vendor");
  tables.version = read_text(plugin.version, "its version");
  tables.license = read_text(plugin.license, "its license");
  tables.abi_version = plugin.abi_version;
  tables.abi_min = plugin.abi_min;
  tables.abi_max = plugin.abi_max;
  tables.shutdown = plugin.shutdown;
  check_array(plugin.backends, plugin.num_backends, "backends");
  check_array(plugin.providers, plugin.num_providers, "device providers");
  if (plugin.num_backends + plugin.num_providers == 0) {
    refuse(ANYATTN_ABI_MISMATCH, "its table has neither a backend nor a device provider", kAskVendor);
  }
  for (uint32_t i = 0; i < plugin.num_backends; ++i) tables.backends.push_back(read_backend(plugin.backends[i], i));
  for (uint32_t i = 0; i < plugin.num_providers; ++i) tables.providers.push_back(read_provider(plugin.providers[i], i));
  tables.options = read_options(plugin);
  check_unique(tables);
  return tables;
}

}  // namespace anyattn::loader
