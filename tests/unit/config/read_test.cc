// SPDX-License-Identifier: Apache-2.0
// Mistakes in a configuration file: where, what was given, what is allowed, what was meant.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/read.h"
#include "config/schema.h"
#include "unit/config/config_fixture.h"

using anyattn::config::Config;
using anyattn::test::holds;
using anyattn::test::load_text;
using anyattn::test::options_for;
using anyattn::test::refusal;
using anyattn::test::TempDir;

namespace {

struct Mistake {
  std::string text;
  std::string place;               // LINE:COLUMN: PATH:
  std::vector<std::string> parts;  // of the sentence
};

void check_mistakes(const std::vector<Mistake>& mistakes) {
  const TempDir folder;
  for (const Mistake& mistake : mistakes) {
    const std::string said = refusal([&] { load_text(folder, mistake.text); });
    CAPTURE(mistake.text);
    CAPTURE(said);
    CHECK(said.rfind((folder / "config.yaml") + ":" + mistake.place, 0) == 0);
    for (const std::string& part : mistake.parts) CHECK(holds(said, part));
    for (const char* internal : {"std::", "YAML::", "bad conversion", "exception", "YamlNode"})
      CHECK_FALSE(holds(said, internal));
  }
}

}  // namespace

TEST_CASE("config_names_the_key_that_an_unknown_one_was_meant_to_be") {
  check_mistakes({
      {"selection: {backnd: CPU_ATTN}\n",
       "1:13: selection.backnd: ",
       {"unknown key", "did you mean backend?", "allowed here: backend, rules, order, allow_fallback"}},
      {"selection:\n  allow-fallback: [cpu]\n", "2:3: selection.allow-fallback: ", {"write allow_fallback"}},
      {"selection:\n  Backend: CPU_ATTN\n", "2:3: selection.Backend: ", {"write backend"}},
      {"selection:\n  \"backend \": CPU_ATTN\n", "2:3: selection.\"backend \": ", {"write backend"}},
      {"version: 1\nbackend: CPU_ATTN\n", "2:1: backend: ", {"backend belongs to the section selection"}},
      {"search: [plugins]\n", "1:1: search: ", {"search belongs to the section plugins"}},
      {"level: info\n", "1:1: level: ", {"level belongs to the section trust"}},
      {"log_level: info\n", "1:1: log_level: ", {"level belongs to the section log"}},
      {"log.level: info\n", "1:1: \"log.level\": ", {"level belongs to the section log"}},
      {"selection: {cpu: [CPU_ATTN]}\n", "1:13: selection.cpu: ", {"cpu belongs to the section selection.order"}},
      {"selection:\n  probe: {enabled: true}\n", "2:3: selection.probe: ", {"probe belongs to the top level"}},
      {"plugins:\n  entries:\n    - {id: a.b}\n    - {id: c.d, requird: true}\n",
       "4:17: plugins.entries[1].requird: ",
       {"did you mean required?"}},
      {"plugins: {id: a.b}\n", "1:11: plugins.id: ", {"id belongs to the section plugins.entries[]"}},
      {"plugins:\n  entries: [{id: a.b, isa: avx2}]\n",
       "2:23: plugins.entries[0].isa: ",
       {"unknown key; allowed here: id, file, required, hash, version, key, options"}},
      {"plugins:\n  serach: [x]\n", "2:3: plugins.serach: ", {"did you mean search?"}},
      {"zebra: 1\n", "1:1: zebra: ", {"unknown key; allowed here: version, plugins, registry, selection, trust, probe, log"}},
      {"<<: {version: 1}\n", "1:1: \"<<\": ", {"unknown key"}},
      {"selection:\n  order: {gpu: [CPU_ATTN]}\n", "2:11: selection.order.gpu: ", {"allowed here: cuda, hip, cpu"}},
  });
}

