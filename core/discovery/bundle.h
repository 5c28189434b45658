// SPDX-License-Identifier: Apache-2.0
// The bundle a plugin file lies in: its manifest, whether its signature is trusted, whether it is for this machine.
// Included by discovery and the API. Reads files; opens nothing as code.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "anyattn/host.h"
#include "config/manifest.h"
#include "inspect/finding.h"
#include "trust/keys.h"

namespace anyattn::discovery {

inline constexpr std::string_view kManifestName = "manifest.yaml";
inline constexpr std::string_view kSignatureName = "manifest.sig";  // 64 raw bytes over manifest.yaml

struct TrustedKey {
  std::string id;
  std::string path;
  trust::PublicKey key;
};

// Public keys in PEM files. `mistakes`: a sentence for each that cannot be read or that others may write to.
std::vector<TrustedKey> read_keys(const std::vector<std::string>& paths, std::vector<std::string>& mistakes);

struct Bundle {
  std::string folder;
  config::Manifest manifest;
  std::string hash;                        // of manifest.yaml: names the whole bundle
  std::string signed_by;                   // id of the trusted key that signed it; empty: none did
  std::string unsigned_why;                // where signed_by is empty: a sentence part
  std::optional<inspect::Finding> unfit;   // not for this machine, and why
  std::optional<inspect::Finding> broken;  // nothing above may be relied on
};

// Nothing where the folder holds no manifest. system_root: before /sys and /proc, where the drivers' versions are read.
std::optional<Bundle> read_bundle(const std::string& folder, const std::vector<TrustedKey>& keys, const anyattn_cpu_facts* cpu,
                                  const std::string& system_root = {});

// Is the file of the bundle called `name` what the manifest says? `hash`: of what lies there.
std::optional<inspect::Finding> check_file(const Bundle& bundle, std::string_view name, const std::string& hash);

// Every file below the folder, relative and sorted, manifest and signature left out. A link, a special file or a name that no
// bundle may have is a finding.
std::vector<std::string> list_files(const std::string& folder, std::optional<inspect::Finding>& finding);

}  // namespace anyattn::discovery
