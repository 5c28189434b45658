// SPDX-License-Identifier: Apache-2.0
// What a clumsy operator and a hostile neighbour meet: full disks, folders that are no bundle, two at once, odd files and rights.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "end_to_end/command.h"
#include "temp_dir.h"

using namespace anyattn::end_to_end;
using anyattn::testing::TempDir;

TEST_CASE("a_full_disk_costs_no_file_that_was_there_and_leaves_no_half_one") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", cpu_config()), lock = dir / "lock.json", key = dir / "key";
  // Every write to a file fails, as on a full disk.
  const auto full = [](std::vector<std::string> arguments) {
    std::vector<std::string> command{"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh",
                                     std::string(ANYATTN_BINARY_DIR) + "/bin/anyattn"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command);
  };
  const std::vector<std::string> write_lock{"lock",     "--model", "Llama-3.2-1B", "--device", "cpu",
                                            "--config", config,    "-o",           lock};
  REQUIRE(cli(write_lock).code == 0);
  const std::string before = anyattn::testing::read_file(lock);
  const std::string folder = dir / "bundle.tar.zst", plugin = std::string(ANYATTN_TEST_DIR) + "/fake_plugins/device_code";
  const std::string json = dir.write("list.json", "{}\n");
  std::filesystem::create_directory(dir / "empty");
  const std::vector<std::string> commands[] = {write_lock,
                                               {"key", "new", key},
                                               {"bundle", "build", plugin, "-o", folder},
                                               {"new-plugin", "acme", dir / "new/acme"},
                                               {"new-plugin", "acme", dir / "empty"},
                                               {"list", "--config", config, "--json", json},
                                               {"list", "--config", config, "--json", dir / "new.json"}};
  for (const std::vector<std::string>& command : commands) {
    CAPTURE(command[0]);
    const Result result = full(command);
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  CHECK(anyattn::testing::read_file(lock) == before);
  CHECK(anyattn::testing::read_file(json) == "{}\n");
  CHECK(std::filesystem::is_empty(dir / "empty"));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    CAPTURE(entry.path().string());
    CHECK((entry.path() == lock || entry.path() == config || entry.path() == json || entry.path() == dir / "empty"));
    ++files;
  }
  CHECK(files == 4);
  CHECK(cli({"key", "new", key}).code == 0);  // nothing is in the way of the next try
}

TEST_CASE("a_folder_that_is_no_bundle_is_named_as_the_user_named_it") {
  TempDir dir;
  const std::string folder = dir / "no_bundle", from = std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good";
  std::filesystem::create_directory(folder);
  for (const char* verb : {"verify", "show", "install"}) {
    const Result result = cli({"bundle", verb, folder, "--config", dir.write("config.yaml", cpu_config())});
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(contains(result.err, folder + ": it holds no manifest.yaml"));
  }
  // Whatever is wrong with what is inside is said of the folder too, never of a copy.
  const Result nothing = cli({"bundle", "build", folder});
  CAPTURE(nothing.err);
  CHECK(nothing.code != 0);
  CHECK(contains(nothing.err, folder));
  CHECK_FALSE(contains(nothing.err, ".anyattn_"));
  REQUIRE(cli({"bundle", "build", from, "-o", dir / "bundle"}).code == 0);
  std::ofstream(dir / "bundle/anyattn_good.yaml", std::ios::app) << "# changed";
  const Result changed = cli({"bundle", "show", dir / "bundle"});
  CAPTURE(changed.err);
  CHECK(changed.code == 1);
  CHECK(contains(changed.err, dir / "bundle"));
  CHECK_FALSE(contains(changed.err, ".anyattn_"));
}

