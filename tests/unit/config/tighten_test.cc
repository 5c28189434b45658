// SPDX-License-Identifier: Apache-2.0
// What a reload may change of the security settings.
#include <doctest/doctest.h>

#include "config/tighten.h"

using anyattn::config::Config;
using anyattn::config::loosened;
using anyattn::config::TrustLevel;

namespace {

Config config(TrustLevel level, std::vector<std::string> keys = {}, bool probes = true) {
  Config made;
  made.file = "/etc/anyattn.yaml";
  made.trust_level = level;
  made.trust_keys = std::move(keys);
  made.probe_enabled = probes;
  return made;
}

}  // namespace

TEST_CASE("security_settings_only_tighten_at_run_time") {
  struct Row {
    Config running, next;
    const char* said;  // "" allowed
  };
  const TrustLevel none = TrustLevel::kNone, hash = TrustLevel::kHash, is_signed = TrustLevel::kSigned;
  const Row rows[] = {
      {config(none), config(is_signed, {"a.pub"}), ""},
      {config(none), config(none, {"a.pub"}), ""},
      {config(hash), config(hash), ""},
      {config(is_signed, {"a.pub", "b.pub"}), config(is_signed, {"b.pub"}), ""},
      {config(none, {}, false), config(none, {}, true), ""},
      {config(none, {}, false), config(none, {}, false), ""},
      {config(is_signed), config(hash), "trust.level is hash, this process runs with signed"},
      {config(hash), config(none), "trust.level is none, this process runs with hash"},
      {config(none), config(none, {}, false), "probe.enabled is false, this process runs with true"},
      {config(is_signed, {"a.pub"}), config(is_signed, {"a.pub", "b.pub"}),
       "trust.keys names b.pub, which this process does not trust"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.said);
    const std::string text = loosened(row.running, row.next);
    const std::string said = row.said;
    CHECK(text ==
          (said.empty() ? "" : "/etc/anyattn.yaml: " + said + "; a reload only tightens: restart the process to loosen it"));
  }
}
