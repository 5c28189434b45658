// SPDX-License-Identifier: Apache-2.0
// Opening a plugin, with each allocation of host and plugin failing in turn: the loader has all of it or nothing, and the next
// attempt succeeds.
#include <optional>

#include "fake_plugins/counters.h"
#include "loader/image.h"
#include "loader/loader.h"
#include "unit/loading/fakes.h"
#include "unit/registration/faults.h"

namespace {

using anyattn::discovery::Candidate;
using anyattn::loader::Image;
using anyattn::loader::Loader;
using anyattn::loader::Opened;

// The same plugin with another content each time, so that each attempt opens a file anew.
Candidate fresh(fakes::TempFolder& folder, const std::string& name, int number, const FakeCounters& counters) {
  const auto below = folder.path() / std::to_string(number);
  std::filesystem::create_directories(below);
  const auto path = below / fakes::file(name).filename();
  fakes::write_file(path, fakes::read_file(fakes::file(name)) + "attempt " + std::to_string(number));
  anyattn::config::PluginEntry entry;
  entry.file = path.string();
  entry.options = {fakes::option("counters", counters.option_text())};
  const auto found = anyattn::discovery::discover_file(entry, fakes::config_of({}), fakes::host());
  REQUIRE(found.candidates.size() == 1);
  return found.candidates.front();
}

}  // namespace

TEST_CASE("opening_is_whole_or_undone_at_every_step") {
  fakes::TempFolder folder;
  fakes::TestHost host;
  FakeCounters counters;
  std::optional<Loader> loader;
  Candidate candidate;
  Opened opened;
  int number = 0;
  int thrown = 0;
  const uint64_t steps = faults::at_every_step(
      [&] {
        opened = {};
        loader.emplace(host.services());
        candidate = fresh(folder, "good", ++number, counters);
      },
      [&] { opened = loader->open(candidate); },
      [&](const faults::Outcome& outcome) {
        const uint64_t shutdowns = counters.shutdowns;
        CHECK((outcome.threw || opened.plugin || opened.failure));
        // An allocation of the plugin's own may have failed: that is its answer, with a text.
        if (opened.failure) CHECK_FALSE(opened.failure->reason.empty());
        thrown += outcome.threw ? 1 : 0;
        const bool was_open = opened.plugin != nullptr;
        const Opened again = loader->open(candidate);
        if (again.failure) FAIL_CHECK(anyattn::discovery::text(*again.failure));
        REQUIRE(again.plugin);
        if (was_open) CHECK(again.plugin == opened.plugin);
        CHECK(again.plugin->id == "org.anyattn.fake.good");
        CHECK(counters.shutdowns == shutdowns);  // what was given up half-way did not end the file for others
        // The linker's and the process's view agree: this path holds this content and is known to.
        CHECK(fakes::is_mapped(candidate.path));
        CHECK_FALSE(Image::path_is_taken(candidate.path, candidate.content));
        CHECK(Image::path_is_taken(candidate.path, "another content"));
        CHECK(Image::count_others(candidate.path, "another content") == 1);
      });
  CHECK(steps > 30);
  CHECK(thrown > 20);
  MESSAGE(steps << " steps, " << thrown << " of them thrown out of the call");
}