TEST_CASE("one_bundle_installed_by_many_at_once_is_installed_once") {
  TempDir dir;
  const std::string config = dir.write("config.yaml", "version: 1\nplugins: {search: [plugins]}\n"),
                    bundle = dir / "good.tar.zst";
  REQUIRE(cli({"bundle", "build", std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good", "-o", bundle}).code == 0);
  std::vector<std::thread> installers;
  std::vector<Result> results(8);
  for (Result& result : results)
    installers.emplace_back([&] { result = cli({"bundle", "install", bundle, "--config", config}); });
  for (std::thread& installer : installers) installer.join();
  int installed = 0;
  for (const Result& result : results) {
    CAPTURE(result.err);
    CHECK(result.code == 0);
    installed += contains(result.out, "pin it") ? 1 : 0;
  }
  CHECK(installed == 1);
  size_t left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "plugins")) {
    CAPTURE(entry.path().string());
    ++left;
  }
  CHECK(left == 1);
  CHECK(cli({"bundle", "show", dir / "plugins/org.anyattn.fake.good-1.10-x86-64"}).code == 0);
}

TEST_CASE("a_key_that_others_can_read_signs_with_a_warning") {
  TempDir dir;
  const std::string bundle = dir / "good.tar.zst", key = dir / "vendor.key";
  REQUIRE(cli({"bundle", "build", std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good", "-o", bundle}).code == 0);
  REQUIRE(cli({"key", "new", dir / "vendor"}).code == 0);
  const auto sign = [&] { return cli({"bundle", "sign", bundle, "--key", key}); };
  CHECK(sign().err.empty());
  std::filesystem::permissions(key, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  const Result loose = sign();
  CHECK(loose.code == 0);
  CHECK(contains(loose.err, key + ": others may read it"));
  CHECK(contains(loose.err, "chmod 600 " + key));
}

TEST_CASE("a_pipe_that_nobody_writes_to_stops_no_listing") {
  TempDir dir;
  const std::string folder = dir / "plugins";
  std::filesystem::create_directories(folder + "/bundle");
  for (const std::string& pipe : {folder + "/anyattn_pipe.so", folder + "/anyattn_good.yaml", folder + "/bundle/manifest.yaml"})
    REQUIRE(::mkfifo(pipe.c_str(), 0644) == 0);
  const std::string good = std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good/anyattn_good.so";
  std::filesystem::copy_file(good, folder + "/anyattn_good.so");
  std::filesystem::copy_file(std::string(ANYATTN_TEST_DIR) + "/fake_plugins/device_code/anyattn_device_code.so",
                             folder + "/bundle/anyattn_device_code.so");
  const Result list = cli({"list", "--config", dir.write("config.yaml", "version: 1\nplugins: {search: [plugins]}\n")});
  CAPTURE(list.out);
  CHECK(list.code == 0);
  for (const char* pipe : {"anyattn_pipe.so", "anyattn_good.yaml", "bundle/manifest.yaml"}) CHECK(contains(list.out, pipe));
  for (const char* text :
       {"the file is no regular file", "anyattn_good.yaml: is no regular file", "manifest.yaml is no regular file"})
    CHECK(contains(list.out, text));
}

TEST_CASE("a_pipe_is_no_bundle") {
  TempDir dir;
  const std::string pipe = dir / "pipe.tar.zst";
  REQUIRE(::mkfifo(pipe.c_str(), 0644) == 0);
  for (const char* action : {"verify", "show", "install", "sign"}) {
    CAPTURE(action);
    std::vector<std::string> command{"bundle", action, pipe};
    if (std::string(action) == "sign") command.insert(command.end(), {"--key", dir.write("key", "")});
    if (std::string(action) == "install") command.insert(command.end(), {"--into", dir / "into"});
    const Result result = cli(command);
    CHECK(result.code == 2);
    CHECK(contains(result.err, pipe + ": it is no folder and no regular file"));
  }
}

// As a ConfigMap is mounted: the name that was given is the place that folders are relative to.
TEST_CASE("a_linked_configuration_searches_beside_the_link") {
  TempDir dir;
  std::filesystem::create_directories(dir / "data");
  dir.write("data/config.yaml", "version: 1\nplugins: {search: [plugins]}\n");
  std::filesystem::create_symlink("data/config.yaml", dir / "config.yaml");
  std::filesystem::create_directories(dir / "plugins");
  const std::string good = std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good/anyattn_good";
  for (const char* end : {".so", ".yaml"}) std::filesystem::copy_file(good + end, (dir / "plugins/anyattn_good") + end);
  CHECK(contains(cli({"list", "--config", dir / "config.yaml"}).out, "FAKE_GOOD"));
  CHECK_FALSE(contains(cli({"list", "--config", dir / "data/config.yaml"}).out, "FAKE_GOOD"));
}

TEST_CASE("verdicts_are_listed_explained_and_cleared") {
  TempDir dir;
  std::filesystem::create_directories(dir / "plugins");
  const std::string good = std::string(ANYATTN_TEST_DIR) + "/fake_plugins/good/anyattn_good";
  for (const char* end : {".so", ".yaml"}) std::filesystem::copy_file(good + end, (dir / "plugins/anyattn_good") + end);
  const std::string config =
      dir.write("config.yaml",
                "version: 1\nplugins: {search: [plugins], entries: [{id: org.anyattn.fake.good, required: true}]}\n"
                "probe: {cache: verdicts}\n");
  const auto verdicts = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "verdicts");
    words.insert(words.end(), {"--config", config});
    return cli(words);
  };
  REQUIRE(cli({"list", "--config", config}).code == 0);
  CHECK(contains(verdicts({"list"}).out, "org.anyattn.fake.good"));
  CHECK(contains(verdicts({"why", "org.anyattn.fake.good"}).out, "ok"));
  CHECK(verdicts({"clear", "org.anyattn.fake.other"}).code == 0);  // nothing of it to clear
  CHECK(contains(verdicts({"list"}).out, "org.anyattn.fake.good"));
  CHECK(verdicts({"clear", "org.anyattn.fake.good"}).code == 0);
  CHECK_FALSE(contains(verdicts({"list"}).out, "org.anyattn.fake.good"));
}

TEST_CASE("a_key_exported_again_is_the_public_half_that_was_written") {
  TempDir dir;
  REQUIRE(cli({"key", "new", dir / "vendor"}).code == 0);
  const Result exported = cli({"key", "export", dir / "vendor.key"});
  CHECK(exported.code == 0);
  CHECK(exported.out == anyattn::testing::read_file(dir / "vendor.pub"));
  CHECK_FALSE(contains(exported.out, "PRIVATE"));
}
