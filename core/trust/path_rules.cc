// SPDX-License-Identifier: Apache-2.0
#include "trust/path_rules.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace anyattn::trust {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos || path == "/") return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<Refusal> refuse(const std::string& path, const PathFacts& facts, uid_t user) {
  const bool is_folder = S_ISDIR(facts.mode);
  const char* what = is_folder ? "folder" : "file";
  if (facts.owner != 0 && facts.owner != user) {
    return Refusal{fmt::format("the {} {} belongs to user {}, neither root nor the user of this process ({})", what, path,
                               facts.owner, user),
                   fmt::format("chown {} to root or to user {}, or install the plugin elsewhere", path, user)};
  }
  if ((facts.mode & S_IWOTH) != 0 && !(is_folder && (facts.mode & S_ISVTX) != 0)) {
    return Refusal{fmt::format("the {} {} is writable by every user (mode {:04o})", what, path, facts.mode & 07777u),
                   fmt::format("chmod o-w {}", path)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<PathFacts> stat_path(const std::string& path) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0) return std::nullopt;
  return PathFacts{facts.st_uid, facts.st_mode};
}

PathVerdict check_path(const std::string& canonical, config::TrustLevel level, uid_t user, const StatPath& stat) {
  PathVerdict verdict;
  for (std::string path = canonical; !path.empty(); path = parent_of(path)) {
    const std::optional<PathFacts> facts = stat(path);
    if (!facts) {
      verdict.refusal = Refusal{fmt::format("owner and permissions of {} cannot be read", path), "check that the path exists"};
      return verdict;
    }
    verdict.refusal = refuse(path, *facts, user);
    if (verdict.refusal) return verdict;
    if ((facts->mode & S_IWGRP) == 0 || (S_ISDIR(facts->mode) && (facts->mode & S_ISVTX) != 0)) continue;
    const std::string sentence = fmt::format("{} is writable by its group (mode {:04o})", path, facts->mode & 07777u);
    if (level != config::TrustLevel::kNone) {
      verdict.refusal = Refusal{sentence + ", which trust.level above none forbids", fmt::format("chmod g-w {}", path)};
      return verdict;
    }
    verdict.warnings.push_back(sentence);
  }
  return verdict;
}

}  // namespace anyattn::trust
