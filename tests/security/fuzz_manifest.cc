// SPDX-License-Identifier: Apache-2.0
// Any bytes as the manifest of a bundle: what is taken names only files below the bundle, and is what it writes again.
#include <algorithm>

#include "config/manifest.h"
#include "security/read_yaml_text.h"

namespace anyattn::fuzzing {
namespace {

// Said again by other means than the reader's own.
bool stays_below(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.front() != '.' && path.back() != '/' &&
         path.find("/.") == std::string_view::npos && path.find("//") == std::string_view::npos;
}

}  // namespace

void run_manifest(const uint8_t* data, size_t size) {
  const std::string_view text = text_of_bytes(data, size);
  expect_answer([&] {
    const config::Manifest manifest = config::parse_manifest(text, kFile);
    for (const config::Manifest::File& file : manifest.files)
      require(stays_below(file.path) && file.hash.size() == 64, "a path stays below the bundle and has a hash");
    for (const std::string& plugin : manifest.plugins) require(manifest.find(plugin) != nullptr, "a plugin is among the files");
    require(config::compare_versions(manifest.version, manifest.version) == 0, "a version equals itself");
    const config::Manifest::Target& target = manifest.target;
    const bool is_plain = std::ranges::all_of(manifest.vendor + manifest.license + manifest.version + target.glibc,
                                              [](char c) { return c >= ' ' && c <= '~'; });
    if (!is_plain || !target.architectures.empty()) return;  // not what `anyattn bundle build` writes
    const config::Manifest again = config::parse_manifest(config::write_manifest(manifest), kFile);
    require(again.id == manifest.id && again.version == manifest.version && again.files.size() == manifest.files.size(),
            "a manifest that was written reads as it was");
  });
}

}  // namespace anyattn::fuzzing
