// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>

#include "config/sidecar.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::discovery::Found;
using anyattn::discovery::Skip;
using anyattn::discovery::Stage;
namespace fs = std::filesystem;

std::vector<std::string> ids(const Found& found) {
  std::vector<std::string> names;
  for (const auto& candidate : found.candidates) names.push_back(candidate.id);
  return names;
}

anyattn::config::PluginEntry entry(const std::string& id, const std::string& file, bool required) {
  anyattn::config::PluginEntry result;
  result.id = id;
  result.file = file;
  result.required = required;
  result.origin.text = "/etc/anyattn.yaml:7";
  return result;
}

}  // namespace

TEST_CASE("folders_and_their_direct_subfolders_are_searched_in_order_and_sorted") {
  fakes::TempFolder first;
  fakes::TempFolder second;
  first.add("other", "b");
  first.add("mla", "a");
  first.add("noop");
  first.add("lse_base2", "a/deeper");  // not a direct subfolder
  second.add("good");
  fakes::write_file(first.path() / "libacme.so", "not ours by name");
  fakes::write_file(first.path() / "anyattn_notes.txt", "not ours by name");
  const Found found = fakes::discover(fakes::config_of({first.path(), second.path()}));
  CHECK(ids(found) == std::vector<std::string>{"org.anyattn.fake.noop", "org.anyattn.fake.mla", "org.anyattn.fake.other",
                                               "org.anyattn.fake.good"});
  CHECK(found.skips.empty());
  CHECK(found.candidates[0].origin == "plugins.search " + first.path().string());
  CHECK(found.candidates[0].content.size() == 64);
  REQUIRE(found.candidates[0].sidecar);
  CHECK(found.candidates[0].path == (first.path() / "anyattn_noop.so").string());
}

TEST_CASE("nothing_but_the_configuration_says_where_plugins_are") {
  fakes::TempFolder hidden;
  hidden.add("good");
  fakes::TempFolder elsewhere;
  const fs::path before = fs::current_path();
  fs::current_path(hidden.path());
  ::setenv("PATH", hidden.path().c_str(), 1);
  ::setenv("LD_LIBRARY_PATH", hidden.path().c_str(), 1);
  const Found found = fakes::discover(fakes::config_of({elsewhere.path()}));
  anyattn::config::Config relative = fakes::config_of({elsewhere.path()});
  relative.search = {"."};
  const Found refused = fakes::discover(relative);
  fs::current_path(before);
  CHECK(found.candidates.empty());
  CHECK(found.skips.empty());
  CHECK(refused.candidates.empty());
  REQUIRE(refused.skips.size() == 1);
  fakes::check_parts(refused.skips[0].reason, {"not absolute"});
}

TEST_CASE("missing_folder_is_a_mistake_only_where_somebody_wrote_it_down") {
  auto config = fakes::config_of({"/no/such/folder"});
  Found found = fakes::discover(config);
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].required);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {"/no/such/folder", "discover", "/etc/anyattn.yaml:3", "No such file or directory", "plugins.search"});
  config.search_origin = {};
  CHECK(fakes::discover(config).skips.empty());
}

TEST_CASE("the_same_plugin_twice_is_used_once_and_reported") {
  fakes::TempFolder first;
  fakes::TempFolder second;
  const fs::path kept = first.add("good");
  const fs::path copy = second.add("good");
  fs::create_hard_link(kept, first.path() / "anyattn_link.so");
  fs::create_symlink(kept, second.path() / "anyattn_soft.so");
  const fs::path other = second.add("duplicate_id");
  const Found found = fakes::discover(fakes::config_of({first.path(), second.path()}));
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].path == kept.string());
  struct Row {
    fs::path path;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {first.path() / "anyattn_link.so", {"another name of the file " + kept.string(), "comes first"}},
      {second.path() / "anyattn_soft.so", {"the same file as " + kept.string()}},
      {copy, {"a copy of " + kept.string(), "comes first", "remove one of the two"}},
      {other, {"has the id org.anyattn.fake.good of " + kept.string(), "comes first", "plugins.entries"}},
  };
  CHECK(found.skips.size() == rows.size());
  for (const Row& row : rows) {
    CAPTURE(row.path);
    const auto skip = std::ranges::find(found.skips, row.path.string(), &Skip::path);
    REQUIRE(skip != found.skips.end());
    CHECK(skip->stage == Stage::kDiscover);
    CHECK_FALSE(skip->required);
    fakes::check_parts(anyattn::discovery::text(*skip), row.parts);
  }
}

TEST_CASE("a_bad_copy_does_not_shadow_a_good_one") {
  fakes::TempFolder first;
  fakes::TempFolder second;
  const fs::path broken = first.add("good");
  const std::string bytes = fakes::read_file(broken);
  fakes::write_file(broken, bytes.substr(0, fakes::kCutBytes));
  const fs::path whole = second.add("good");
  const Found found = fakes::discover(fakes::config_of({first.path(), second.path()}));
  REQUIRE(found.candidates.size() == 1);
  CHECK(found.candidates[0].path == whole.string());
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {"org.anyattn.fake.good", broken.string(), "inspect", "is truncated", "install the file again"});
}

