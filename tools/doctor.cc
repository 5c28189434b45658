// SPDX-License-Identifier: Apache-2.0
// anyattn doctor: what this machine offers, and what is in the way of the plugins. Looks; changes nothing.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/json_text.h"
#include "common/pci.h"
#include "common/runtime.h"
#include "common/table.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

enum class Health { kOk, kNote, kProblem };

struct Finding {
  std::string subject;
  Health health = Health::kOk;
  std::string text;
  std::string remedy;
};
using Findings = std::vector<Finding>;

const char* name_of(Health health) { return health == Health::kOk ? "ok" : health == Health::kNote ? "note" : "problem"; }

std::string mib(const ordered_json& bytes) { return fmt::format("{} MiB", bytes.get<uint64_t>() >> 20); }

// 13000 -> "13.0", as vendors count.
std::string version(const ordered_json& device, const char* key) {
  const auto number = device.at(key).get<uint32_t>();
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

// Driver, runtime and run-time compiler; empty for a device without a driver of its own.
std::string software(const ordered_json& device) {
  if (device.at("driver_version") == 0) return "";
  const bool compiles = device.at("compiler_version") != 0;
  return fmt::format(", driver {}, runtime {}, {}", version(device, "driver_version"), version(device, "runtime_version"),
                     compiles ? "run-time compiler " + version(device, "compiler_version") : "no run-time compiler");
}

// Kinds of devices that nothing of this release knows.
void look_at_intel(Findings& findings) {
  const std::vector<std::string> cards = cards_of(kPciIntel);
  const std::string found = cards.empty() ? "none is here" : fmt::format("found {}", fmt::join(cards, ", "));
  findings.push_back(
      {"device intel", Health::kNote,
       fmt::format("Intel GPUs are not supported: no plugin of this release has a provider or kernels for them; {}", found),
       cards.empty() ? "" : "use cpu"});
}

// Measured times that go before the order, or that once did.
Finding look_at_profile(const ordered_json& profile) {
  const std::string file = text_of(profile, "file"), stale = text_of(profile, "stale");
  if (stale.empty())
    return {"profile", Health::kOk,
            fmt::format("{}: {} problems, measured {}", file, text_of(profile, "problems"), text_of(profile, "date")), ""};
  return {"profile", Health::kNote, fmt::format("{} is ignored: {}", file, stale), "write it anew with 'anyattn tune'"};
}

void look_at_devices(const ordered_json& devices, Findings& findings) {
  const ordered_json& cpu = devices.at("cpu");
  findings.push_back({"cpu", Health::kOk,
                      fmt::format("{} cores; {}; L2 {} KiB, L3 {} KiB", text_of(cpu, "cores"), text_of(cpu, "isa"),
                                  cpu.at("l2_bytes").get<uint64_t>() >> 10, cpu.at("l3_bytes").get<uint64_t>() >> 10),
                      ""});
  for (const ordered_json& device : devices.at("devices")) {
    findings.push_back({fmt::format("device {}:{}", text_of(device, "kind"), text_of(device, "ordinal")), Health::kOk,
                        fmt::format("{}, {}, {}{}", text_of(device, "name"), text_of(device, "architecture"),
                                    mib(device.at("memory_bytes")), software(device)),
                        ""});
    if (const ordered_json& profile = device.at("profile"); !profile.is_null()) findings.push_back(look_at_profile(profile));
    for (const ordered_json& plugin : device.at("plugins_without_code")) {
      const std::string id = plugin.get<std::string>(), architecture = text_of(device, "architecture");
      findings.push_back({fmt::format("device {}:{}", text_of(device, "kind"), text_of(device, "ordinal")), Health::kNote,
                          fmt::format("{} holds no code for {}", id, architecture),
                          fmt::format("install the build of {} for {}", id, architecture)});
    }
  }
  for (const ordered_json& missing : devices.at("missing")) {
    findings.push_back({"device " + text_of(missing, "kind"), Health::kNote, text_of(missing, "reason"), ""});
  }
  look_at_intel(findings);
}

// Transparent huge pages make large CPU caches cheaper to walk: "[always] madvise never".
void look_at_huge_pages(Findings& findings) {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(in, line);
  const size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) {
    findings.push_back({"huge pages", Health::kNote, "this kernel has no transparent huge pages", ""});
    return;
  }
  const std::string mode = line.substr(open + 1, close - open - 1);
  if (mode == "never") {
    findings.push_back({"huge pages", Health::kNote, "never given; large CPU caches miss the TLB more often",
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  } else {
    findings.push_back({"huge pages", Health::kOk, mode, ""});
  }
}

std::string octal(mode_t mode) { return fmt::format("{:04o}", mode & 07777u); }

// A folder that others may write to could hold anybody's plugin.
Finding look_at_folder(const std::string& folder) {
  const std::string subject = "search folder";
  struct stat facts{};
  if (stat(folder.c_str(), &facts) != 0) {
    return {subject, Health::kNote, folder + ": not there", "make it, or take it out of plugins.search"};
  }
  if (!S_ISDIR(facts.st_mode)) return {subject, Health::kProblem, folder + ": no folder", "name a folder in plugins.search"};
  if (access(folder.c_str(), R_OK | X_OK) != 0) {
    return {subject, Health::kProblem, folder + ": cannot be read by this user", "chmod or chown it"};
  }
  const bool open_to_others = (facts.st_mode & S_IWOTH) != 0 && (facts.st_mode & S_ISVTX) == 0;
  if (open_to_others) {
    return {subject, Health::kProblem, fmt::format("{}: writable by everyone ({})", folder, octal(facts.st_mode)),
            "chmod o-w it"};
  }
  if (facts.st_uid != 0 && facts.st_uid != geteuid()) {
    return {subject, Health::kProblem, fmt::format("{}: owned by user {}", folder, facts.st_uid),
            "chown it to root or yourself"};
  }
  if ((facts.st_mode & S_IWGRP) != 0) {
    return {subject, Health::kNote, fmt::format("{}: writable by its group ({})", folder, octal(facts.st_mode)),
            "chmod g-w it"};
  }
  return {subject, Health::kOk, folder, ""};
}

// "[/a, /b]" of the value plugins.search.
std::vector<std::string> search_folders(const ordered_json& config) {
  std::vector<std::string> folders;
  for (const ordered_json& value : config.at("values")) {
    if (text_of(value, "key") != "plugins.search") continue;
    std::string list = text_of(value, "value");
    if (list.size() < 2) continue;
    list = list.substr(1, list.size() - 2);
    for (size_t at = 0; at < list.size();) {
      const size_t end = std::min(list.find(", ", at), list.size());
      folders.push_back(list.substr(at, end - at));
      at = end + 2;
    }
  }
  return folders;
}

void look_at_configuration(const ordered_json& config, Findings& findings) {
  findings.push_back({"configuration", Health::kOk, text_of(config, "file"), ""});
  for (const ordered_json& value : config.at("values")) {
    const std::string origin = text_of(value, "origin");
    if (origin == "flag" || origin.starts_with("environment")) {
      findings.push_back({"configuration", Health::kNote,
                          fmt::format("{} is {} by {}", text_of(value, "key"), text_of(value, "value"), origin), ""});
    }
  }
  for (const std::string& folder : search_folders(config)) findings.push_back(look_at_folder(folder));
}

// Where the machine code of a file without any comes from: what lies beside it, and a compiler on each device of its backends' kinds.
std::string source_of_code(const std::string& path, const std::set<std::string>& kinds, const ordered_json& devices) {
  std::vector<std::string> sources;
  std::error_code none;
  if (std::filesystem::is_directory(std::filesystem::path(path).parent_path() / "prebuilt", none))
    sources.emplace_back("that of common problems is in prebuilt/ beside it");
  bool is_here = false;
  for (const ordered_json& device : devices.at("devices")) {
    const std::string kind = text_of(device, "kind");
    if (!kinds.contains(kind)) continue;
    is_here = true;
    const std::string name = fmt::format("{}:{}", kind, text_of(device, "ordinal"));
    sources.push_back(device.at("compiler_version") != 0 ? fmt::format("compiled for {} at warm-up by run-time compiler {}",
                                                                       name, version(device, "compiler_version"))
                                                         : fmt::format("no run-time compiler that suits {} is here", name));
  }
  if (!is_here)
    sources.emplace_back("compiled at warm-up where a device and its run-time compiler are; no device of its is here");
  return fmt::format("{}", fmt::join(sources, ", "));
}

// ", code for sm_80, sm_90a"; of a file without any whose backends run on devices: where that comes from.
std::string code_text(const ordered_json& plugin, const ordered_json& listing, const ordered_json& devices) {
  const ordered_json& code = plugin.at("device_code");
  if (!code.empty()) return fmt::format(", code for {}", fmt::join(code.get<std::vector<std::string>>(), ", "));
  std::set<std::string> kinds;
  for (const ordered_json& backend : listing.at("backends"))
    if (backend.at("plugin") == plugin.at("id") && backend.at("device") != "cpu") kinds.insert(text_of(backend, "device"));
  return kinds.empty() ? "" : ", no device code in the file: " + source_of_code(text_of(plugin, "path"), kinds, devices);
}

void look_at_plugins(const ordered_json& listing, const ordered_json& devices, Findings& findings) {
  for (const ordered_json& plugin : listing.at("plugins")) {
    findings.push_back({"plugin", Health::kOk,
                        fmt::format("{} {} ({}), ABI {} to {}{}: {}", text_of(plugin, "id"), text_of(plugin, "version"),
                                    text_of(plugin, "state"), text_of(plugin, "abi_min"), text_of(plugin, "abi_max"),
                                    code_text(plugin, listing, devices), text_of(plugin, "path")),
                        ""});
  }
  for (const ordered_json& skip : listing.at("skipped")) {
    findings.push_back({"skipped", Health::kProblem,
                        fmt::format("{} at {}: {}", text_of(skip, "path"), text_of(skip, "stage"), text_of(skip, "reason")),
                        text_of(skip, "remedy")});
  }
  if (listing.at("backends").empty()) {
    findings.push_back({"backends", Health::kProblem, "none was found", "name a folder with plugins in plugins.search"});
  }
}

ordered_json json_of(const Findings& findings) {
  ordered_json list = ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject},
                    {"health", name_of(finding.health)},
                    {"text", finding.text},
                    {"remedy", finding.remedy.empty() ? ordered_json(nullptr) : ordered_json(finding.remedy)}});
  }
  return list;
}

void print(const Findings& findings) {
  Table table({{""}, {"subject"}, {"finding"}, {"remedy"}});
  for (const Finding& finding : findings) {
    const Colour colour = finding.health == Health::kOk     ? Colour::kGreen
                          : finding.health == Health::kNote ? Colour::kCyan
                                                            : Colour::kRed;
    table.add({{name_of(finding.health), colour}, finding.subject, finding.text, finding.remedy});
  }
  fmt::print("{}", table.render(terminal_of(1)));
}

}  // namespace

int doctor(const CommonOptions& options) {
  const JsonOutput output(options.json);
  const Runtime runtime = open_runtime(as_engines(options), "");
  const ordered_json devices = parse(runtime.devices());
  Findings findings;
  look_at_configuration(parse(runtime.config()), findings);
  look_at_devices(devices, findings);
  look_at_huge_pages(findings);
  look_at_plugins(parse(runtime.list()), devices, findings);

  const bool healthy =
      std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.health == Health::kProblem; });
  if (output.table()) print(findings);
  output.write({{"version", anyattn_version()}, {"healthy", healthy}, {"findings", json_of(findings)}, {"devices", devices}});
  return healthy ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
