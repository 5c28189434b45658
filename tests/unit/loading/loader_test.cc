// SPDX-License-Identifier: Apache-2.0
#include "loader/loader.h"

#include "anyattn/util.h"
#include "fake_plugins/counters.h"
#include "loader/call.h"
#include "loader/store.h"
#include "unit/loading/fakes.h"

namespace {

namespace fs = std::filesystem;

using anyattn::discovery::Skip;
using anyattn::discovery::Stage;
using anyattn::loader::AbiRange;
using anyattn::loader::Loader;
using anyattn::loader::Opened;

constexpr AbiRange kOlderHost{ANYATTN_ABI_VERSION(0, 1), ANYATTN_ABI_VERSION(0, 1)};
constexpr AbiRange kNewerHost{ANYATTN_ABI_VERSION(0, 1), ANYATTN_ABI_VERSION(0, 7)};
constexpr AbiRange kHostAfterBreak{ANYATTN_ABI_VERSION(0, 6), ANYATTN_ABI_VERSION(0, 7)};

Opened open(const std::string& name, AbiRange range = {}, const std::vector<anyattn::config::Option>& options = {}) {
  fakes::TestHost host;
  return Loader(host.services(), range).open(fakes::candidate(name, options));
}

Skip failure_of(const std::string& name, AbiRange range = {}) {
  const Opened opened = open(name, range);
  CHECK_FALSE(opened.plugin);
  REQUIRE(opened.failure.has_value());
  return *opened.failure;
}

}  // namespace

TEST_CASE("a_good_plugin_opens_with_copies_of_its_tables") {
  fakes::TestHost host;
  Loader loader(host.services());
  const Opened opened = loader.open(fakes::candidate("good", {fakes::option("in", "nowhere")}));
  REQUIRE(opened.plugin);
  CHECK_FALSE(opened.failure.has_value());
  const auto& plugin = *opened.plugin;
  CHECK(plugin.id == "org.anyattn.fake.good");
  CHECK(plugin.version == "1.10");
  CHECK(plugin.path == fakes::file("good").string());
  CHECK(plugin.abi_version == ANYATTN_ABI_VERSION(0, 1));
  REQUIRE(plugin.backends.size() == 1);
  CHECK(plugin.backends[0].name == "FAKE_GOOD");
  CHECK(plugin.backends[0].device_kind == ANYATTN_DEVICE_CPU);
  CHECK_FALSE(plugin.backends[0].is_mla);
  CHECK(static_cast<bool>(plugin.backends[0].table.forward));
  CHECK(static_cast<bool>(plugin.backends[0].table.update_block_table));
  CHECK(plugin.options.size() == 3);
  REQUIRE(plugin.host());
  CHECK(plugin.host()->num_options == 1);
  CHECK(std::string(plugin.host()->options[0].value) == "nowhere");
  CHECK(plugin.host()->cpu == &fakes::cpu_facts());
  plugin.host()->log(plugin.host()->context, ANYATTN_LOG_INFO, "hello");
  REQUIRE(host.lines().size() == 1);
  CHECK(host.lines()[0] == "org.anyattn.fake.good: hello");
}

TEST_CASE("abi_2_version_ranges_are_negotiated") {
  struct Row {
    const char* name;
    AbiRange range;
    uint32_t minor;
  };
  const std::vector<Row> rows = {
      {"good", kOlderHost, 1},        {"good", kNewerHost, 1},        {"older_minor", kNewerHost, 1},
      {"newer_minor", kOlderHost, 1},  // negotiates down to what this host knows
      {"newer_minor", kNewerHost, 2}, {"range_above", kNewerHost, 7}, {"range_above", kHostAfterBreak, 7},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    CAPTURE(row.range.max);
    const Opened opened = open(row.name, row.range);
    if (opened.failure) FAIL_CHECK(anyattn::discovery::text(*opened.failure));
    REQUIRE(opened.plugin);
    CHECK(opened.plugin->abi_version == ANYATTN_ABI_VERSION(0, row.minor));
    CHECK(opened.plugin->host()->abi_version == ANYATTN_ABI_VERSION(0, row.minor));
  }
}