TEST_CASE("config_says_in_plain_words_what_was_given_and_what_is_wanted") {
  check_mistakes({
      {"selection: FLASH_ATTN\n",
       "1:12: selection: ",
       {"got the text \"FLASH_ATTN\"", "wanted: a mapping with the keys backend", "as in {backend: CPU_ATTN}"}},
      {"selection: 3\n", "1:12: selection: ", {"got the number 3", "wanted: a mapping"}},
      {"selection: [a, b]\n", "1:12: selection: ", {"got a list", "wanted: a mapping"}},
      {"probe: {timeout_ms: {value: 16}}\n",
       "1:21: probe.timeout_ms: ",
       {"got a mapping", "wanted: an integer from 1 to 3600000"}},
      {"probe: {timeout_ms: 1e3}\n", "1:21: probe.timeout_ms: ", {"got the text \"1e3\"", "decimal digits"}},
      {"probe: {timeout_ms: 0x10}\n", "1:21: probe.timeout_ms: ", {"decimal digits"}},
      {"probe: {timeout_ms: 1_000}\n", "1:21: probe.timeout_ms: ", {"decimal digits"}},
      {"probe: {timeout_ms: \"10\"}\n", "1:21: probe.timeout_ms: ", {"got the text \"10\""}},
      {"probe: {timeout_ms: 0}\n", "1:21: probe.timeout_ms: ", {"got the number 0", "from 1 to"}},
      {"probe: {timeout_ms: -5}\n", "1:21: probe.timeout_ms: ", {"got the number -5"}},
      {"probe: {timeout_ms: 99999999999999999999}\n", "1:21: probe.timeout_ms: ", {"from 1 to 3600000"}},
      {"probe: {timeout_ms: true}\n", "1:21: probe.timeout_ms: ", {"got the boolean true"}},
      {"probe:\n  enabled: yes\n", "2:12: probe.enabled: ", {"got the text \"yes\"", "wanted: true or false"}},
      {"probe:\n  enabled: True\n", "2:12: probe.enabled: ", {"wanted: true or false"}},
      {"probe:\n  enabled: 1\n", "2:12: probe.enabled: ", {"got the number 1", "wanted: true or false"}},
      {"probe:\n  enabled: \"true\"\n", "2:12: probe.enabled: ", {"got the text \"true\"", "wanted: true or false"}},
      {"probe:\n  enabled: \"\"\n", "2:12: probe.enabled: ", {"got the text \"\""}},
      {"selection: {backend: false}\n", "1:22: selection.backend: ", {"got the boolean false", "wanted: a backend's name"}},
      {"selection: {backend: \"\"}\n", "1:22: selection.backend: ", {"got the text \"\"", "allowed: a backend's name"}},
      {"selection: {backend: cpu-attn}\n", "1:22: selection.backend: ", {"capital letters, digits and underscores"}},
      {"selection: {allow_fallback: cpu}\n",
       "1:29: selection.allow_fallback: ",
       {"got the text \"cpu\"", "wanted: a list, as in [cpu]"}},
      {"selection: {allow_fallback: [gpu]}\n",
       "1:30: selection.allow_fallback[0]: ",
       {"got the text \"gpu\"", "allowed: cpu, cuda, hip"}},
      {"selection: {allow_fallback: [cpu, hip, cpu]}\n", "1:40: selection.allow_fallback[2]: ", {"listed twice"}},
      {"selection: {order: {cpu: [A, A]}}\n", "1:30: selection.order.cpu[1]: ", {"\"A\" is listed twice"}},
      {"selection: {order: {cpu: [A, null]}}\n", "1:30: selection.order.cpu[1]: ", {"got null"}},
      {"log: {level: verbose}\n", "1:14: log.level: ", {"allowed: debug, info, warning, error, off"}},
      {"log: {level: warn}\n", "1:14: log.level: ", {"allowed: debug, info, warning, error, off"}},
      {"log: {level: inof}\n", "1:14: log.level: ", {"did you mean info?"}},
      {"trust: {level: sha}\n", "1:16: trust.level: ", {"allowed: none, hash, signed"}},
      {"registry: {override: {FLASH_ATTN: 5 x}}\n",
       "1:35: registry.override.FLASH_ATTN: ",
       {"a plugin id of words joined by dots"}},
      {"registry: {override: {flash: a.b}}\n", "1:23: registry.override.flash: ", {"got the key \"flash\"", "capital letters"}},
      {"registry: {override: {A: null}}\n", "1:23: registry.override.A: ", {"got null; give a value or leave the key out"}},
      {"plugins: {search: plugins}\n", "1:19: plugins.search: ", {"got the text \"plugins\"", "as in [plugins]"}},
      {"plugins: {search: [\"\"]}\n", "1:20: plugins.search[0]: ", {"a text that is not empty"}},
      {"plugins: {search: [a, ./a/]}\n", "1:23: plugins.search[1]: ", {"listed twice"}},
      {"plugins: {search: [~/x]}\n", "1:20: plugins.search[0]: ", {"~ is not expanded"}},
      {"plugins: {entries: {id: a.b}}\n", "1:20: plugins.entries: ", {"got a mapping", "wanted: a list"}},
      {"plugins: {entries: [a.b]}\n",
       "1:21: plugins.entries[0]: ",
       {"got the text \"a.b\"", "as in {id: org.anyattn.cpu, required: true}"}},
      {"plugins: {entries: [{file: a.so}]}\n", "1:21: plugins.entries[0].id: ", {"is missing"}},
      {"plugins: {entries: [{id: null}]}\n", "1:22: plugins.entries[0].id: ", {"got null"}},
      {"plugins: {entries: [{id: a..b}]}\n", "1:26: plugins.entries[0].id: ", {"words joined by dots"}},
      {"plugins:\n  entries:\n    - {id: a.b}\n    - {id: a.b}\n",
       "4:12: plugins.entries[1].id: ",
       {"a.b has an entry already", ":3"}},
      {"plugins: {entries: [{id: a.b, file: x.so}, {id: c.d, file: ./x.so}]}\n",
       "1:60: plugins.entries[1].file: ",
       {"is named already by a.b"}},
      {"plugins: {entries: [{id: a.b, options: {isa: [a]}}]}\n",
       "1:46: plugins.entries[0].options.isa: ",
       {"got a list", "one value"}},
      {"selection: {rules: [{backend: A}]}\n",
       "1:21: selection.rules[0].when: ",
       {"is missing", "as in {kv_lora_rank: 512, device: cpu}"}},
      {"selection: {rules: [{when: {}, backend: A}]}\n", "1:28: selection.rules[0].when: ", {"at least one key"}},
      {"selection: {rules: [{when: {head_size: 64}}]}\n", "1:21: selection.rules[0].backend: ", {"is missing"}},
      {"selection: {rules: [{when: {head_size: {min: 1}}, backend: A}]}\n",
       "1:40: selection.rules[0].when.head_size: ",
       {"got a mapping"}},
      {"- version: 1\n", "1:1: ", {"the file holds a list; a configuration is a mapping"}},
      {"just words\n", "1:1: ", {"the file holds the text \"just words\""}},
      {"version: 0\n", "1:10: version: ", {"got the number 0"}},
      {"version: 1.0\n", "1:10: version: ", {"got the number 1.0"}},
      {"version: 2\nnew_key: 1\n", "1:10: version: ", {"written for version 2", "knows versions up to 1"}},
  });
}

