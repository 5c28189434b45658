// SPDX-License-Identifier: Apache-2.0
// What loading leaves behind in the process: mappings, descriptors, symbols.
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <thread>

#include "loader/image.h"
#include "loader/loader.h"
#include "unit/loading/fakes.h"

// Of the same name as a function of two plugins, in an executable: none may take another's place.
extern int anyattn_fake_helper();
__attribute__((visibility("default"), noinline)) int anyattn_fake_helper() { return 1000; }

namespace {

using anyattn::loader::Loader;
using anyattn::loader::Opened;

size_t count_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

size_t count_mappings(const std::string& part) {
  std::istringstream maps(fakes::read_file("/proc/self/maps"));
  size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find(part) != std::string::npos) ++count;
  return count;
}

struct Answer {
  anyattn_support_report report{};
  std::vector<uint32_t> reasons;  // ids
};

// Asks the plugin's first backend about a small problem with these feature bits.
Answer ask(const anyattn::loader::Plugin& plugin, uint64_t features) {
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_feature_words = 1;
  problem.features = &features;
  problem.block_size = 16;
  problem.kv_cache_dtype = "float32";
  anyattn_device_facts facts{};
  Answer answer;
  answer.report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, &answer.reasons, [](void* ids, const anyattn_reason* reason) {
                                   static_cast<std::vector<uint32_t>*>(ids)->push_back(reason->id);
                                 }};
  REQUIRE(plugin.backends.at(0).table.supports(plugin.host(), &facts, &problem, &sink, &answer.report, nullptr) == ANYATTN_OK);
  return answer;
}

}  // namespace

TEST_CASE("equal_names_in_two_plugins_and_the_host_stay_apart") {
  fakes::TestHost host;
  Loader loader(host.services());
  for (const bool forwards : {true, false}) {
    // The second time both are mapped already, in whichever order; each must still see its own.
    const std::vector<std::string> order = forwards ? std::vector<std::string>{"collision_a", "collision_b"}
                                                    : std::vector<std::string>{"collision_b", "collision_a"};
    std::map<std::string, double> hints;
    for (const std::string& name : order) {
      const Opened opened = loader.open(fakes::candidate(name));
      REQUIRE(opened.plugin);
      hints[name] = ask(*opened.plugin, 0).report.cost_hint;
    }
    CHECK(hints["collision_a"] == 33);  // its helper's 3 and its static's 30
    CHECK(hints["collision_b"] == 55);
  }
  CHECK(anyattn_fake_helper() == 1000);
}

// The second is the one that the conformance kit must catch: a host alone cannot see what a plugin does not understand.
TEST_CASE("unknown_feature_bit_is_refused_by_the_sound_fake_and_swallowed_by_the_careless_one") {
  fakes::TestHost host;
  Loader loader(host.services());
  const uint64_t newer = uint64_t{1} << 40;
  const Opened sound = loader.open(fakes::candidate("good"));
  REQUIRE(sound.plugin);
  const Answer no = ask(*sound.plugin, newer);
  CHECK(no.report.supported == 0);
  CHECK(no.reasons == std::vector<uint32_t>{ANYATTN_REASON_FEATURE_UNKNOWN});
  const Opened careless = loader.open(fakes::candidate("ignores_unknown_features"));
  REQUIRE(careless.plugin);
  CHECK(ask(*careless.plugin, newer).report.supported == 1);
}

TEST_CASE("a_hundred_failed_loads_leave_nothing_behind") {
  // no_entry and wrong_major never get past inspection; these do.
  const std::vector<std::string> never_mapped = {"undefined_symbol", "missing_library"};
  const std::vector<std::string> mapped_once = {"null_slot", "short_backend", "entry_fails", "wrong_backends"};
  fakes::TestHost host;
  std::vector<anyattn::discovery::Candidate> candidates;
  for (const auto* names : {&never_mapped, &mapped_once}) {
    for (const std::string& name : *names) candidates.push_back(fakes::candidate(name));
  }
  const auto attempt = [&] {
    for (const auto& candidate : candidates) {
      const Opened opened = Loader(host.services()).open(candidate);
      CHECK(opened.failure.has_value());
    }
  };
  attempt();
  const size_t descriptors = count_descriptors();
  std::map<std::string, size_t> mappings;
  for (const auto& candidate : candidates) mappings[candidate.path] = count_mappings(candidate.path);
  for (int i = 0; i < 100; ++i) attempt();
  CHECK(count_descriptors() == descriptors);
  for (const auto& candidate : candidates) CHECK(count_mappings(candidate.path) == mappings[candidate.path]);
  for (const std::string& name : never_mapped) CHECK_FALSE(fakes::is_mapped(fakes::file(name)));
}

