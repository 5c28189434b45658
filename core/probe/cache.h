// SPDX-License-Identifier: Apache-2.0
// Verdicts kept between processes: one small file each, named by its key, written whole and renamed into place.
// Included by the prober and the API. Decides nothing; a folder that cannot be used keeps nothing, and nobody is the worse for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "probe/verdict.h"

namespace anyattn::probe {

class VerdictCache {
 public:
  // Absolute; empty: nothing is kept. Made when first written to, for this user alone.
  explicit VerdictCache(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::optional<Verdict> find(const std::string& key) const;
  // The folder holds this many at most; the oldest go first, and are only tried anew.
  static constexpr size_t kMostKept = 512;
  // Answers what is in the way, empty where it is kept.
  std::string keep(const std::string& key, const Verdict& verdict) const;

  struct Kept {
    std::string key;
    Verdict verdict;
  };
  std::vector<Kept> all() const;  // sorted by path of the plugin, then time
  void forget(const std::string& key) const;

 private:
  void drop_oldest() const;
  bool is_ours() const;  // of this user, writable by nobody else

  std::string folder_;
};

}  // namespace anyattn::probe
