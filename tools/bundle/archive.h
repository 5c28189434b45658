// SPDX-License-Identifier: Apache-2.0
// A bundle as one file: a tar of plain files with names that no path can escape from, compressed with zstd.
// Included by the bundle verbs. Knows nothing of manifests.
#pragma once

#include <string>
#include <vector>

namespace anyattn::tools {

// Letters, digits and ._+- in parts parted by '/', none beginning with a dot.
bool is_plain_name(const std::string& name);

// Every regular file below the folder, relative and sorted.
std::vector<std::string> files_below(const std::string& folder);

// The same bytes for the same files, whenever and whoever packs them. Throws Failure.
void pack(const std::string& folder, const std::string& archive);

// Into an empty folder of ours. Throws Failure for anything but plain files with plain names, each once: links, special files,
// absolute names, "..", duplicates, more than 4,096 files or 16 GiB, a cut or foreign archive.
void unpack(const std::string& archive, const std::string& folder);

}  // namespace anyattn::tools
