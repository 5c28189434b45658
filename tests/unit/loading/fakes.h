// SPDX-License-Identifier: Apache-2.0
// The fake plugins of the build tree, folders that vanish again, and a host for tests of discovery and loading.
// Included by tests/unit/loading.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "config/config.h"
#include "discovery/discovery.h"
#include "loader/loader.h"
#include "temp_dir.h"

namespace fakes {

namespace fs = std::filesystem;

inline fs::path folder(const std::string& name) { return fs::path(ANYATTN_BINARY_DIR) / "tests/fake_plugins" / name; }
inline fs::path file(const std::string& name) { return folder(name) / ("anyattn_" + name + ".so"); }

// Shorter than what any fake maps, with or without debug information behind it.
inline constexpr size_t kCutBytes = 5000;

inline std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
  REQUIRE(stream.good());
}

// An empty folder of a test's own, with copies of fakes.
class TempFolder {
 public:
  const fs::path& path() const { return dir_.folder(); }

  // Copies a fake (and its sidecar, where it has one) and returns the copy.
  fs::path add(const std::string& name, const std::string& below = ".") {
    fs::create_directories(path() / below);
    const fs::path sidecar = folder(name) / ("anyattn_" + name + ".yaml");
    if (fs::exists(sidecar)) fs::copy_file(sidecar, path() / below / sidecar.filename());
    const fs::path copy = (path() / below / file(name).filename()).lexically_normal();
    fs::copy_file(file(name), copy);
    return copy;
  }

 private:
  anyattn::testing::TempDir dir_;
};

inline anyattn::config::Config config_of(const std::vector<fs::path>& search) {
  anyattn::config::Config config;
  config.file = "/etc/anyattn.yaml";
  config.search_origin.text = "/etc/anyattn.yaml:3";
  for (const fs::path& path : search) config.search.push_back(path.string());
  return config;
}

inline const anyattn_cpu_facts& cpu_facts() {
  static const anyattn_cpu_facts facts{
      ANYATTN_CPU_FACTS_SIZE, ANYATTN_CPU_ARCH_X86_64, ANYATTN_CPU_SSE4_2 | ANYATTN_CPU_AVX2, 1, 0, 0, 0};
  return facts;
}

inline anyattn::discovery::Host host() {
  anyattn::discovery::Host host;
  host.cpu = &cpu_facts();
  return host;
}

inline anyattn::discovery::Found discover(const anyattn::config::Config& config) {
  return anyattn::discovery::discover(config, host());
}

// The candidate that the fake's own folder gives, with a host of any version.
inline anyattn::discovery::Candidate candidate(const std::string& name,
                                               const std::vector<anyattn::config::Option>& options = {}) {
  anyattn::discovery::Host any = host();
  any.abi_max = ANYATTN_ABI_VERSION(0, 99);
  anyattn::config::Config config = config_of({});
  anyattn::config::PluginEntry entry;
  entry.file = file(name).string();
  entry.options = options;
  entry.origin.text = "/etc/anyattn.yaml:7";
  anyattn::discovery::Found found = anyattn::discovery::discover_file(entry, config, any);
  for (const anyattn::discovery::Skip& skip : found.skips) FAIL(anyattn::discovery::text(skip));
  REQUIRE(found.candidates.size() == 1);
  return found.candidates.front();
}

// Serial services that keep what plugins log.
class TestHost {
 public:
  anyattn::loader::HostServices services() { return {this, &TestHost::log, &TestHost::parallel_for, 1, &cpu_facts()}; }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  static void log(void* context, int32_t, const char* text) {
    auto* host = static_cast<TestHost*>(context);
    const std::lock_guard lock(host->mutex_);
    host->lines_.emplace_back(text);
  }
  static int32_t parallel_for(void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) {
    if (count > 0) fn(argument, 0, count, 0);
    return ANYATTN_OK;
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

inline anyattn::config::Option option(const std::string& key, const std::string& value) {
  return {key, value, {"/etc/anyattn.yaml:9"}};
}

// Each part must be in the text.
inline void check_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    INFO("text: " << text);
    INFO("part: " << part);
    CHECK(text.find(part) != std::string::npos);
  }
}

// Is a file mapped into this process?
inline bool is_mapped(const fs::path& path) { return read_file("/proc/self/maps").find(path.string()) != std::string::npos; }

}  // namespace fakes
