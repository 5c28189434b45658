// SPDX-License-Identifier: Apache-2.0
// What a plugin brings along and leaves behind: a C++ runtime of its own; threads, exit handlers and thread-local values that
// outlive the runtime that opened it.
#include <cstdio>
#include <thread>

#include "loader/loader.h"
#include "unit/loading/fakes.h"

namespace {

using anyattn::loader::Loader;
using anyattn::loader::Opened;

int32_t ask(const anyattn::loader::Plugin& plugin, anyattn_support_report& report) {
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.block_size = 16;
  problem.kv_cache_dtype = "float32";
  const anyattn_device_facts facts{};
  const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, nullptr, [](void*, const anyattn_reason*) {}};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  return plugin.backends.at(0).table.supports(plugin.host(), &facts, &problem, &sink, &report, nullptr);
}

struct Ended {
  int status = -1;  // as std::system gives it
  std::string said;
};

// Runs a case of this program, which is skipped otherwise, in a process of its own.
Ended run_alone(const std::string& name) {
  const fakes::TempFolder folder;
  const auto output = folder.path() / "output";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const int status =
      std::system(("'" + self + "' --no-skip --test-case='" + name + "' > '" + output.string() + "' 2>&1").c_str());
  return {status, fakes::read_file(output)};
}

}  // namespace

TEST_CASE("a_cxx_runtime_of_its_own_harms_nobody_where_it_is_hidden") {
  fakes::TestHost host;
  Loader loader(host.services());
  for (const bool forwards : {true, false}) {
    const std::vector<std::string> order =
        forwards ? std::vector<std::string>{"static_runtime", "good"} : std::vector<std::string>{"good", "static_runtime"};
    for (const std::string& name : order) {
      CAPTURE(name);
      const Opened opened = loader.open(fakes::candidate(name));
      REQUIRE(opened.plugin);
      anyattn_support_report report{};
      CHECK(ask(*opened.plugin, report) == ANYATTN_OK);
      CHECK(report.supported == 1);
    }
  }
}

TEST_CASE("a_cxx_runtime_that_is_exported_is_refused_before_it_is_opened") {
  const auto found = fakes::discover(fakes::config_of({fakes::folder("static_runtime_exports")}));
  CHECK(found.candidates.empty());
  REQUIRE(found.skips.size() == 1);
  fakes::check_parts(anyattn::discovery::text(found.skips[0]),
                     {"anyattn_static_runtime_exports.so", "failed at inspect", "exports", "_ZN", "anyattn_plugin.map"});
  CHECK_FALSE(fakes::is_mapped(fakes::file("static_runtime_exports")));
}

TEST_CASE("alone_a_plugin_outlives_its_runtime" * doctest::skip()) {
  fakes::TestHost host;
  std::jthread([&] {
    Loader loader(host.services());
    REQUIRE(loader.open(fakes::candidate("lingers")).plugin);
  }).join();  // its thread-local value is destroyed after the loader
  CHECK(fakes::is_mapped(fakes::file("lingers")));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its thread runs on
}

TEST_CASE("threads_exit_handlers_and_thread_values_of_a_plugin_outlive_its_runtime") {
  const Ended ended = run_alone("alone_a_plugin_outlives_its_runtime");
  CAPTURE(ended.said);
  CHECK(ended.status == 0);
  fakes::check_parts(ended.said, {"1 passed", "the fake ends after many steps"});
}
