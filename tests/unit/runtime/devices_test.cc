// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "device/cpu_provider.h"
#include "device/devices.h"
#include "device/status_error.h"
#include "fake_provider.h"

using anyattn::ErrorBuffer;
using anyattn::StatusError;
using anyattn::device::DeviceId;
using anyattn::device::Devices;

namespace {

struct Failure {
  int32_t status = ANYATTN_OK;
  std::string text;
};

Failure resolve_failure(const Devices& devices, const std::string& text) {
  try {
    devices.resolve(text);
  } catch (const StatusError& error) {
    return {error.status(), error.what()};
  }
  return {};
}

}  // namespace

TEST_CASE("devices_resolve_auto_to_the_first_present_kind") {
  fake::reset_provider();
  Devices devices(nullptr);
  CHECK(devices.resolve("auto").kind == ANYATTN_DEVICE_CPU);
  CHECK(devices.resolve("cpu").kind == ANYATTN_DEVICE_CPU);
  CHECK(devices.resolve("cpu:0").ordinal == 0);

  REQUIRE(devices.add(fake::provider(ANYATTN_DEVICE_CUDA, true), nullptr, nullptr, "fake"));
  CHECK(devices.resolve("auto").kind == ANYATTN_DEVICE_CUDA);
  CHECK(devices.resolve("cuda:1").ordinal == 1);
  CHECK(devices.facts({ANYATTN_DEVICE_CUDA, 1}).architecture == std::string("sm_90"));
}

TEST_CASE("devices_say_why_one_is_not_there") {
  fake::reset_provider();
  Devices devices(nullptr);
  Failure failure = resolve_failure(devices, "cuda:0");
  CHECK(failure.status == ANYATTN_NOT_FOUND);
  CHECK(failure.text == "device cuda: not present: no loaded plugin brings a device provider for cuda");

  devices.explain_missing(ANYATTN_DEVICE_HIP, "plugin org.example.hip failed at open: libamdhip64.so.5 is missing");
  failure = resolve_failure(devices, "hip");
  CHECK(failure.text == "device hip: not present: plugin org.example.hip failed at open: libamdhip64.so.5 is missing");

  fake::provider_state().num_devices = 0;
  fake::provider_state().why_none = "cuda: no driver: libcuda.so.1 is not there";
  REQUIRE(devices.add(fake::provider(ANYATTN_DEVICE_CUDA, true), nullptr, nullptr, "fake"));
  failure = resolve_failure(devices, "cuda");
  CHECK(failure.text == "device cuda: not present: no driver: libcuda.so.1 is not there");
  CHECK(devices.resolve("auto").kind == ANYATTN_DEVICE_CPU);
  REQUIRE(devices.missing().size() == 2);
  CHECK(devices.missing()[0].reason == "no driver: libcuda.so.1 is not there");

  failure = resolve_failure(devices, "cpu:1");
  CHECK(failure.status == ANYATTN_NOT_FOUND);
  CHECK(failure.text == "device cpu:1: no such device; there are 1, numbered from 0");
}

TEST_CASE("devices_refuse_texts_that_are_no_device") {
  Devices devices(nullptr);
  for (const char* text : {"", "gpu", "CPU", "cpu:", "cpu:x", "cpu:-1", "cpu:0x", ":0", "cpu:99999999999", "cpu:0:1"}) {
    const Failure failure = resolve_failure(devices, text);
    CAPTURE(text);
    CHECK(failure.status == ANYATTN_INVALID_ARGUMENT);
    CHECK(failure.text.find("write auto, cpu, cuda or hip") != std::string::npos);
  }
}

TEST_CASE("devices_keep_the_first_provider_of_a_kind") {
  fake::reset_provider();
  Devices devices(nullptr);
  CHECK_FALSE(devices.add(fake::provider(ANYATTN_DEVICE_CPU, false), nullptr, nullptr, "fake"));
  CHECK(devices.provider(ANYATTN_DEVICE_CPU)->name == std::string("cpu"));
  CHECK(devices.provider(ANYATTN_DEVICE_CUDA) == nullptr);
}