TEST_CASE("config_refuses_a_file_without_content") {
  const TempDir folder;
  for (const char* text : {"", "\n\n", "# nothing\n", "---\n", "null\n"})
    CHECK(holds(refusal([&] { load_text(folder, text); }),
                "config.yaml: the file is empty; a configuration begins with version: 1"));
}

TEST_CASE("config_checks_rule_fields_against_the_names_it_is_given") {
  const TempDir folder;
  auto options = options_for(folder.write("c.yaml", "selection:\n  rules:\n    - {when: {head_sise: 64}, backend: A}\n"));
  CHECK(anyattn::config::load(options).rules[0].when[0].key == "head_sise");
  options.rule_fields = {"device", "head_size", "head_size_v"};
  const std::string said = refusal([&] { anyattn::config::load(options); });
  CHECK(holds(
      said,
      "c.yaml:3:15: selection.rules[0].when.head_sise: got the key \"head_sise\"; allowed: device, head_size, head_size_v"));
  CHECK(holds(said, "did you mean head_size?"));
}

TEST_CASE("config_keeps_the_meaning_of_values") {
  const TempDir folder;
  const Config config = load_text(folder, R"(
version: 1
plugins:
  search: [../lib, /opt//acme/./attn/]
  entries:
    - id: com.acme.attn
      file: ../x/acme.so
      required: true
      options: {isa: auto, debug: false, level: 010, release: 1.10, empty: "", tile: 0}
registry:
  override: {FLASH_ATTN: com.acme.attn}
selection:
  backend: CPU_ATTN
  rules:
    - when: {kv_lora_rank: 512, device: cpu, sinks: true}
      backend: CPU_MLA
    - {when: {head_size: 010}, backend: B}
  order: {cpu: [B_ATTN], hip: []}
  allow_fallback: [cpu]
trust: {level: hash, keys: [a.pub]}
probe: {enabled: false, timeout_ms: 010, cache: v}
log: {level: off}
)");
  const std::string parent = std::filesystem::path((folder / "")).parent_path().parent_path().string();
  CHECK(config.search == std::vector<std::string>{parent + "/lib", "/opt/acme/attn"});
  REQUIRE(config.entries.size() == 1);
  CHECK(config.entries[0].id == "com.acme.attn");
  CHECK(config.entries[0].file == parent + "/x/acme.so");
  CHECK(config.entries[0].required);
  CHECK(config.entries[0].origin.text == config.file + ":6");
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto& option : config.entries[0].options) options.emplace_back(option.key, option.value);
  CHECK(options ==
        std::vector<std::pair<std::string, std::string>>{
            {"isa", "auto"}, {"debug", "false"}, {"level", "010"}, {"release", "1.10"}, {"empty", ""}, {"tile", "0"}});
  CHECK(config.entries[0].options[1].origin.text == config.file + ":9");
  CHECK(config.override_owner.at("FLASH_ATTN") == "com.acme.attn");
  CHECK(config.backend == "CPU_ATTN");
  CHECK(config.backend_origin.text == config.file + ":13");
  REQUIRE(config.rules.size() == 2);
  CHECK(config.rules[0].when.size() == 3);
  CHECK(config.rules[0].when[2].key == "sinks");
  CHECK(config.rules[0].when[2].value == "true");
  CHECK(config.rules[0].origin.text == config.file + ":15");
  CHECK(config.rules[1].when[0].value == "010");
  CHECK(config.order.at("cpu") == std::vector<std::string>{"B_ATTN"});
  CHECK(config.order.at("hip").empty());
  CHECK(config.order.at("cuda").size() == 4);
  CHECK(config.allow_fallback == std::vector<std::string>{"cpu"});
  CHECK(config.trust_level == anyattn::config::TrustLevel::kHash);
  CHECK(config.trust_keys == std::vector<std::string>{"a.pub"});
  CHECK_FALSE(config.probe_enabled);
  CHECK(config.probe_cache == std::filesystem::path((folder / "")).parent_path().string() + "/v");
  CHECK(config.probe_timeout_ms == 10);
  CHECK(config.log_level == "off");
}

