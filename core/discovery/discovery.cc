// SPDX-License-Identifier: Apache-2.0
#include "discovery/discovery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "config/names.h"
#include "config/sidecar.h"
#include "discovery/bundle.h"
#include "discovery/content.h"
#include "discovery/folders.h"
#include "discovery/seen_files.h"
#include "discovery/trust_gate.h"
#include "inspect/device_code.h"
#include "inspect/libraries.h"
#include "inspect/openmp.h"
#include "inspect/plugin_rules.h"
#include "trust/path_rules.h"

namespace anyattn::discovery {
namespace {

namespace fs = std::filesystem;

// Looks at one file after the other and keeps what later ones are compared with.
class Examiner {
 public:
  Examiner(const config::Config& config, const Host& host, Found& found)
      : config_(config), host_(host), found_(found), gate_(config, host, found.warnings) {}

  void examine(const Located& located) {
    Candidate candidate;
    candidate.path = located.path;
    candidate.origin = located.origin;
    if (located.entry) {
      candidate.entry = *located.entry;
      candidate.id = located.entry->id;
    }
    std::error_code error;
    const std::string path = fs::canonical(located.path, error).string();
    const auto first = error ? origin_by_path_.end() : origin_by_path_.find(path);
    std::optional<Refusal> refusal;
    if (error) {
      refusal = Refusal{Stage::kDiscover, ANYATTN_NOT_FOUND, fmt::format("the file cannot be found: {}", error.message()),
                        located.entry ? fmt::format("correct the entry of {}", located.entry->origin.text)
                                      : std::string("remove the dangling link")};
    } else if (first == origin_by_path_.end()) {
      candidate.path = path;
      origin_by_path_[path] = located.origin;
      if (located.entry) pinned_.insert(path);
      refusal = judge(candidate);
    } else if (!located.entry && pinned_.contains(path)) {
      return;  // a pinned file that also lies in a searched folder is met twice by design
    } else {
      refusal = Refusal{Stage::kDiscover, ANYATTN_NOT_FOUND,
                        fmt::format("is the same file as {}, found earlier through {}", path, first->second),
                        located.entry ? "name the file in one entry only" : "nothing needs to be done; name the folder once"};
    }
    if (!refusal) {
      found_.candidates.push_back(std::move(candidate));
      return;
    }
    found_.skips.push_back(Skip{candidate.id, candidate.path, refusal->stage, refusal->status, refusal->reason, refusal->remedy,
                                located.entry && located.entry->required, candidate.sidecar});
  }

 private:
  std::optional<Refusal> judge(Candidate& candidate) {
    // The sidecar first: a text that names the plugin is worth more than one that names a file only.
    std::optional<Refusal> sidecar_refusal = read_sidecar(candidate);
    const trust::PathVerdict path_verdict = trust::check_path(candidate.path, config_.trust_level, ::geteuid());
    if (path_verdict.refusal) {
      return Refusal{Stage::kTrust, ANYATTN_NOT_FOUND, path_verdict.refusal->reason, path_verdict.refusal->remedy};
    }
    // Above trust.level none the bytes are hashed each time, from the descriptor they are read from.
    SeenFiles* const memory = config_.trust_level == config::TrustLevel::kNone ? host_.seen : nullptr;
    const uint32_t abi_major = host_.abi_max >> 16;
    std::shared_ptr<const SeenFile> seen = memory ? memory->find(candidate.path, abi_major) : nullptr;
    FileContent content;
    if (!seen) content = read_content(candidate.path);
    if (!content.error.empty()) {
      return Refusal{Stage::kDiscover, ANYATTN_NOT_FOUND, fmt::format("the file {}", content.error),
                     "check what lies at this path"};
    }
    candidate.content = seen ? seen->content : content.hash;
    if (auto refusal = gate_.check(candidate)) return refusal;
    if (!seen) {
      if (const auto finding = inspect::inspect_plugin(content.bytes, abi_major)) {
        return Refusal{Stage::kInspect, ANYATTN_NOT_FOUND, fmt::format("the file {}", finding->reason), finding->remedy};
      }
      seen = std::make_shared<const SeenFile>(look_at(candidate.path, content, abi_major));
      if (memory && content.held_still) memory->keep(seen);
    }
    if (sidecar_refusal) return sidecar_refusal;
    // First: libraries of a file that this host cannot run are in nobody's way.
    if (auto refusal = check_host(candidate)) return refusal;
    if (auto refusal = check_needs(candidate, *seen)) return refusal;
    if (auto refusal = check_duplicate(candidate, {seen->facts.device, seen->facts.inode})) return refusal;
    keep_needed(candidate);
    if (!path_verdict.warnings.empty()) {
      found_.warnings.push_back(fmt::format("plugin {}: {}", candidate.path, fmt::join(path_verdict.warnings, "; ")));
    }
    return std::nullopt;
  }

