// SPDX-License-Identifier: Apache-2.0
#include "tune/profile_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "common/json_text.h"
#include "common/runtime.h"
#include "common/whole_file.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

ordered_json device_facts(const Runtime& runtime, const std::string& device) {
  const ordered_json devices = parse(runtime.devices());
  for (const ordered_json& facts : devices.at("devices")) {
    if (fmt::format("{}:{}", text_of(facts, "kind"), text_of(facts, "ordinal")) != device) continue;
    ordered_json head;
    for (const char* key : {"kind", "name", "architecture", "num_multiprocessors", "driver_version"}) head[key] = facts.at(key);
    return head;
  }
  throw Failure(kExitFailed, fmt::format("device {}: its facts are not known", device));
}

}  // namespace

ordered_json profile_head(const Runtime& runtime, const TuneOptions& options, const std::string& device,
                          const std::set<std::string>& plugins) {
  ordered_json head{{"profile", 1},
                    {"anyattn", anyattn_version()},
                    {"date", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)))},
                    {"threads", runtime.num_workers()},
                    {"rounds", options.rounds},
                    {"device", device_facts(runtime, device)},
                    {"plugins", ordered_json::array()},
                    {"entries", ordered_json::array()}};
  const ordered_json listing = parse(runtime.list());
  for (const ordered_json& plugin : listing.at("plugins"))
    if (plugins.contains(text_of(plugin, "id")))
      head["plugins"].push_back(
          {{"id", plugin.at("id")}, {"version", plugin.at("version")}, {"content", plugin.at("content")}});
  return head;
}

void write_profile(const std::string& file, const ordered_json& profile) { write_whole(file, profile.dump(2) + "\n"); }

}  // namespace anyattn::tools