TEST_CASE("cpu_provider_gives_aligned_memory_and_refuses_what_never_fits") {
  const anyattn_device_provider& cpu = anyattn::device::cpu_provider();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{3} << 20}) {
    void* memory = nullptr;
    REQUIRE(cpu.alloc(0, bytes, &memory, nullptr) == ANYATTN_OK);
    const uint64_t alignment = bytes >= (uint64_t{2} << 20) ? uint64_t{2} << 20 : 256;
    CHECK(reinterpret_cast<uintptr_t>(memory) % alignment == 0);
    REQUIRE(cpu.fill(0, memory, 0x5a, bytes, nullptr, nullptr) == ANYATTN_OK);
    CHECK(static_cast<unsigned char*>(memory)[bytes - 1] == 0x5a);
    cpu.free(0, memory);
  }
  cpu.free(0, nullptr);

  ErrorBuffer error;
  void* memory = &error;
  CHECK(cpu.alloc(0, UINT64_MAX, &memory, error.get()) == ANYATTN_OUT_OF_MEMORY);
  CHECK(memory == nullptr);
  CHECK(error.text().find("18446744073709551615 bytes asked for") != std::string::npos);
  CHECK(cpu.alloc(1, 16, &memory, error.get()) == ANYATTN_NOT_FOUND);
  CHECK(error.text() == "cpu: there is no device cpu:1; the only one is cpu:0");
}

// VmFlags of the mapping that holds an address, from the kernel's own list.
static std::string flags_of(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool is_inside = false;
  while (std::getline(maps, line)) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      is_inside = begin <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    } else if (is_inside && line.rfind("VmFlags:", 0) == 0) {
      return line + " ";
    }
  }
  return "";
}

TEST_CASE("cpu_provider_asks_for_huge_pages_for_large_blocks") {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) return;  // this kernel knows none
  const anyattn_device_provider& cpu = anyattn::device::cpu_provider();
  void* memory = nullptr;
  REQUIRE(cpu.alloc(0, uint64_t{8} << 20, &memory, nullptr) == ANYATTN_OK);
  CHECK(flags_of(memory).find(" hg ") != std::string::npos);
  cpu.free(0, memory);
}

TEST_CASE("cpu_provider_copies_times_and_has_no_graphs") {
  const anyattn_device_provider& cpu = anyattn::device::cpu_provider();
  char to[4] = {};
  CHECK(cpu.copy(0, to, "abc", 4, ANYATTN_COPY_HOST_TO_DEVICE, nullptr, nullptr) == ANYATTN_OK);
  CHECK(std::strcmp(to, "abc") == 0);
  CHECK(cpu.copy(0, to, "abc", 4, 9, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);

  void* stream = nullptr;
  void* from = nullptr;
  void* until = nullptr;
  REQUIRE(cpu.stream_create(0, &stream, nullptr) == ANYATTN_OK);
  REQUIRE(cpu.event_create(0, &from, nullptr) == ANYATTN_OK);
  REQUIRE(cpu.event_create(0, &until, nullptr) == ANYATTN_OK);
  CHECK(cpu.event_record(0, from, stream, nullptr) == ANYATTN_OK);
  CHECK(cpu.event_record(0, until, stream, nullptr) == ANYATTN_OK);
  float milliseconds = -1;
  CHECK(cpu.event_elapsed(0, from, until, &milliseconds, nullptr) == ANYATTN_OK);
  CHECK(milliseconds >= 0);
  cpu.event_destroy(0, from);
  cpu.event_destroy(0, until);
  cpu.stream_destroy(0, stream);
  const bool has_graphs = cpu.graph_capture_begin != nullptr;
  CHECK_FALSE(has_graphs);
}