TEST_CASE("damaged_files_are_skipped_and_never_mapped") {
  fakes::TempFolder folder;
  const std::string good = fakes::read_file(fakes::file("good"));
  fakes::write_file(folder.path() / "anyattn_cut.so", good.substr(0, fakes::kCutBytes));
  fakes::write_file(folder.path() / "anyattn_empty.so", "");
  fakes::write_file(folder.path() / "anyattn_text.so", "id: not a plugin\n");
  std::string other_machine = good;
  other_machine[18] = char{21};  // e_machine: ppc64
  fakes::write_file(folder.path() / "anyattn_machine.so", other_machine);
  std::string other_class = good;
  other_class[4] = char{1};  // e_ident[EI_CLASS]: 32-bit
  fakes::write_file(folder.path() / "anyattn_class.so", other_class);
  REQUIRE(::mkfifo((folder.path() / "anyattn_pipe.so").c_str(), 0600) == 0);
  fs::create_symlink("/no/such/file", folder.path() / "anyattn_dangling.so");
  folder.add("good");
  const Found found = fakes::discover(fakes::config_of({folder.path()}));
  CHECK(ids(found) == std::vector<std::string>{"org.anyattn.fake.good"});
  struct Row {
    const char* name;
    Stage stage;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"anyattn_cut.so", Stage::kInspect, {"is truncated", "install the file again"}},
      {"anyattn_empty.so", Stage::kInspect, {"is empty", "install the file again"}},
      {"anyattn_text.so", Stage::kInspect, {"is no ELF file", "name a shared object"}},
      {"anyattn_machine.so", Stage::kInspect, {"built for ppc64", "install the plugin's"}},
      {"anyattn_class.so", Stage::kInspect, {"32-bit", "wanted 64-bit"}},
      {"anyattn_pipe.so", Stage::kDiscover, {"no regular file"}},
      {"anyattn_dangling.so", Stage::kDiscover, {"cannot be found", "dangling link"}},
  };
  CHECK(found.skips.size() == rows.size());
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const std::string path = (folder.path() / row.name).string();
    const auto skip = std::ranges::find(found.skips, path, &Skip::path);
    REQUIRE(skip != found.skips.end());
    CHECK(skip->stage == row.stage);
    fakes::check_parts(anyattn::discovery::text(*skip), row.parts);
    CHECK_FALSE(fakes::is_mapped(path));
  }
}

TEST_CASE("unfit_processor_is_refused_from_the_sidecar_without_opening") {
  fakes::TempFolder folder;
  const fs::path path = folder.add("needs_cpu");
  const Found found = fakes::discover(fakes::config_of({folder.path()}));
  CHECK(found.candidates.empty());
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {"org.anyattn.fake.needs_cpu", path.string(), "not supported by this CPU", "amx_int8", "install"});
  CHECK(found.skips[0].reason.find("avx2") == std::string::npos);  // this one is there
  CHECK(found.skips[0].status == ANYATTN_UNSUPPORTED);
  REQUIRE(found.skips[0].sidecar);  // says which names are lost
  CHECK(found.skips[0].sidecar->backends.at(0).name == "FAKE_NEEDS_CPU");
  CHECK_FALSE(fakes::is_mapped(path));
}

TEST_CASE("sidecar_of_another_version_is_refused_with_both_ranges") {
  fakes::TempFolder folder;
  folder.add("range_above_sidecar");
  const Found found = fakes::discover(fakes::config_of({folder.path()}));
  CHECK(found.candidates.empty());
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].stage == Stage::kNegotiate);
  CHECK(found.skips[0].status == ANYATTN_ABI_MISMATCH);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]), {"ABI 0.5 to 0.9", "0.1 to 0.1", "update the host"});
}

TEST_CASE("broken_sidecar_is_named_with_its_line") {
  fakes::TempFolder folder;
  const fs::path path = folder.add("good");
  fakes::write_file(folder.path() / "anyattn_good.yaml", "sidecar: 1\nid: [\n");
  const Found found = fakes::discover(fakes::config_of({folder.path()}));
  CHECK(found.candidates.empty());
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {path.string(), "discover", "sidecar is wrong", (folder.path() / "anyattn_good.yaml").string()});
}

