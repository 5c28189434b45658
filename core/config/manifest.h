// SPDX-License-Identifier: Apache-2.0
// manifest.yaml of a bundle: what it is, for which machines, and the hash of every file in it.
// Included by discovery and the API. Reads and writes the text; compares nothing with the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyattn::config {

struct Manifest {
  struct File {
    std::string path;  // relative, '/' between parts, no "." or ".." among them
    std::string hash;  // 64 hex digits: BLAKE2b-256
  };
  struct Target {
    std::string machine;                     // x86-64, aarch64
    uint64_t needs_cpu = 0;                  // ANYATTN_CPU_* bits
    std::string accelerator = "none";        // none, cuda, hip
    std::vector<std::string> architectures;  // of device code: sm_90a, gfx942
    uint32_t driver = 0;                     // lowest, as its vendor counts; 0: any
    std::string glibc;                       // lowest: 2.34
  };
  std::string id, version, vendor, license;
  std::vector<std::string> plugins;  // paths among files
  Target target;
  std::vector<File> files;  // by path; all of the bundle but manifest.yaml and manifest.sig

  const File* find(std::string_view path) const;
};

// Throws ConfigError with `path`, line and what is allowed.
Manifest parse_manifest(std::string_view text, const std::string& path);
std::string write_manifest(const Manifest& manifest);

// May a file of a bundle be called so? Relative, of parts in [A-Za-z0-9._+-] that do not begin with a dot, at most 200 bytes.
bool is_bundle_path(std::string_view path);

// Negative, 0, positive: numbers between dots by value, the rest as text. "1.10" is above "1.9".
int compare_versions(std::string_view a, std::string_view b);
// ">=1.2 <2", "==1.4.0": all must hold. Throws std::invalid_argument with what is allowed.
bool version_in_range(std::string_view version, std::string_view range);

}  // namespace anyattn::config