TEST_CASE("files_refused_by_inspection_are_never_mapped") {
  const std::vector<std::string> names = {"no_entry",      "wrong_major",      "extra_export",
                                          "unique_export", "executable_stack", "links_host"};
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto found = fakes::discover(fakes::config_of({fakes::folder(name)}));
    CHECK(found.candidates.empty());
    REQUIRE(found.skips.size() == 1);
    CHECK(found.skips[0].stage == anyattn::discovery::Stage::kInspect);
    CHECK_FALSE(fakes::is_mapped(fakes::file(name)));
  }
}

TEST_CASE("loading_binds_locally_and_at_once") {
  fakes::TestHost host;
  Loader loader(host.services());
  REQUIRE(loader.open(fakes::candidate("good")).plugin);
  CHECK(::dlsym(RTLD_DEFAULT, "anyattn_plugin_entry_v0") == nullptr);  // not visible to anybody else
  void* known = ::dlopen(fakes::file("good").c_str(), RTLD_NOW | RTLD_NOLOAD);
  CHECK(known != nullptr);
  if (known) ::dlclose(known);
}

TEST_CASE("opening_from_many_threads_gives_one_plugin") {
  fakes::TestHost host;
  Loader loader(host.services());
  const auto candidate = fakes::candidate("mla");
  std::vector<std::shared_ptr<anyattn::loader::Plugin>> plugins(8);
  {
    std::vector<std::jthread> threads;
    for (auto& plugin : plugins) threads.emplace_back([&] { plugin = loader.open(candidate).plugin; });
  }
  REQUIRE(plugins[0]);
  CHECK(plugins[0]->backends[0].is_mla);
  for (const auto& plugin : plugins) CHECK(plugin == plugins[0]);
}

TEST_CASE("linker_texts_are_sorted_by_cause") {
  const std::vector<std::string_view> needed = {"libcudart.so.12"};
  const std::string path = "/opt/acme/anyattn_x.so";
  struct Row {
    const char* text;
    std::vector<std::string> reason;
    std::vector<std::string> remedy;
  };
  const std::vector<Row> rows = {
      {"libcudart.so.12: cannot open shared object file: No such file or directory",
       {"libcudart.so.12 is missing", "which the plugin needs"},
       {"install libcudart.so.12", "/opt/acme/lib"}},
      {"libnested.so.3: cannot open shared object file: No such file or directory",
       {"libnested.so.3 is missing", "a library of the plugin"},
       {"install libnested.so.3"}},
      {"/opt/acme/anyattn_x.so: cannot open shared object file: Permission denied",
       {"cannot be opened", "Permission denied"},
       {"check"}},
      {"/opt/acme/anyattn_x.so: undefined symbol: cublasLtMatmul, version libcublasLt.so.12",
       {"symbol cublasLtMatmul"},
       {"link"}},
      {"/usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.99' not found (required by /opt/acme/anyattn_x.so)",
       {"symbol version GLIBCXX_3.4.99", "newer"},
       {"update", "build of the plugin"}},
      {"libold.so.1: wrong ELF class: ELFCLASS32", {"not built for this machine", "libold.so.1"}, {"64-bit"}},
      {"/opt/acme/anyattn_x.so: cannot allocate memory in static TLS block",
       {"thread-local", "static TLS block"},
       {"initial-exec"}},
      {"something nobody has seen", {"the dynamic linker refuses it", "something nobody has seen"}, {"quoting this text"}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const auto refusal = anyattn::loader::explain_linker_text(row.text, path, needed);
    CHECK(refusal.status != ANYATTN_OK);
    fakes::check_parts(refusal.reason, row.reason);
    fakes::check_parts(refusal.remedy, row.remedy);
  }
}