  std::optional<Refusal> read_sidecar(Candidate& candidate) const {
    const std::string path = fs::path(candidate.path).replace_extension(".yaml").string();
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    try {
      candidate.sidecar = std::make_shared<const config::Sidecar>(config::read_sidecar(path));
    } catch (const config::ConfigError& mistake) {
      return Refusal{Stage::kDiscover, ANYATTN_INVALID_ARGUMENT, fmt::format("its sidecar is wrong: {}", mistake.what()),
                     "correct or remove the sidecar"};
    }
    candidate.id = candidate.sidecar->id;
    if (candidate.entry && !candidate.entry->id.empty() && candidate.entry->id != candidate.id) {
      return Refusal{
          Stage::kDiscover, ANYATTN_INVALID_ARGUMENT,
          fmt::format("{} names it {}, its sidecar says {}", candidate.entry->origin.text, candidate.entry->id, candidate.id),
          "correct id or file of the entry"};
    }
    if (!candidate.entry) candidate.entry = entry_by_id(candidate.id);
    return std::nullopt;
  }

  std::optional<config::PluginEntry> entry_by_id(const std::string& id) const {
    for (const config::PluginEntry& entry : config_.entries)
      if (entry.file.empty() && entry.id == id) return entry;
    return std::nullopt;
  }

  // The libraries it would be bound to, and the device code that its sidecar promises.
  std::optional<Refusal> check_needs(Candidate& candidate, const SeenFile& seen) {
    candidate.device_code = seen.device_code;
    if (auto refusal = check_device_code(candidate)) return refusal;
    needed_.clear();
    if (!host_.libraries) return std::nullopt;
    const inspect::Closure closure = host_.libraries->close_over(seen.needs(), candidate.path);
    if (closure.finding) {
      return Refusal{Stage::kInspect, ANYATTN_NOT_FOUND, fmt::format("the file {}", closure.finding->reason),
                     closure.finding->remedy};
    }
    if (!openmp_) openmp_.emplace(host_.libraries->loaded());
    if (const auto finding = openmp_->conflict(closure.libraries); finding && !is_same_plugin(candidate, openmp_->who())) {
      return Refusal{Stage::kInspect, ANYATTN_NOT_FOUND, fmt::format("the file {}", finding->reason), finding->remedy};
    }
    for (const inspect::Library& library : closure.libraries) {
      const auto first = library_by_name_.find(library.name);
      if (first != library_by_name_.end() && !is_same_plugin(candidate, first->second.second) &&
          !inspect::is_same_library(first->second.first, library.path)) {
        return Refusal{
            Stage::kInspect, ANYATTN_NOT_FOUND,
            fmt::format("the file needs {} from {}, but {} brings {} under that name, and a process holds one of them",
                        library.name, library.path, first->second.second, first->second.first),
            "give one of the two libraries a name of its own (SONAME), or let both plugins use one file"};
      }
      candidate.libraries.push_back(library.path);
      if (auto refusal = check_companion(candidate, library)) return refusal;
    }
    needed_ = closure.libraries;
    return std::nullopt;
  }

  // Of two files of one id only one is used: their libraries are not in each other's way.
  bool is_same_plugin(const Candidate& candidate, const std::string& path) const {
    const auto other = std::ranges::find(found_.candidates, path, &Candidate::path);
    return other != found_.candidates.end() && !candidate.id.empty() && other->id == candidate.id;
  }

  // What later files are compared with: the libraries of one that is used.
  void keep_needed(const Candidate& candidate) {
    if (openmp_) openmp_->take(needed_, candidate.path);
    for (const inspect::Library& library : needed_) library_by_name_.try_emplace(library.name, library.path, candidate.path);
    needed_.clear();
  }

