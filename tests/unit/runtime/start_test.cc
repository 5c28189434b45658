// SPDX-License-Identifier: Apache-2.0
// What a start costs where plugins are many and known.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "runtime_fixture.h"
#include "temp_dir.h"

namespace fs = std::filesystem;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a_start_with_fifty_known_plugins_takes_under_20_ms") {
  constexpr int kPlugins = 50;
  const anyattn::testing::TempDir dir;
  const std::string good = fake::ConfigFile::plugin_path("good");
  std::string sidecar = anyattn::testing::read_file(fs::path(good).replace_extension(".yaml").string());
  const size_t id = sidecar.find("fake.good"), backend = sidecar.find("FAKE_GOOD");
  REQUIRE(id < backend);
  for (int i = 0; i < kPlugins; ++i) {
    const std::string number = std::to_string(i), name = "plugins/" + number + "/anyattn_good";
    dir.write(name + ".so", anyattn::testing::read_file(good) + "content " + number);
    std::string text = sidecar;
    text.replace(backend, 9, "FAKE_" + number).replace(id, 9, "fake.good" + number);
    dir.write(name + ".yaml", text);
  }
  anyattn::Runtime::Options options;
  options.config_path = dir.write("config.yaml", "version: 1\nplugins: {search: [plugins]}\nprobe: {cache: verdicts}\n");
  options.log_level = "error";
  options.num_threads = 1;
  // A file that was just written is not kept as known.
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  // Processor time, and the fastest of a few: the rest is what else the machine does.
  const auto spent_ms = [] { return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  double fastest_ms = 1e9;
  for (int i = 0; i < 10 || (i < 40 && fastest_ms >= 20); ++i) {
    const double begin = spent_ms();
    const anyattn::Runtime runtime(options);
    const double taken_ms = spent_ms() - begin;
    if (i > 0) fastest_ms = std::min(fastest_ms, taken_ms);  // the first reads them all
    CHECK(nlohmann::json::parse(runtime.list())["plugins"].size() == kPlugins);
  }
  MESSAGE("the fastest start took ", fastest_ms, " ms");
  CHECK(fastest_ms < 20);
}
#endif
