// SPDX-License-Identifier: Apache-2.0
#include "discovery/trust_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "config/sidecar.h"
#include "discovery/content.h"

namespace anyattn::discovery {
namespace {

namespace fs = std::filesystem;

// A manifest that says other than the sidecar lies, whichever is right.
std::optional<Refusal> check_manifest(const Candidate& candidate, const Bundle& bundle) {
  if (!candidate.sidecar) return std::nullopt;
  const config::Sidecar& sidecar = *candidate.sidecar;
  const auto differs = [&](const char* what, const std::string& said, const std::string& found) {
    return Refusal{Stage::kTrust, ANYATTN_INVALID_ARGUMENT,
                   fmt::format("manifest and sidecar disagree on {}: the manifest says {}, the sidecar {}", what, said, found),
                   "build the bundle again with anyattn bundle build"};
  };
  const FileContent content = read_content(sidecar.path);
  if (const auto finding = check_file(bundle, fs::path(sidecar.path).filename().string(), content.hash))
    return Refusal{Stage::kTrust, ANYATTN_NOT_FOUND, finding->reason, finding->remedy};
  if (sidecar.id != bundle.manifest.id) return differs("the id", bundle.manifest.id, sidecar.id);
  if (sidecar.version != bundle.manifest.version) return differs("the version", bundle.manifest.version, sidecar.version);
  if ((sidecar.needs_cpu & ~bundle.manifest.target.needs_cpu) != 0) return differs("needs_cpu", "less", "more");
  return std::nullopt;
}

std::optional<Refusal> check_pins(const Candidate& candidate, const std::string& bundle_hash) {
  if (!candidate.entry) return std::nullopt;
  const config::PluginEntry& entry = *candidate.entry;
  const auto refuse = [&](std::string reason) {
    return Refusal{Stage::kTrust, ANYATTN_NOT_FOUND, fmt::format("{} ({})", reason, entry.origin.text),
                   "install what the entry pins, or correct the entry"};
  };
  if (!entry.hash.empty() && entry.hash != candidate.content && entry.hash != bundle_hash)
    return refuse(fmt::format("its hash is {}{}, the entry pins {}", candidate.content,
                              bundle_hash.empty() ? "" : " in the bundle " + bundle_hash, entry.hash));
  const std::string version = !candidate.version.empty() ? candidate.version
                              : candidate.sidecar        ? candidate.sidecar->version
                                                         : "";
  if (!entry.version.empty() && (version.empty() || !config::version_in_range(version, entry.version)))
    return refuse(fmt::format("its version is {}, the entry pins {}", version.empty() ? "unknown" : version, entry.version));
  if (!entry.key.empty() && entry.key != candidate.signed_by)
    return refuse(fmt::format("it is signed by {}, the entry pins the key {}",
                              candidate.signed_by.empty() ? "nobody" : candidate.signed_by, entry.key));
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> TrustGate::check(Candidate& candidate) {
  const auto refuse = [](const inspect::Finding& finding, int32_t status = ANYATTN_NOT_FOUND) {
    return Refusal{Stage::kTrust, status, finding.reason, finding.remedy};
  };
  const fs::path path = candidate.path;
  const std::optional<Bundle>& bundle = bundle_of(path.parent_path().string());
  const config::TrustLevel level = config_.trust_level;
  candidate.must_be_copied = level != config::TrustLevel::kNone;
  if (bundle) {
    if (bundle->broken) return refuse(*bundle->broken);
    const std::string name = path.filename().string();
    if (const auto finding = check_file(*bundle, name, candidate.content)) return refuse(*finding);
    if (auto refusal = check_manifest(candidate, *bundle)) return refusal;
    if (bundle->unfit) return Refusal{Stage::kInspect, ANYATTN_UNSUPPORTED, bundle->unfit->reason, bundle->unfit->remedy};
    candidate.version = bundle->manifest.version;
    candidate.signed_by = bundle->signed_by;
    const std::vector<std::string>& plugins = bundle->manifest.plugins;
    // Libraries, and what else the plugin finds beside itself.
    for (const config::Manifest::File& file : bundle->manifest.files)
      if (std::ranges::find(plugins, file.path) == plugins.end())
        candidate.companions.push_back({bundle->folder + "/" + file.path, file.path, file.hash});
  }
  if (auto refusal = check_pins(candidate, bundle ? bundle->hash : "")) return refusal;
  if (level == config::TrustLevel::kSigned && candidate.signed_by.empty()) {
    const std::string why = bundle ? bundle->unsigned_why : "it lies in no bundle";
    return refuse({fmt::format("trust.level is signed, and {}", why),
                   bundle ? "have it signed, name the right public key in trust.keys, or lower trust.level"
                          : "install it as a signed bundle (anyattn bundle install), or lower trust.level"});
  }
  if (level == config::TrustLevel::kHash && (!candidate.entry || candidate.entry->hash.empty())) {
    return refuse(
        {"trust.level is hash, and no entry of plugins.entries pins its content",
         fmt::format("add `hash: {}` to its entry, or lower trust.level", bundle ? bundle->hash : candidate.content)});
  }
  return std::nullopt;
}

const std::optional<Bundle>& TrustGate::bundle_of(const std::string& folder) {
  const auto [known, is_new] = bundle_by_folder_.try_emplace(folder);
  if (!is_new) return known->second;
  if (!has_keys_) {
    has_keys_ = true;
    std::vector<std::string> paths;
    for (const std::string& key : config_.trust_keys)
      paths.push_back((fs::path(config_.file).parent_path() / key).lexically_normal().string());
    keys_ = read_keys(paths, warnings_);
  }
  known->second = read_bundle(folder, keys_, cpu_);
  return known->second;
}

}  // namespace anyattn::discovery
