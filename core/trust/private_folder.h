// SPDX-License-Identifier: Apache-2.0
// Folders that only this user may write to, and files in them that no reader ever sees a part of. Included by discovery and the
// loader. Knows nothing of what is kept there.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

namespace anyattn::trust {

// A folder (no link) of this user that nobody else may write to.
bool is_private_folder(const std::string& folder);

// Makes it with mode 0700, and the folders above it where they are missing. Answers what is in the way ("FOLDER: No space left on
// device", "FOLDER is not this user's alone"), empty where it is there and private.
std::string make_private_folder(const std::string& folder);

// Written whole under another name in the same folder, then renamed. Answers what is in the way; then nothing is left behind.
std::string write_private_file(const std::string& path, std::span<const std::byte> bytes, mode_t mode);

}  // namespace anyattn::trust
