// SPDX-License-Identifier: Apache-2.0
// Code made for a device that is not here, and taken without a compiler: the problem that was built, on devices of every size.
#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "prebuild/absent_device.h"
#include "temp_dir.h"

namespace {

namespace fs = std::filesystem;
using anyattn::portable::absent_device;
using anyattn::portable::OpenPlugin;
using anyattn::portable::Shape;
using anyattn::testing::TempDir;

constexpr Shape kBuilt{4, 2, 32, 64, ANYATTN_DTYPE_BFLOAT16}, kOther{4, 4, 32, 64, ANYATTN_DTYPE_BFLOAT16};

// Where the toolkit lies nowhere that the plugin looks: what is open already is found by its name.
const void* const kCompiler = dlopen(ANYATTN_NVRTC, RTLD_NOW | RTLD_LOCAL);

// A copy of the plugin with a folder `prebuilt` beside it that holds kBuilt for sm_90.
class Place {
 public:
  Place() {
    fs::copy_file(ANYATTN_PORTABLE_CUDA_PLUGIN, file());
    OpenPlugin(file(), {{"cache", code().string()}, {"warmup", "compile"}}).warm(absent_device("sm_90"), kBuilt);
  }
  std::string file() const { return folder_ / "anyattn_portable_cuda.so"; }
  fs::path code() const { return folder_ / "prebuilt"; }

 private:
  TempDir folder_;
};

// What warm says, empty where all is well.
std::string warm(OpenPlugin& plugin, const anyattn_device_facts& facts, const Shape& shape) {
  try {
    plugin.warm(facts, shape);
    return {};
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

// A driver that counts what it loads stands in for the device's: code comes from disk, nothing runs.
// warmup loads the lanes that its limits need, metadata of wider ones the rest.
void check_loaded_lanes(const Place& place) {
  void* driver = dlopen(ANYATTN_COUNTING_DRIVER, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(driver != nullptr);
  const auto loaded = reinterpret_cast<int (*)()>(dlsym(driver, "modules_loaded"));
  REQUIRE(static_cast<bool>(loaded));
  OpenPlugin plugin(place.file(), {{"cache", "off"}, {"compiler", "off"}});
  const auto limits_of = [](uint32_t query_len) {
    return anyattn_limits{ANYATTN_LIMITS_SIZE, 4, 4 * query_len, query_len, 4096, 4096 / kBuilt.block_size};
  };
  plugin.with_impl(absent_device("sm_90"), kBuilt, [&](const anyattn_backend& of, anyattn_impl* impl) {
    const anyattn_limits decode = limits_of(1), chunk = limits_of(512);
    const auto metadata = [&](const anyattn_limits& limits) {
      anyattn_memory memory{};
      memory.struct_size = ANYATTN_MEMORY_SIZE;
      plugin.expect_ok(of.memory(impl, &limits, &memory, plugin.error()));
      std::vector<std::max_align_t> block(memory.persistent_bytes / sizeof(std::max_align_t) + 17);
      void* at = block.data();
      size_t room = block.size() * sizeof(std::max_align_t);
      std::align(256, memory.persistent_bytes, at, room);
      anyattn_metadata* made = nullptr;
      plugin.expect_ok(of.metadata_create(impl, &limits, 0, at, nullptr, &made, plugin.error()));
      of.metadata_destroy(made);
    };
    uint32_t level = 0;
    metadata(chunk);
    CHECK(loaded() == 0);  // before warmup nothing is
    plugin.expect_ok(of.warmup(impl, &decode, nullptr, nullptr, &level, plugin.error()));
    CHECK(level == ANYATTN_GRAPH_ALWAYS);
    CHECK(loaded() == 4);  // attend, merge, plan of the first lane, and the rows' programs
    metadata(decode);
    CHECK(loaded() == 4);
    metadata(chunk);
    CHECK(loaded() == 7);
    plugin.expect_ok(of.warmup(impl, &chunk, nullptr, nullptr, &level, plugin.error()));
    CHECK(loaded() == 7);
  });
  CHECK(loaded() == 0);  // given back
}

}  // namespace

TEST_CASE("prebuilt_code_is_found_without_a_compiler_only_for_what_was_built_and_loaded_by_lanes") {
  REQUIRE(kCompiler != nullptr);
  const Place place;
  OpenPlugin plugin(place.file(), {{"cache", "off"}, {"compiler", "off"}, {"warmup", "compile"}});
  const anyattn_device_facts here = absent_device("sm_90");
  anyattn_device_facts smaller = here;
  smaller.num_multiprocessors = 78;

  CHECK(plugin.reasons(here, kBuilt) == "");
  CHECK(plugin.reasons(smaller, kBuilt) == "");
  CHECK(warm(plugin, smaller, kBuilt) == "");

  for (const std::string& refusal : {plugin.reasons(here, kOther), plugin.reasons(absent_device("sm_80"), kBuilt)})
    CHECK_MESSAGE(refusal == "compiler_version=off (allowed: a run-time compiler, or machine code of just this problem) ",
                  refusal);
  CHECK(warm(plugin, here, kOther).find("machine code of just this problem") != std::string::npos);

  check_loaded_lanes(place);

  for (const auto& entry : fs::directory_iterator(place.code())) std::ofstream(entry.path(), std::ios::app) << "tail";
  CHECK(warm(plugin, here, kBuilt).find("no machine code for this problem") != std::string::npos);
}

// The shim's own words change with hip.h: what it compiles to has run on a device by hand (plugins/portable/README.md).
TEST_CASE("the_text_of_hip_compiles_for_nvidia_through_its_shim") {
  REQUIRE(kCompiler != nullptr);
  const TempDir folder;
  OpenPlugin plugin(ANYATTN_HIP_ON_CUDA_PLUGIN, {{"cache", folder.path()}, {"warmup", "compile"}});
  Shape halves = kBuilt;
  halves.dtype = ANYATTN_DTYPE_FLOAT16;
  CHECK(warm(plugin, absent_device("sm_90"), halves) == "");
  CHECK_FALSE(fs::is_empty(folder.folder()));
}
