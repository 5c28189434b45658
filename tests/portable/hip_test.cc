// SPDX-License-Identifier: Apache-2.0
// The plugin of AMD's devices without one: what supports says of an architecture, what hiprtc makes of the kernels.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "anyattn/run_time_compiler.hpp"
#include "prebuild/absent_device.h"
#include "temp_dir.h"

namespace {

namespace fs = std::filesystem;
using anyattn::portable::OpenPlugin;
using anyattn::portable::Shape;
using anyattn::testing::TempDir;

anyattn_device_facts amd_device(const char* architecture, uint32_t major, uint32_t minor) {
  anyattn_device_facts facts = anyattn::portable::absent_device("sm_80");
  facts.device_kind = ANYATTN_DEVICE_HIP;
  facts.architecture = architecture;
  facts.arch_major = major;
  facts.arch_minor = minor;
  facts.warp_size = major == 9 ? 64 : 32;
  facts.shared_memory_per_block = 64 << 10;
  return facts;
}

bool has_compiler() {
  const anyattn::RunTimeCompiler found = anyattn::open_compiler(anyattn::kHiprtc, 0);
  if (!found.library) MESSAGE("SKIPPED: no hiprtc on this machine: ", found.why);
  return found.library != nullptr;
}

}  // namespace

TEST_CASE("hip_architectures_before_gfx90a_are_refused") {
  OpenPlugin plugin(ANYATTN_PORTABLE_HIP_PLUGIN, {{"cache", "off"}, {"unproven", "allow"}});
  const Shape shape{4, 2, 64, 64, ANYATTN_DTYPE_BFLOAT16};
  const auto too_old = [&](const char* architecture, uint32_t major, uint32_t minor) {
    const std::string refusal = anyattn::text("architecture=", architecture, " (allowed: gfx90a or newer) ");
    return plugin.reasons(amd_device(architecture, major, minor), shape) == refusal;
  };
  CHECK(too_old("gfx803", 8, 0x03));
  CHECK(too_old("gfx900", 9, 0x00));
  CHECK(too_old("gfx906", 9, 0x06));
  CHECK(too_old("gfx908", 9, 0x08));
  CHECK(too_old("gfx90c", 9, 0x0c));
  CHECK_FALSE(too_old("gfx90a", 9, 0x0a));
  CHECK_FALSE(too_old("gfx942", 9, 0x42));
  CHECK_FALSE(too_old("gfx1030", 10, 0x30));
  CHECK_FALSE(too_old("gfx1100", 11, 0x00));
}

TEST_CASE("hip_kernels_are_compiled_by_hiprtc_for_gfx90a") {
  if (!has_compiler()) return;
  const TempDir folder;
  OpenPlugin plugin(ANYATTN_PORTABLE_HIP_PLUGIN, {{"cache", folder.path()}, {"warmup", "compile"}, {"unproven", "allow"}});
  const anyattn_device_facts device = amd_device("gfx90a", 9, 0x0a);
  const Shape shape{4, 2, 64, 64, ANYATTN_DTYPE_BFLOAT16};
  REQUIRE(plugin.reasons(device, shape) == "");
  CHECK_NOTHROW(plugin.warm(device, shape));
  CHECK_FALSE(fs::is_empty(folder.folder()));
}

// hiprtc 5.2 ends the process there.
TEST_CASE("hip_architectures_that_hiprtc_does_not_know_are_refused") {
  if (!has_compiler()) return;
  OpenPlugin plugin(ANYATTN_PORTABLE_HIP_PLUGIN, {{"cache", "off"}, {"warmup", "compile"}, {"unproven", "allow"}});
  const anyattn_device_facts device = amd_device("gfx9999", 99, 0x99);
  const Shape shape{4, 2, 64, 64, ANYATTN_DTYPE_BFLOAT16};
  CHECK(plugin.reasons(device, shape).find("which does not compile for gfx9999") != std::string::npos);
  CHECK_THROWS(plugin.warm(device, shape));
}