TEST_CASE("config_renamed_and_removed_keys_say_what_to_do") {
  using namespace anyattn::config;
  FileSchema schema{
      .what = "a test file",
      .version = {.key = "version", .known = 3},
      .root = {.type = Schema::Type::kMapping,
               .fields = fields({{"version", {.type = Schema::Type::kInteger}, "", "3"},
                                 {"workers", {.type = Schema::Type::kInteger}, "", "1"}}),
               .moved = {{"threads", "workers", "the host's threads are meant"}, {"affinity", "", "the host places threads"}}}};
  const auto said = [&](const std::string& text) {
    return refusal([&] {
      Document document = parse_yaml(text, "f.yaml");
      check(document, schema);
    });
  };
  CHECK(said("threads: 4\n") == "f.yaml:1:1: threads: the key was renamed: write workers (the host's threads are meant)");
  CHECK(said("workers: 4\nthreads: 4\n") ==
        "f.yaml:2:1: threads: the key is the old name of workers, which is given too; keep workers only");
  CHECK(said("affinity: all\n") == "f.yaml:1:1: affinity: the key was removed: the host places threads; delete it");
  CHECK(holds(said("version: 4\naffinity: all\n"), "f.yaml:1:10: version: the file is written for version 4 of a test file"));
  CHECK(said("version: 2\nworkers: 4\n").empty());
}
