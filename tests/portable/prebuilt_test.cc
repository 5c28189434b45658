// SPDX-License-Identifier: Apache-2.0
// Code made for a device that is not here, and taken without a compiler: the problem that was built, on devices of every size.
#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/run_time_compiler.hpp"
#include "prebuild/absent_device.h"
#include "temp_dir.h"

namespace {

namespace fs = std::filesystem;
using anyattn::portable::absent_device;
using anyattn::portable::OpenPlugin;
using anyattn::portable::problem_of;
using anyattn::portable::Shape;
using anyattn::testing::TempDir;

constexpr Shape kBuilt{4, 2, 32, 64, ANYATTN_DTYPE_BFLOAT16}, kOther{4, 4, 32, 64, ANYATTN_DTYPE_BFLOAT16};

// Where the toolkit lies nowhere that the plugin looks: what is open already is found by its name.
const void* const kCompiler = dlopen(ANYATTN_NVRTC, RTLD_NOW | RTLD_LOCAL);

anyattn_limits limits_of(uint32_t query_len) {
  return {ANYATTN_LIMITS_SIZE, 4, 4 * query_len, query_len, 4096, 4096 / kBuilt.block_size};
}

void* const kDriver = dlopen(ANYATTN_COUNTING_DRIVER, RTLD_NOW | RTLD_LOCAL);

// A copy of the plugin with a folder `prebuilt` beside it that holds kBuilt for sm_90; what its decode needs also lies in a folder
// of its own. A driver that counts what it loads stands in for the device's: nothing runs.
class Place {
 public:
  Place() {
    fs::copy_file(ANYATTN_PORTABLE_CUDA_PLUGIN, file());
    OpenPlugin plugin(file(), {{"cache", code().string()}});
    plugin.with_impl(absent_device("sm_90"), kBuilt, [&](const anyattn_backend& of, anyattn_impl* impl) {
      const anyattn_limits decode = limits_of(1);
      uint32_t level = 0;
      plugin.expect_ok(of.warmup(impl, &decode, nullptr, nullptr, &level, plugin.error()));
    });
    fs::copy(code(), decode_code());
    fs::permissions(decode_code(), fs::perms::owner_all);
    fs::create_directory(folder_ / "alone");
    fs::copy_file(file(), alone());
    fs::create_directory(folder_ / "linked");
    fs::copy_file(file(), linked());
    fs::create_directory_symlink(code(), folder_ / "linked/prebuilt");
    OpenPlugin(file(), {{"cache", code().string()}, {"warmup", "compile"}}).warm(absent_device("sm_90"), kBuilt);
  }
  std::string file() const { return folder_ / "anyattn_portable_cuda.so"; }
  fs::path code() const { return folder_ / "prebuilt"; }
  std::string decode_code() const { return folder_ / "decode"; }
  std::string alone() const { return folder_ / "alone/anyattn_portable_cuda.so"; }    // with nothing beside it
  std::string linked() const { return folder_ / "linked/anyattn_portable_cuda.so"; }  // as a host's copy, with a link beside it

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

// warmup loads the lanes that its limits need, metadata of wider ones the rest.
void check_loaded_lanes(const Place& place) {
  const auto loaded = reinterpret_cast<int (*)()>(dlsym(kDriver, "modules_loaded"));
  REQUIRE(static_cast<bool>(loaded));
  OpenPlugin plugin(place.file(), {{"cache", "off"}, {"compiler", "off"}});
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
    CHECK(loaded() == 5);  // attend, merge, plan of the first lane; the rows' program; merge_states
    metadata(decode);
    CHECK(loaded() == 5);
    metadata(chunk);
    CHECK(loaded() == 8);
    plugin.expect_ok(of.warmup(impl, &chunk, nullptr, nullptr, &level, plugin.error()));
    CHECK(loaded() == 8);
  });
  CHECK(loaded() == 0);  // given back
}

