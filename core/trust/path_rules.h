// SPDX-License-Identifier: Apache-2.0
// Who could replace this file? Owner and write permission of the file and of every folder above it.
// Included by discovery. Says nothing about content: hashes and signatures are rules of their own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace anyattn::trust {

struct PathFacts {
  uid_t owner = 0;
  mode_t mode = 0;  // file type and permission bits
};
// Of one path, links not followed; nothing where it cannot be read.
using StatPath = std::function<std::optional<PathFacts>(const std::string& path)>;

std::optional<PathFacts> stat_path(const std::string& path);

struct Refusal {
  std::string reason;  // names the path it is about
  std::string remedy;  // an instruction
};

struct PathVerdict {
  std::optional<Refusal> refusal;
  std::vector<std::string> warnings;  // a sentence each
};

// `canonical`: absolute, without links. `user`: whom the process runs as. Refused: the file, or a folder above it without the
// sticky bit, is writable by others; or one of them is owned by neither root nor the user. Writable by a group: a warning at
// level none, refused above.
PathVerdict check_path(const std::string& canonical, config::TrustLevel level, uid_t user, const StatPath& stat = stat_path);

}  // namespace anyattn::trust