TEST_CASE("version_ranges_that_do_not_meet_are_told_with_the_side_to_update") {
  const Skip newer = failure_of("range_above", kOlderHost);
  CHECK(newer.stage == Stage::kNegotiate);
  CHECK(newer.status == ANYATTN_ABI_MISMATCH);
  fakes::check_parts(anyattn::discovery::text(newer),
                     {fakes::file("range_above").string(), "negotiate", "ABI 0.5 to 0.9", "this host 0.1 to 0.1",
                      "the fake speaks 0.5 to 0.9", "update the host"});
  const Skip older = failure_of("good", kHostAfterBreak);
  fakes::check_parts(anyattn::discovery::text(older),
                     {"org.anyattn.fake.good", "negotiate", "ABI 0.1 to 0.1", "this host 0.6 to 0.7", "update the plugin"});
  const Skip alone = failure_of("chooses_alone", kOlderHost);
  CHECK(alone.status == ANYATTN_ABI_MISMATCH);
  fakes::check_parts(anyattn::discovery::text(alone),
                     {"it chose ABI 0.2", "the plugin's 0.1 to 0.2", "this host's 0.1 to 0.1"});
}

TEST_CASE("tables_of_another_minor_are_read_through_their_size") {
  const Opened older = open("older_minor");
  REQUIRE(older.plugin);
  const anyattn_backend& short_table = older.plugin->backends[0].table;
  CHECK(static_cast<bool>(short_table.merge_states));
  CHECK_FALSE(
      static_cast<bool>(short_table.update_block_table));  // behind the plugin's struct_size, though its memory holds one
  CHECK(short_table.struct_size == ANYATTN_END_OFFSET(anyattn_backend, merge_states));
  const Opened newer = open("newer_minor");
  REQUIRE(newer.plugin);
  CHECK(newer.plugin->backends[0].table.struct_size == sizeof(anyattn_backend));
  CHECK(static_cast<bool>(newer.plugin->backends[0].table.update_block_table));
}