  void forget_needed(const std::string& path) {
    if (openmp_) openmp_->forget(path);
    std::erase_if(library_by_name_, [&](const auto& known) { return known.second.second == path; });
  }

  // A library of its own lies below its folder. Copies take it along; above trust.level none a manifest must name it.
  std::optional<Refusal> check_companion(Candidate& candidate, const inspect::Library& library) const {
    const fs::path name = fs::path(library.path).lexically_relative(fs::path(candidate.path).parent_path());
    if (name.empty() || *name.begin() == ".." ||
        std::ranges::find(candidate.companions, library.path, &Companion::path) != candidate.companions.end())
      return std::nullopt;
    if (config_.trust_level != config::TrustLevel::kNone)
      return Refusal{Stage::kTrust, ANYATTN_NOT_FOUND, fmt::format("its library {} is named by no manifest", library.path),
                     "make a bundle of plugin and libraries (anyattn bundle build)"};
    candidate.companions.push_back({library.path, name.string(), read_content(library.path).hash});
    return std::nullopt;
  }

  std::optional<Refusal> check_device_code(const Candidate& candidate) {
    if (candidate.sidecar)
      if (auto refusal = check_promises(candidate, "sidecar", candidate.sidecar->architectures)) return refusal;
    const std::optional<Bundle>& bundle = gate_.bundle_of(fs::path(candidate.path).parent_path().string());
    return bundle ? check_promises(candidate, "manifest", bundle->manifest.target.architectures) : std::nullopt;
  }

  static std::optional<Refusal> check_promises(const Candidate& candidate, const char* who,
                                               const std::vector<std::string>& architectures) {
    for (const std::string& promised : architectures) {
      const bool is_gpu = promised.starts_with("sm_") || promised.starts_with("compute_") || promised.starts_with("gfx");
      // A plugin that compiles at run time holds no code for any device.
      if (!is_gpu || candidate.device_code.empty() || inspect::has_code_for(candidate.device_code, promised)) continue;
      return Refusal{Stage::kInspect, ANYATTN_INVALID_ARGUMENT,
                     fmt::format("its {} promises code for {}, the file holds code for {}", who, promised,
                                 fmt::join(candidate.device_code, ", ")),
                     "build the plugin for that architecture, or take it out of ARCHITECTURES"};
    }
    return std::nullopt;
  }

  // What the sidecar says of the host's version and processor.
  std::optional<Refusal> check_host(const Candidate& candidate) const {
    if (!candidate.sidecar) return std::nullopt;
    const config::Sidecar& sidecar = *candidate.sidecar;
    if (sidecar.abi_max < host_.abi_min || sidecar.abi_min > host_.abi_max) {
      return Refusal{Stage::kNegotiate, ANYATTN_ABI_MISMATCH,
                     fmt::format("its sidecar says ABI {} to {}, this host speaks {} to {}", abi_text(sidecar.abi_min),
                                 abi_text(sidecar.abi_max), abi_text(host_.abi_min), abi_text(host_.abi_max)),
                     sidecar.abi_max < host_.abi_min ? "update the plugin" : "update the host"};
    }
    if (!host_.cpu) return std::nullopt;
    std::vector<std::string_view> missing;
    for (const config::CpuIsaName& isa : config::kCpuIsas)
      if ((sidecar.needs_cpu & ~host_.cpu->isa & isa.bit) != 0) missing.push_back(isa.name);
    if (missing.empty()) return std::nullopt;
    return Refusal{Stage::kInspect, ANYATTN_UNSUPPORTED,
                   fmt::format("not supported by this CPU: it lacks {}", fmt::join(missing, ", ")),
                   "install the plugin's build for this processor"};
  }

