// SPDX-License-Identifier: Apache-2.0
// Mistakes in rules that would otherwise be a rule that never matches.
#include <doctest/doctest.h>

#include "selector/selector.h"

using anyattn::config::Config;
using anyattn::config::Rule;
using anyattn::selector::check_policy;

namespace {

Config with_rule(const std::string& key, const std::string& value, const std::string& backend = "CPU_ATTN") {
  Config config;
  Rule rule;
  rule.when.push_back({key, value, {"anyattn.yaml:12"}});
  rule.backend = backend;
  rule.origin.text = "anyattn.yaml:11";
  config.rules.push_back(rule);
  return config;
}

}  // namespace

TEST_CASE("rules_that_can_match_pass") {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, const char*>>{{"kv_lora_rank", "512"},
                                                                                             {"device", "cpu"},
                                                                                             {"window", "true"},
                                                                                             {"attention_type", "decoder"},
                                                                                             {"kv_cache_dtype", "fp8_ds_mla"},
                                                                                             {"logits_soft_cap", "50.0"},
                                                                                             {"graph_level", "never"}})
    CHECK(check_policy(with_rule(key, value)) == "");
  CHECK(check_policy(Config{}) == "");
}

TEST_CASE("rules_that_could_never_match_are_refused_with_file_and_line") {
  CHECK(check_policy(with_rule("head_sise", "128")) ==
        "anyattn.yaml:12: selection.rules.when: head_sise is neither a field nor a feature of the problem; nearest: head_size");
  CHECK(check_policy(with_rule("phase", "decoding")) ==
        "anyattn.yaml:12: selection.rules.when: phase decoding: allowed: both | prefill | decode");
  CHECK(check_policy(with_rule("sinks", "1")) == "anyattn.yaml:12: selection.rules.when: sinks 1: allowed: true | false");
  CHECK(check_policy(with_rule("device", "gpu")) ==
        "anyattn.yaml:12: selection.rules.when: device gpu: allowed: cpu | cuda | hip");
  CHECK(check_policy(with_rule("head_size", "128", "")) == "anyattn.yaml:11: selection.rules: backend is empty: give a name");
}