// Code of short queries alone is enough for a problem whose phase is decode, as far as the limits reach no further.
void check_decode_alone(const Place& place) {
  OpenPlugin plugin(place.alone(), {{"cache", place.decode_code()}, {"compiler", "off"}});
  const anyattn_device_facts here = absent_device("sm_90");
  anyattn_problem problem = problem_of(kBuilt);
  CHECK(plugin.reasons(here, kBuilt.backend(), problem).starts_with("compiler_version=off"));
  problem.phase = ANYATTN_PHASE_DECODE;
  CHECK(plugin.reasons(here, kBuilt.backend(), problem) == "");
  const auto warm = [&](const anyattn_backend& of, anyattn_impl* impl) {
    const anyattn_limits decode = limits_of(1), chunk = limits_of(512);
    uint32_t level = 0;
    CHECK(of.warmup(impl, &decode, nullptr, nullptr, &level, plugin.error()) == ANYATTN_OK);
    CHECK(level == ANYATTN_GRAPH_ALWAYS);
    CHECK(of.warmup(impl, &chunk, nullptr, nullptr, &level, plugin.error()) == ANYATTN_UNSUPPORTED);
    CHECK(std::string(plugin.error_text()).find("no machine code for this problem's queries longer than 8, and ") !=
          std::string::npos);
  };
  plugin.with_impl(here, kBuilt.backend(), problem, warm);
}

}  // namespace

TEST_CASE("prebuilt_code_is_found_without_a_compiler_only_for_what_was_built_and_loaded_by_lanes") {
  REQUIRE(kCompiler != nullptr);
  REQUIRE(kDriver != nullptr);
  const Place place;
  OpenPlugin plugin(place.file(), {{"cache", "off"}, {"compiler", "off"}, {"warmup", "compile"}});
  const anyattn_device_facts here = absent_device("sm_90");
  anyattn_device_facts smaller = here;
  smaller.num_multiprocessors = 78;

  CHECK(plugin.reasons(here, kBuilt) == "");
  CHECK(plugin.reasons(smaller, kBuilt) == "");
  CHECK(warm(plugin, smaller, kBuilt) == "");
  OpenPlugin copy(place.linked(), {{"cache", "off"}, {"compiler", "off"}, {"warmup", "compile"}});
  CHECK(warm(copy, here, kBuilt) == "");

  for (const std::string& refusal : {plugin.reasons(here, kOther), plugin.reasons(absent_device("sm_80"), kBuilt)})
    CHECK_MESSAGE(refusal == "compiler_version=off (allowed: a run-time compiler, or machine code of just this problem) ",
                  refusal);
  CHECK(warm(plugin, here, kOther).find("machine code of just this problem") != std::string::npos);

  check_loaded_lanes(place);
  check_decode_alone(place);

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

TEST_CASE("a_report_says_where_no_device_has_run_the_kernels") {
  OpenPlugin plugin(ANYATTN_PORTABLE_CUDA_PLUGIN, {{"cache", "off"}});
  const auto kernels = [&](const char* architecture, const Shape& shape) {
    std::string words;
    CHECK(plugin.reasons(absent_device(architecture), shape.backend(), problem_of(shape), &words) == "");
    return words;
  };
  for (const Shape& shape : {kBuilt, Shape{16, 0, 576, 64, ANYATTN_DTYPE_BFLOAT16}}) {
    CHECK(kernels("sm_90", shape).ends_with(" programs a multiprocessor"));
    CHECK(kernels("sm_86", shape).ends_with(" programs a multiprocessor; no device of sm_86 has run them yet"));
  }
}

TEST_CASE("a_compiler_newer_than_the_driver_or_older_than_the_device_is_none") {
  using namespace anyattn;
  REQUIRE(kCompiler != nullptr);
  const char* const files[] = {"libnone.so.1", ANYATTN_NVRTC};
  const CompilerNames names{files, kNvrtc.version_function, kNvrtc.driver_unit, false};
  const uint32_t version = open_compiler(names, 0).version, major = version / 1000;
  REQUIRE(major >= 12);
  CHECK(open_compiler(names, version).version == version);
  CHECK(open_compiler(names, 1000 * (major + 1)).version == version);
  const RunTimeCompiler none = open_compiler(names, 1000 * major - 10);
  CHECK(none.library == nullptr);
  CHECK_MESSAGE(none.why == text(compiler_version_text(version), " is newer than the driver's ", major - 1, ".x"), none.why);

  OpenPlugin plugin(ANYATTN_PORTABLE_CUDA_PLUGIN, {{"cache", "off"}});
  anyattn_device_facts device = absent_device("sm_90");
  CHECK(plugin.reasons(device, kBuilt) == "");
  device.driver_version = 1000 * major - 10;
  CHECK((plugin.reasons(device, kBuilt) == "") == (open_compiler(kNvrtc, device.driver_version).library != nullptr));
  device.driver_version = version;
  device.architecture = "sm_990";
  device.arch_major = 99;
  const std::string refusal = plugin.reasons(device, kBuilt);
  CHECK_MESSAGE(refusal.find(", which does not compile for sm_990") != std::string::npos, refusal);
}