TEST_CASE("entries_pin_by_file_and_by_id_and_carry_options") {
  fakes::TempFolder folder;
  fakes::TempFolder pinned;
  const fs::path in_search = folder.add("good");
  folder.add("other");
  const fs::path wanted = pinned.add("duplicate_id");  // the same id, another content
  auto config = fakes::config_of({folder.path()});
  config.entries = {entry("org.anyattn.fake.good", wanted.string(), true), entry("org.anyattn.fake.other", "", true)};
  config.entries[1].options = {fakes::option("in", "forward")};
  const Found found = fakes::discover(config);
  REQUIRE(found.candidates.size() == 2);
  CHECK(found.candidates[0].path == wanted.string());
  CHECK(found.candidates[0].origin == "plugins.entries (/etc/anyattn.yaml:7)");
  REQUIRE(found.candidates[1].entry.has_value());
  CHECK(found.candidates[1].entry->required);
  REQUIRE(found.candidates[1].entry->options.size() == 1);
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].path == in_search.string());
  CHECK_FALSE(found.skips[0].required);
  fakes::check_parts(found.skips[0].reason, {"has the id org.anyattn.fake.good of " + wanted.string()});
}

TEST_CASE("pinned_file_inside_a_searched_folder_is_no_duplicate") {
  fakes::TempFolder folder;
  const fs::path path = folder.add("good");
  auto config = fakes::config_of({folder.path()});
  config.entries = {entry("", path.string(), false)};
  const Found found = fakes::discover(config);
  CHECK(found.candidates.size() == 1);
  CHECK(found.skips.empty());
}

TEST_CASE("required_entry_that_fails_carries_the_whole_reason") {
  fakes::TempFolder folder;
  const fs::path path = folder.add("good");
  fakes::write_file(path, fakes::read_file(path).substr(0, fakes::kCutBytes));
  struct Row {
    const char* what;
    anyattn::config::PluginEntry pin;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"broken, by file", entry("", path.string(), true), {path.string(), "inspect", "is truncated"}},
      {"broken, by id", entry("org.anyattn.fake.good", "", true), {path.string(), "inspect", "is truncated"}},
      {"absent file",
       entry("", "/no/such/anyattn_x.so", true),
       {"/no/such/anyattn_x.so", "discover", "cannot be found", "/etc/anyattn.yaml:7"}},
      {"absent id",
       entry("org.acme.nothing", "", true),
       {"org.acme.nothing", "discover", "/etc/anyattn.yaml:7", folder.path().string(), "sidecar", "install the plugin"}},
      {"other id",
       entry("org.acme.attn", fakes::file("other").string(), true),
       {"discover", "names it org.acme.attn", "its sidecar says org.anyattn.fake.other"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    auto config = fakes::config_of({folder.path()});
    config.entries = {row.pin};
    const Found found = fakes::discover(config);
    const auto skip = std::ranges::find_if(found.skips, &Skip::required);
    REQUIRE(skip != found.skips.end());
    fakes::check_parts(anyattn::discovery::text(*skip), row.parts);
  }
}

TEST_CASE("one_file_in_two_entries_is_told_not_dropped") {
  auto config = fakes::config_of({});
  const std::string path = fakes::file("good").string();
  config.entries = {entry("", path, false), entry("", path, true)};
  const Found found = fakes::discover(config);
  CHECK(found.candidates.size() == 1);
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].required);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]), {path, "the same file", "one entry only"});
}

TEST_CASE("required_entry_through_a_link_carries_the_reason_of_the_file") {
  fakes::TempFolder folder;
  const fs::path path = folder.add("good");
  fakes::write_file(path, fakes::read_file(path).substr(0, fakes::kCutBytes));
  fs::create_symlink(path, folder.path() / "link.so");
  auto config = fakes::config_of({});
  config.entries = {entry("", (folder.path() / "link.so").string(), true)};
  const Found found = fakes::discover(config);
  REQUIRE(found.skips.size() == 1);
  CHECK(found.skips[0].required);
  fakes::check_parts(found.skips[0].reason, {"is truncated"});
}

TEST_CASE("optional_entry_that_fails_is_a_skip") {
  fakes::TempFolder folder;
  auto config = fakes::config_of({folder.path()});
  config.entries = {entry("org.acme.nothing", "", false)};
  const Found found = fakes::discover(config);
  REQUIRE(found.skips.size() == 1);
  CHECK_FALSE(found.skips[0].required);
}

TEST_CASE("one_file_by_path_needs_an_absolute_path") {
  anyattn::config::PluginEntry pin = entry("", "anyattn_good.so", true);
  const Found found = anyattn::discovery::discover_file(pin, fakes::config_of({}), fakes::host());
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]), {"anyattn_good.so", "not absolute"});
}

TEST_CASE("stages_have_the_words_of_list_and_explain") {
  std::vector<std::string> names;
  for (int stage = 0; stage <= static_cast<int>(Stage::kSupports); ++stage) {
    names.emplace_back(anyattn::discovery::stage_name(static_cast<Stage>(stage)));
  }
  CHECK(names ==
        std::vector<std::string>{"discover", "trust", "inspect", "probe", "open", "negotiate", "register", "supports"});
}
