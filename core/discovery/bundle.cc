// SPDX-License-Identifier: Apache-2.0
#include "discovery/bundle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <system_error>

#include "config/config.h"
#include "config/names.h"
#include "discovery/content.h"
#include "inspect/elf.h"
#include "trust/path_rules.h"

namespace anyattn::discovery {
namespace {

namespace fs = std::filesystem;
using inspect::Finding;

constexpr const char* kAskVendor = "ask whoever made the bundle for one that is right";

// The version of a device kind's kernel driver without starting it; empty: there is none.
std::string driver_version(const std::string& accelerator, const std::string& system_root) {
  std::ifstream file(system_root + (accelerator == "cuda" ? "/sys/module/nvidia/version" : "/sys/module/amdgpu/version"));
  std::string version;
  std::getline(file, version);
  std::error_code error;
  if (version.empty() &&
      fs::exists(system_root + (accelerator == "cuda" ? "/proc/driver/nvidia" : "/sys/module/amdgpu"), error))
    return "unknown";
  return version;
}

std::optional<Finding> check_target(const config::Manifest::Target& target, const anyattn_cpu_facts* cpu,
                                    const std::string& system_root) {
  const std::string machine = inspect::machine_name(inspect::this_machine());
  if (target.machine != machine)
    return Finding{fmt::format("its bundle is for {}, this machine is {}", target.machine, machine),
                   fmt::format("install the bundle for {}", machine)};
  if (config::compare_versions(target.glibc, gnu_get_libc_version()) > 0)
    return Finding{fmt::format("its bundle needs glibc {}, this machine has {}", target.glibc, gnu_get_libc_version()),
                   "install the bundle for older systems, or update this one"};
  std::vector<std::string_view> missing;
  for (const config::CpuIsaName& isa : config::kCpuIsas)
    if (cpu && (target.needs_cpu & ~cpu->isa & isa.bit) != 0) missing.push_back(isa.name);
  if (!missing.empty())
    return Finding{fmt::format("its bundle needs a processor with {}", fmt::join(missing, ", ")),
                   "install the bundle for this processor"};
  if (target.accelerator == "none") return std::nullopt;
  const std::string driver = driver_version(target.accelerator, system_root);
  if (driver.empty())
    return Finding{fmt::format("its bundle is for {} devices, and this machine has no driver for them", target.accelerator),
                   "install the driver, or the bundle for this machine"};
  if (target.driver != 0 && driver != "unknown" && config::compare_versions(std::to_string(target.driver), driver) > 0)
    return Finding{fmt::format("its bundle needs driver {}, this machine has {}", target.driver, driver), "update the driver"};
  return std::nullopt;
}

void check_signature(Bundle& bundle, const std::vector<std::byte>& manifest, const std::vector<TrustedKey>& keys) {
  const fs::path path = fs::path(bundle.folder) / kSignatureName;
  std::error_code error;
  if (!fs::exists(path, error)) {
    bundle.unsigned_why = "it has no signature";
    return;
  }
  const FileContent content = read_content(path.string());
  trust::Signature signature{};
  if (!content.error.empty() || content.bytes.size() != signature.size()) {
    bundle.unsigned_why = fmt::format("its signature {} is not {} bytes of Ed25519", path.string(), signature.size());
    return;
  }
  std::memcpy(signature.data(), content.bytes.data(), signature.size());
  for (const TrustedKey& key : keys) {
    if (!trust::verifies(manifest, signature, key.key)) continue;
    bundle.signed_by = key.id;
    return;
  }
  std::vector<std::string> ids;
  for (const TrustedKey& key : keys) ids.push_back(key.id);
  bundle.unsigned_why = ids.empty() ? "no key is trusted (trust.keys is empty)"
                                    : fmt::format("its signature is of none of the trusted keys ({})", fmt::join(ids, ", "));
}

}  // namespace

std::vector<TrustedKey> read_keys(const std::vector<std::string>& paths, std::vector<std::string>& mistakes) {
  std::vector<TrustedKey> keys;
  for (const std::string& named : paths) {
    std::error_code error;
    const std::string path = fs::canonical(named, error).string();
    if (error) {
      mistakes.push_back(fmt::format("trust.keys: {}: {}", named, error.message()));
      continue;
    }
    // Who may write to a key decides what is trusted.
    const trust::PathVerdict verdict = trust::check_path(path, config::TrustLevel::kSigned, ::geteuid());
    if (verdict.refusal) {
      mistakes.push_back(fmt::format("trust.keys: {}: {}; {}", path, verdict.refusal->reason, verdict.refusal->remedy));
      continue;
    }
    const FileContent content = read_content(path);
    try {
      if (!content.error.empty()) throw std::runtime_error(content.error);
      const std::string_view pem(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
      const trust::PublicKey key = trust::read_public_key(pem);
      keys.push_back({trust::key_id(key), path, key});
    } catch (const std::runtime_error& mistake) {
      mistakes.push_back(
          fmt::format("trust.keys: {} {}; name a public key as 'anyattn key new' writes it", path, mistake.what()));
    }
  }
  return keys;
}

std::optional<Bundle> read_bundle(const std::string& folder, const std::vector<TrustedKey>& keys, const anyattn_cpu_facts* cpu,
                                  const std::string& system_root) {
  const fs::path path = fs::path(folder) / kManifestName;
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  Bundle bundle;
  bundle.folder = folder;
  const FileContent content = read_content(path.string());
  if (!content.error.empty()) {
    bundle.broken = Finding{fmt::format("the manifest {} {}", path.string(), content.error), kAskVendor};
    return bundle;
  }
  bundle.hash = content.hash;
  // The signature first: a manifest that nobody vouches for is still read, but by a strict reader with limits.
  check_signature(bundle, content.bytes, keys);
  try {
    bundle.manifest =
        config::parse_manifest({reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()}, path.string());
  } catch (const config::ConfigError& mistake) {
    bundle.broken = Finding{fmt::format("its manifest is wrong: {}", mistake.what()), kAskVendor};
    return bundle;
  }
  bundle.unfit = check_target(bundle.manifest.target, cpu, system_root);
  return bundle;
}

std::optional<Finding> check_file(const Bundle& bundle, std::string_view name, const std::string& hash) {
  const config::Manifest::File* file = bundle.manifest.find(name);
  if (!file)
    return Finding{fmt::format("the manifest of {} does not list {}", bundle.folder, name),
                   "install the bundle again; nothing may be added to it"};
  if (file->hash == hash) return std::nullopt;
  return Finding{fmt::format("{} of the bundle {} is not what its manifest says: hash {}, wanted {}", name, bundle.folder, hash,
                             file->hash),
                 "install the bundle again"};
}

std::vector<std::string> list_files(const std::string& folder, std::optional<Finding>& finding) {
  std::vector<std::string> files;
  std::error_code error;
  const auto note = [&](std::string reason) {
    if (!finding) finding = Finding{std::move(reason), "take it out of the bundle"};
  };
  for (fs::recursive_directory_iterator entry(folder, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    const fs::file_status status = entry->symlink_status();
    const std::string name = entry->path().lexically_relative(folder).string();
    if (fs::is_directory(status)) continue;
    if (name == kManifestName || name == kSignatureName) continue;
    if (!fs::is_regular_file(status)) {
      note(fmt::format("{} is a link or no regular file", name));
    } else if (!config::is_bundle_path(name)) {
      note(fmt::format("{} is no name for a file of a bundle (allowed: letters, digits and ._+-, no leading dot)", name));
    } else {
      files.push_back(name);
    }
  }
  if (error) note(fmt::format("the folder {} cannot be read: {}", folder, error.message()));
  std::ranges::sort(files);
  return files;
}

}  // namespace anyattn::discovery