TEST_CASE("every_wrong_plugin_is_refused_with_path_stage_reason_and_remedy") {
  struct Row {
    const char* name;
    Stage stage;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"short_plugin",
       Stage::kNegotiate,
       {"its anyattn_plugin is too short", "struct_size " + std::to_string(ANYATTN_END_OFFSET(anyattn_plugin, license)),
        "needed at least " + std::to_string(ANYATTN_END_OFFSET(anyattn_plugin, options)), "rebuild the plugin"}},
      {"short_backend",
       Stage::kNegotiate,
       {"anyattn_backend", "is too short", "struct_size " + std::to_string(ANYATTN_END_OFFSET(anyattn_backend, impl_create)),
        "needed at least " + std::to_string(ANYATTN_END_OFFSET(anyattn_backend, forward))}},
      {"null_slot", Stage::kNegotiate, {"FAKE_NULL_SLOT", "lacks the required metadata_update", "ABI-11"}},
      {"null_slot_mla", Stage::kNegotiate, {"FAKE_NULL_SLOT_MLA", "lacks the required context_gather"}},
      {"null_table", Stage::kNegotiate, {"answers OK without a table", "vendor"}},
      {"entry_fails", Stage::kNegotiate, {"status 6", "the fake does not like this host"}},
      {"bad_backend_name", Stage::kNegotiate, {"'fake-attn'", "[A-Z][A-Z0-9_]*"}},
      {"bad_id", Stage::kNegotiate, {"its id 'fake'", "reverse domain name"}},
      {"missing_library",
       Stage::kOpen,
       {"the library libfake_absent.so.0 is missing", "the plugin", "install libfake_absent.so.0",
        fakes::folder("missing_library").string() + "/lib"}},
      {"wrong_id",
       Stage::kRegister,
       {"disagree on the id", "the sidecar says org.anyattn.fake.someone_else", "the plugin org.anyattn.fake.wrong_id",
        "anyattn_wrong_id.yaml"}},
      {"wrong_backends",
       Stage::kRegister,
       {"disagree on the backends", "the sidecar says FAKE_PROMISED:cpu, FAKE_WRONG_BACKENDS:cpu",
        "the plugin FAKE_WRONG_BACKENDS:cpu"}},
      {"wrong_range", Stage::kRegister, {"disagree on the ABI range", "the sidecar says 0.1 to 0.2", "the plugin 0.1 to 0.1"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Skip skip = failure_of(row.name);
    CHECK(skip.stage == row.stage);
    CHECK(skip.status != ANYATTN_OK);
    CHECK_FALSE(skip.remedy.empty());
    std::vector<std::string> parts = row.parts;
    parts.push_back(fakes::file(row.name).string());
    parts.emplace_back(anyattn::discovery::stage_name(row.stage));
    fakes::check_parts(anyattn::discovery::text(skip), parts);
  }
}

TEST_CASE("abi_4_undefined_symbol_is_named") {
  const Skip skip = failure_of("undefined_symbol");
  CHECK(skip.stage == Stage::kOpen);
  CHECK(skip.status == ANYATTN_ABI_MISMATCH);
  fakes::check_parts(anyattn::discovery::text(skip), {fakes::file("undefined_symbol").string(), "open",
                                                      "the symbol anyattn_fake_nobody_has_this is undefined", "anyattn_host"});
  CHECK_FALSE(fakes::is_mapped(fakes::file("undefined_symbol")));
}

TEST_CASE("option_that_the_plugin_does_not_read_is_told_with_line_and_nearest") {
  fakes::TestHost host;
  Loader loader(host.services());
  const Opened opened = loader.open(fakes::candidate("good", {fakes::option("wat", "int")}));
  REQUIRE(opened.failure.has_value());
  CHECK(opened.failure->stage == Stage::kRegister);
  CHECK(opened.failure->status == ANYATTN_INVALID_ARGUMENT);
  fakes::check_parts(anyattn::discovery::text(*opened.failure), {"/etc/anyattn.yaml:9", "sets the option wat",
                                                                 "did you mean what?", "the plugin reads: counters, in, what"});
}

TEST_CASE("failure_says_whether_the_configuration_insists") {
  fakes::TestHost host;
  Loader loader(host.services());
  auto candidate = fakes::candidate("null_table");
  CHECK_FALSE(loader.open(candidate).failure->required);
  candidate.entry->required = true;
  CHECK(loader.open(candidate).failure->required);
}

TEST_CASE("abi_5_a_file_is_opened_once") {
  FakeCounters counters;
  const std::vector<anyattn::config::Option> options = {fakes::option("counters", counters.option_text())};
  fakes::TestHost host;
  fakes::TempFolder folder;
  folder.add("other");
  anyattn::discovery::Candidate copy = fakes::discover(fakes::config_of({folder.path()})).candidates.at(0);
  {
    Loader loader(host.services());
    const Opened first = loader.open(fakes::candidate("other", options));
    REQUIRE(first.plugin);
    CHECK(loader.open(fakes::candidate("other", options)).plugin == first.plugin);
    CHECK(loader.open(copy).plugin == first.plugin);  // the same content under another name
    CHECK_FALSE(fakes::is_mapped(copy.path));
    CHECK(counters.entries == 1);
    CHECK(counters.constructions == 1);

    // Another runtime has a plugin of its own, with its own options, over the same file.
    Loader second(host.services());
    const Opened again = second.open(fakes::candidate("other", options));
    REQUIRE(again.plugin);
    CHECK(again.plugin != first.plugin);
    CHECK(again.plugin->host() != first.plugin->host());
    CHECK(counters.entries == 2);
    CHECK(counters.constructions == 1);
  }
  CHECK(counters.shutdowns == 1);
  CHECK(fakes::is_mapped(fakes::file("other")));  // never unloaded
}

TEST_CASE("shutdown_comes_once_a_process_when_the_last_plugin_goes") {
  FakeCounters counters;
  const std::vector<anyattn::config::Option> options = {fakes::option("counters", counters.option_text())};
  fakes::TestHost host;
  auto first = std::make_unique<Loader>(host.services());
  auto second = std::make_unique<Loader>(host.services());
  REQUIRE(first->open(fakes::candidate("lse_base2", options)).plugin);
  auto held = second->open(fakes::candidate("lse_base2", options)).plugin;
  first.reset();
  CHECK(counters.shutdowns == 0);
  second.reset();
  CHECK(counters.shutdowns == 0);  // an impl may still hold it
  held.reset();
  CHECK(counters.shutdowns == 1);
  Loader(host.services()).open(fakes::candidate("lse_base2", options));
  CHECK(counters.shutdowns == 1);
}

TEST_CASE("two_plugins_of_one_id_are_told_apart_by_their_paths") {
  fakes::TestHost host;
  Loader loader(host.services());
  REQUIRE(loader.open(fakes::candidate("good")).plugin);
  const Opened second = loader.open(fakes::candidate("duplicate_id_no_sidecar"));
  REQUIRE(second.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*second.failure),
                     {fakes::file("duplicate_id_no_sidecar").string(), "register", "its id org.anyattn.fake.good",
                      fakes::file("good").string(), "opened first"});
}

TEST_CASE("file_that_changed_after_it_was_listed_is_not_opened") {
  fakes::TestHost host;
  Loader loader(host.services());
  fakes::TempFolder folder;
  const auto path = folder.add("noop");
  const auto listed = fakes::discover(fakes::config_of({folder.path()})).candidates.at(0);
  const std::string bytes = fakes::read_file(path);
  fakes::write_file(path, bytes.substr(0, fakes::kCutBytes));  // opening this would end the process
  const Opened opened = loader.open(listed);
  REQUIRE(opened.failure.has_value());
  fakes::check_parts(anyattn::discovery::text(*opened.failure), {path.string(), "open", "changed after it was listed"});
  CHECK_FALSE(fakes::is_mapped(path));
}

