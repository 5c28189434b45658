// SPDX-License-Identifier: Apache-2.0
#include "trust/path_rules.h"

#include <sys/stat.h>

#include <map>

#include "unit/loading/fakes.h"

namespace {

using anyattn::config::TrustLevel;
using anyattn::trust::check_path;
using anyattn::trust::PathFacts;
using anyattn::trust::PathVerdict;

constexpr uid_t kUser = 1000;
const std::string kFile = "/opt/acme/plugins/anyattn_x.so";

// A tree in which everything is root's and nobody else's, with some paths changed.
PathVerdict check(const std::map<std::string, PathFacts>& changed, TrustLevel level = TrustLevel::kNone) {
  return check_path(kFile, level, kUser, [&](const std::string& path) -> std::optional<PathFacts> {
    if (const auto found = changed.find(path); found != changed.end()) {
      if (found->second.mode == 0) return std::nullopt;
      return found->second;
    }
    return path == kFile ? PathFacts{0, S_IFREG | 0644} : PathFacts{0, S_IFDIR | 0755};
  });
}

}  // namespace

TEST_CASE("path_of_root_and_of_the_user_is_trusted") {
  for (const uid_t owner : {uid_t{0}, kUser}) {
    const PathVerdict verdict = check({{kFile, {owner, S_IFREG | 0755}}, {"/opt/acme", {owner, S_IFDIR | 0700}}});
    CHECK_FALSE(verdict.refusal.has_value());
    CHECK(verdict.warnings.empty());
  }
}

TEST_CASE("path_rules_refuse_with_path_rule_and_remedy") {
  struct Row {
    const char* what;
    std::map<std::string, PathFacts> changed;
    TrustLevel level;
    std::vector<std::string> reason;
    std::string remedy;
  };
  const std::vector<Row> rows = {
      {"file writable by all",
       {{kFile, {0, S_IFREG | 0666}}},
       TrustLevel::kNone,
       {"the file " + kFile, "writable by every user", "0666"},
       "chmod o-w " + kFile},
      {"parent writable by all",
       {{"/opt/acme/plugins", {0, S_IFDIR | 0777}}},
       TrustLevel::kNone,
       {"the folder /opt/acme/plugins", "writable by every user", "0777"},
       "chmod o-w /opt/acme/plugins"},
      {"grandparent writable by all",
       {{"/opt", {0, S_IFDIR | 0757}}},
       TrustLevel::kNone,
       {"the folder /opt is", "writable by every user"},
       "chmod o-w /opt"},
      {"root writable by all", {{"/", {0, S_IFDIR | 0777}}}, TrustLevel::kNone, {"the folder / is"}, "chmod o-w /"},
      {"stranger's file",
       {{kFile, {1234, S_IFREG | 0644}}},
       TrustLevel::kNone,
       {"the file " + kFile, "user 1234", "neither root nor", "1000"},
       "chown " + kFile},
      {"stranger's folder",
       {{"/opt/acme", {1234, S_IFDIR | 0755}}},
       TrustLevel::kNone,
       {"the folder /opt/acme belongs to user 1234"},
       "chown /opt/acme"},
      {"group may write, hash wanted",
       {{kFile, {0, S_IFREG | 0664}}},
       TrustLevel::kHash,
       {kFile, "writable by its group", "0664", "trust.level"},
       "chmod g-w " + kFile},
      {"group may write a folder, signature wanted",
       {{"/opt", {0, S_IFDIR | 0775}}},
       TrustLevel::kSigned,
       {"/opt is writable by its group"},
       "chmod g-w /opt"},
      {"vanished", {{"/opt/acme", {0, 0}}}, TrustLevel::kNone, {"/opt/acme cannot be read"}, "exists"},
      // The sticky bit keeps others from replacing what lies in a folder; on a file it means nothing.
      {"sticky file", {{kFile, {0, S_IFREG | S_ISVTX | 0666}}}, TrustLevel::kNone, {"writable by every user"}, "chmod o-w"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const PathVerdict verdict = check(row.changed, row.level);
    REQUIRE(verdict.refusal.has_value());
    fakes::check_parts(verdict.refusal->reason, row.reason);
    fakes::check_parts(verdict.refusal->remedy, {row.remedy});
  }
}

TEST_CASE("sticky_folder_is_trusted_though_others_may_write") {
  const PathVerdict verdict = check({{"/opt/acme", {0, S_IFDIR | S_ISVTX | 0777}}}, TrustLevel::kHash);
  CHECK_FALSE(verdict.refusal.has_value());
  CHECK(verdict.warnings.empty());
}

TEST_CASE("group_writable_warns_at_level_none") {
  const PathVerdict verdict = check({{kFile, {0, S_IFREG | 0664}}, {"/opt", {kUser, S_IFDIR | 0775}}});
  CHECK_FALSE(verdict.refusal.has_value());
  REQUIRE(verdict.warnings.size() == 2);
  fakes::check_parts(verdict.warnings[0], {kFile, "group", "0664"});
  fakes::check_parts(verdict.warnings[1], {"/opt", "group", "0775"});
}

TEST_CASE("real_file_made_writable_for_all_is_refused_by_discovery") {
  fakes::TempFolder folder;
  const auto path = folder.add("good");
  CHECK(fakes::discover(fakes::config_of({folder.path()})).candidates.size() == 1);
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  const auto found = fakes::discover(fakes::config_of({folder.path()}));
  CHECK(found.candidates.empty());
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].plugin == "org.anyattn.fake.good");
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {"org.anyattn.fake.good", path.string(), "trust", "writable by every user", "chmod o-w"});
}
