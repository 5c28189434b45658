// SPDX-License-Identifier: Apache-2.0
#include "discovery/bundle_contents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "config/config.h"
#include "config/names.h"
#include "config/sidecar.h"
#include "discovery/content.h"
#include "inspect/device_code.h"
#include "inspect/plugin_rules.h"

namespace anyattn::discovery {
namespace {

namespace fs = std::filesystem;
using inspect::Finding;

bool is_plugin(const std::string& name) {
  return name.find('/') == std::string::npos && name.starts_with("anyattn_") && name.ends_with(".so");
}

std::string sidecar_name(const std::string& plugin) { return fs::path(plugin).replace_extension(".yaml").string(); }

// The highest GLIBC_2.34 that a file needs of the C library; empty where it is no ELF file or needs none.
std::string glibc_floor(const std::vector<std::byte>& bytes) {
  constexpr std::string_view kSet = "GLIBC_";
  std::string floor;
  inspect::ElfFile file;
  if (inspect::read_elf(bytes, file)) return floor;
  for (const inspect::SymbolVersion& version : file.needed_versions) {
    if (!version.name.starts_with(kSet) || version.name == "GLIBC_PRIVATE") continue;
    const std::string number(version.name.substr(kSet.size()));
    if (floor.empty() || config::compare_versions(number, floor) > 0) floor = number;
  }
  return floor;
}

std::string higher(const std::string& a, const std::string& b) { return config::compare_versions(a, b) >= 0 ? a : b; }

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

void add_plugin(config::Manifest& manifest, const std::string& folder, const std::string& name) {
  const std::string path = (fs::path(folder) / sidecar_name(name)).string();
  std::error_code error;
  if (!fs::exists(path, error))
    fail(fmt::format("{} has no sidecar {}: anyattn_add_plugin writes it", name, sidecar_name(name)));
  const config::Sidecar sidecar = config::read_sidecar(path);
  if (!manifest.id.empty() && (manifest.id != sidecar.id || manifest.version != sidecar.version))
    fail(fmt::format("{} is {} {}, another plugin of the folder is {} {}: a bundle holds one id and version", name, sidecar.id,
                     sidecar.version, manifest.id, manifest.version));
  manifest.id = sidecar.id;
  manifest.version = sidecar.version;
  manifest.vendor = sidecar.vendor;
  manifest.license = sidecar.license;
  manifest.plugins.push_back(name);
  manifest.target.needs_cpu |= sidecar.needs_cpu;
  for (const std::string& architecture : sidecar.architectures)
    if (std::ranges::find(manifest.target.architectures, architecture) == manifest.target.architectures.end())
      manifest.target.architectures.push_back(architecture);
  for (const config::Sidecar::Backend& backend : sidecar.backends) {
    if (backend.device_kind == ANYATTN_DEVICE_CPU) continue;
    const std::string kind(config::device_kind_name(backend.device_kind));
    if (manifest.target.accelerator != "none" && manifest.target.accelerator != kind)
      fail(fmt::format("{} is for {} devices, another plugin of the folder for {}: make a bundle for each", name, kind,
                       manifest.target.accelerator));
    manifest.target.accelerator = kind;
  }
}

// The binary's own words against the manifest's.
std::optional<Finding> check_plugin(const Bundle& bundle, const std::string& name, const std::vector<std::byte>& bytes) {
  const auto lies = [&](const std::string& what) {
    return Finding{fmt::format("the manifest of {} is wrong about {}: {}", bundle.folder, name, what),
                   "build the bundle again with anyattn bundle build"};
  };
  const config::Manifest& manifest = bundle.manifest;
  if (const auto finding = inspect::inspect_plugin(bytes))
    return Finding{fmt::format("{} {}", name, finding->reason), finding->remedy};
  const std::set<std::string> code = inspect::device_code(bytes);
  for (const std::string& architecture : manifest.target.architectures)
    if (!code.empty() && !inspect::has_code_for(code, architecture))
      return lies(fmt::format("it says {}, the file holds code for {}", architecture, fmt::join(code, ", ")));
  if (!manifest.find(sidecar_name(name))) return lies(fmt::format("{} is not listed", sidecar_name(name)));
  const config::Sidecar sidecar = config::read_sidecar((fs::path(bundle.folder) / sidecar_name(name)).string());
  if (sidecar.id != manifest.id) return lies(fmt::format("it says id {}, the sidecar {}", manifest.id, sidecar.id));
  if (sidecar.version != manifest.version)
    return lies(fmt::format("it says version {}, the sidecar {}", manifest.version, sidecar.version));
  if ((sidecar.needs_cpu & ~manifest.target.needs_cpu) != 0) return lies("it says less of needs_cpu than the sidecar");
  return std::nullopt;
}

}  // namespace

config::Manifest describe_folder(const std::string& folder, uint32_t driver) {
  config::Manifest manifest;
  std::optional<Finding> finding;
  const std::vector<std::string> files = list_files(folder, finding);
  if (finding) fail(fmt::format("{}; {}", finding->reason, finding->remedy));
  manifest.target.machine = inspect::machine_name(inspect::this_machine());
  manifest.target.driver = driver;
  manifest.target.glibc = "2.0";
  for (const std::string& name : files) {
    const FileContent content = read_content((fs::path(folder) / name).string());
    if (!content.error.empty()) fail(fmt::format("the file {} {}", name, content.error));
    manifest.files.push_back({name, content.hash});
    manifest.target.glibc = higher(manifest.target.glibc, glibc_floor(content.bytes));
    if (!is_plugin(name)) continue;
    if (const auto wrong = inspect::inspect_plugin(content.bytes))
      fail(fmt::format("{} {}; {}", name, wrong->reason, wrong->remedy));
    add_plugin(manifest, folder, name);
  }
  if (manifest.plugins.empty()) fail(fmt::format("{} holds no anyattn_*.so", folder));
  return manifest;
}

std::optional<Finding> check_contents(const Bundle& bundle) {
  if (bundle.broken) return bundle.broken;
  std::optional<Finding> finding;
  const std::vector<std::string> files = list_files(bundle.folder, finding);
  if (finding) return Finding{fmt::format("the bundle {}: {}", bundle.folder, finding->reason), finding->remedy};
  for (const config::Manifest::File& file : bundle.manifest.files)
    if (!std::ranges::binary_search(files, file.path))
      return Finding{fmt::format("the bundle {} lacks {}, which its manifest lists", bundle.folder, file.path),
                     "install the bundle again"};
  for (const std::string& name : files) {
    const FileContent content = read_content((fs::path(bundle.folder) / name).string());
    if (!content.error.empty()) return Finding{fmt::format("the file {} {}", name, content.error), "install the bundle again"};
    if (auto wrong = check_file(bundle, name, content.hash)) return wrong;
    const std::string floor = glibc_floor(content.bytes);
    if (!floor.empty() && config::compare_versions(floor, bundle.manifest.target.glibc) > 0)
      return Finding{fmt::format("the manifest of {} is wrong about {}: it says glibc {}, the file needs {}", bundle.folder,
                                 name, bundle.manifest.target.glibc, floor),
                     "build the bundle again with anyattn bundle build"};
    const bool is_listed = std::ranges::find(bundle.manifest.plugins, name) != bundle.manifest.plugins.end();
    if (!is_listed) continue;
    if (auto wrong = check_plugin(bundle, name, content.bytes)) return wrong;
  }
  return std::nullopt;
}

}  // namespace anyattn::discovery