TEST_CASE("what_lies_beside_a_replaced_file_is_found_beside_its_copy") {
  fakes::TestHost host;
  fakes::TempFolder folder;
  const fs::path path = folder.add("version_one", "plugins");
  const fs::path data = path.parent_path() / "data/table", store = folder.path() / "copies";
  fs::create_directory(data.parent_path());
  fakes::write_file(data, "7");
  const auto listed = [&] { return fakes::discover(fakes::config_of({path.parent_path()})).candidates.at(0); };
  const auto open = [&] {
    Loader loader(host.services());
    loader.copy_into(store.string(), 8);
    const Opened opened = loader.open(listed());
    if (opened.failure) FAIL(anyattn::discovery::text(*opened.failure));
    return fs::path(opened.plugin->path);
  };
  CHECK(open() == path);
  fs::copy_file(fakes::file("version_two"), folder.path() / "incoming");
  fs::rename(folder.path() / "incoming", path);
  const fs::path copy = open();
  CHECK(copy.parent_path().parent_path() == store);
  CHECK(fakes::read_file(copy.parent_path() / "data/table") == "7");
  CHECK(fakes::read_file(copy) == fakes::read_file(path));
  // What nobody vouched for is not beside a copy that trust asks for.
  auto pinned = listed();
  pinned.must_be_copied = true;
  const fs::path vouched = anyattn::loader::put_copy(store.string(), pinned);
  CHECK(fakes::read_file(vouched) == fakes::read_file(path));
  CHECK_FALSE(fs::exists(vouched.parent_path() / "data"));
}

TEST_CASE("failed_plugin_keeps_its_text_and_leaves_its_id_free") {
  fakes::TestHost host;
  Loader loader(host.services());
  const std::string first = anyattn::discovery::text(*loader.open(fakes::candidate("entry_fails")).failure);
  const std::string again = anyattn::discovery::text(*loader.open(fakes::candidate("entry_fails")).failure);
  CHECK(first == again);
  // The fixed copy of the plugin that failed.
  const Opened wrong = loader.open(fakes::candidate("good", {fakes::option("wrong", "1")}));
  REQUIRE(wrong.failure.has_value());
  CHECK(loader.open(fakes::candidate("good")).plugin);
}

TEST_CASE("replaced_file_is_not_taken_for_the_old_one") {
  fakes::TestHost host;
  fakes::TempFolder folder;
  const auto path = folder.add("collision_a");
  Loader first(host.services());
  REQUIRE(first.open(fakes::discover(fakes::config_of({folder.path()})).candidates.at(0)).plugin);
  std::filesystem::copy_file(fakes::file("noop"), folder.path() / "new.so");
  std::filesystem::rename(folder.path() / "new.so", path);
  std::filesystem::remove(folder.path() / "anyattn_collision_a.yaml");
  Loader second(host.services());
  const Opened opened = second.open(fakes::discover(fakes::config_of({folder.path()})).candidates.at(0));
  // The noop file may have been opened from its own folder by another case: then it is answered from there, never the old one.
  if (opened.plugin) {
    CHECK(opened.plugin->id == "org.anyattn.fake.noop");
  } else {
    fakes::check_parts(anyattn::discovery::text(*opened.failure), {path.string(), "was replaced", "another name"});
  }
}

TEST_CASE("services_without_a_function_are_refused_at_once") {
  fakes::TestHost host;
  auto services = host.services();
  services.parallel_for = nullptr;
  CHECK_THROWS_AS(Loader{services}, std::invalid_argument);
}

TEST_CASE("host_callbacks_that_throw_do_not_reach_the_plugin") {
  anyattn::loader::HostServices services;
  services.log = [](void*, int32_t, const char*) { throw std::runtime_error("no log today"); };
  services.parallel_for = [](void*, uint64_t, uint64_t, anyattn_range_fn, void*) -> int32_t { return ANYATTN_OK; };
  services.cpu = &fakes::cpu_facts();
  Loader loader(services);
  const Opened opened = loader.open(fakes::candidate("good"));
  REQUIRE(opened.plugin);
  const anyattn_host* host = opened.plugin->host();
  CHECK_NOTHROW(host->log(host->context, ANYATTN_LOG_INFO, "hello"));
  CHECK_NOTHROW(host->log(host->context, ANYATTN_LOG_INFO, nullptr));
  CHECK(host->parallel_for(host->context, 1, 1, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
}