  std::optional<Refusal> check_duplicate(const Candidate& candidate, std::pair<uint64_t, uint64_t> inode) {
    const auto same = [](const char* what, const std::string& first, const char* remedy) {
      return Refusal{Stage::kDiscover, ANYATTN_NOT_FOUND, fmt::format("{} {}, which comes first", what, first), remedy};
    };
    if (const auto first = path_by_inode_.find(inode); first != path_by_inode_.end()) {
      return same("is another name of the file", first->second, "nothing needs to be done; remove one of the two names");
    }
    if (const auto first = path_by_content_.find(candidate.content); first != path_by_content_.end()) {
      return same("is a copy of", first->second, "nothing needs to be done; remove one of the two copies");
    }
    if (!candidate.id.empty()) {
      if (const auto first = path_by_id_.find(candidate.id); first != path_by_id_.end() && !takes_place(candidate)) {
        return same(fmt::format("has the id {} of", candidate.id).c_str(), first->second,
                    "remove one of the two, or pin the wanted one by file in plugins.entries");
      }
      path_by_id_[candidate.id] = candidate.path;
    }
    path_by_inode_[inode] = candidate.path;
    path_by_content_[candidate.content] = candidate.path;
    return std::nullopt;
  }

  // Of two bundles of one id that both fit, the newer one is used; one that an entry names by file stays.
  bool takes_place(const Candidate& candidate) {
    const auto older = std::ranges::find(found_.candidates, candidate.id, &Candidate::id);
    if (older == found_.candidates.end() || older->version.empty() || pinned_.contains(older->path) ||
        config::compare_versions(candidate.version, older->version) <= 0)
      return false;
    found_.skips.push_back(
        Skip{older->id, older->path, Stage::kDiscover, ANYATTN_NOT_FOUND,
             fmt::format("version {} of it is older than version {} of {}", older->version, candidate.version, candidate.path),
             "nothing needs to be done; remove the older bundle, or pin a version in plugins.entries", false, older->sidecar});
    forget_needed(older->path);
    found_.candidates.erase(older);
    return true;
  }

  const config::Config& config_;
  const Host& host_;
  Found& found_;
  TrustGate gate_;
  std::map<std::string, std::string> origin_by_path_;                   // every file looked at
  std::set<std::string> pinned_;                                        // those of them that an entry names
  std::map<std::pair<uint64_t, uint64_t>, std::string> path_by_inode_;  // candidates only, here and below
  std::map<std::string, std::string> path_by_content_;
  std::map<std::string, std::string> path_by_id_;
  std::optional<inspect::OpenMpRuntime> openmp_;
  std::map<std::string, std::pair<std::string, std::string>> library_by_name_;  // its path, and the plugin that brings it
  std::vector<inspect::Library> needed_;  // of the file that is judged, until it is one that is used
};

// Entries that ask for an id only and that nothing answers: marks the skips that explain it as required, or adds one.
void settle_ids(const config::Config& config, Found& found) {
  for (const config::PluginEntry& entry : config.entries) {
    if (!entry.file.empty() || std::ranges::find(found.candidates, entry.id, &Candidate::id) != found.candidates.end())
      continue;
    bool is_explained = false;
    for (Skip& skip : found.skips) {
      if (skip.plugin != entry.id) continue;
      is_explained = true;
      skip.required |= entry.required;
    }
    if (is_explained) continue;
    Skip skip;
    skip.plugin = entry.id;
    skip.reason = fmt::format("{} names it, and no file of plugins.search ({}) has a sidecar with this id", entry.origin.text,
                              fmt::join(config.search, ", "));
    skip.remedy = "install the plugin with its sidecar, name its file in the entry, or correct the id";
    skip.required = entry.required;
    found.skips.push_back(std::move(skip));
  }
}

}  // namespace

Found discover(const config::Config& config, const Host& host) {
  Found found;
  Examiner examiner(config, host, found);
  for (const config::PluginEntry& entry : config.entries) {
    if (!entry.file.empty()) examiner.examine({entry.file, fmt::format("plugins.entries ({})", entry.origin.text), &entry});
  }
  for (const Located& located : list_folders(config, found.skips)) examiner.examine(located);
  settle_ids(config, found);
  return found;
}

Found discover_file(const config::PluginEntry& entry, const config::Config& config, const Host& host) {
  Found found;
  if (!fs::path(entry.file).is_absolute()) {
    found.skips.push_back(Skip{entry.id, entry.file, Stage::kDiscover, ANYATTN_INVALID_ARGUMENT, "the path is not absolute",
                               "give the absolute path of the file", entry.required, nullptr});
    return found;
  }
  Examiner(config, host, found).examine({entry.file, entry.origin.text, &entry});
  return found;
}

}  // namespace anyattn::discovery
