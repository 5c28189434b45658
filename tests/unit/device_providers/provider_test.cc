// SPDX-License-Identifier: Apache-2.0
// A device provider through its own table: honest without a driver, right with one.
#include <anyattn/plugin.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

struct Error {
  char text[512] = {};
  anyattn_error error{text, sizeof text, 0, 0, 0};
};

anyattn_host fake_host() {
  static const anyattn_cpu_facts cpu{ANYATTN_CPU_FACTS_SIZE, ANYATTN_CPU_ARCH_X86_64, 0, 1, 0, 0, 0};
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
  host.log = [](void*, int32_t, const char*) {};
  host.parallel_for = [](void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) -> int32_t {
    fn(argument, 0, count, 0);
    return ANYATTN_OK;
  };
  host.num_workers = 1;
  host.cpu = &cpu;
  return host;
}

const anyattn_host kHost = fake_host();

const anyattn_device_provider& provider() {
  static const anyattn_device_provider* const found = [] {
    void* library = dlopen(ANYATTN_PROVIDER_FILE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library, dlerror());
    const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
    REQUIRE(static_cast<bool>(entry));
    const anyattn_plugin* plugin = nullptr;
    REQUIRE(entry(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, &kHost, &plugin, nullptr) == ANYATTN_OK);
    REQUIRE(plugin->num_providers == 1);
    return plugin->providers[0];
  }();
  return *found;
}

// The number of devices; prints why there are none.
uint32_t devices() {
  Error why;
  uint32_t count = 99;
  REQUIRE(provider().enumerate(&kHost, &count, &why.error) == ANYATTN_OK);
  if (count == 0) MESSAGE("SKIPPED: ", why.text);
  return count;
}

}  // namespace

TEST_CASE("provider_without_a_device_says_why_in_one_sentence") {
  Error why;
  uint32_t count = 99;

  REQUIRE(provider().enumerate(&kHost, &count, &why.error) == ANYATTN_OK);

  REQUIRE(count != 99);
  CHECK((count > 0) == (std::string(why.text).empty()));
  if (count == 0) {
    CHECK(std::string(why.text).find(ANYATTN_PROVIDER_DEVICE ": no ") == 0);
    anyattn_device_facts facts{};
    facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
    CHECK(provider().facts(&kHost, 0, &facts, &why.error) == ANYATTN_NOT_FOUND);
  }
}

TEST_CASE("provider_refuses_a_host_whose_range_does_not_meet") {
  void* library = dlopen(ANYATTN_PROVIDER_FILE, RTLD_NOW | RTLD_LOCAL);
  const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
  const anyattn_plugin* plugin = nullptr;
  Error error;

  const int32_t status = entry(ANYATTN_ABI_VERSION(0, 90), ANYATTN_ABI_VERSION(0, 95), &kHost, &plugin, &error.error);

  CHECK(status == ANYATTN_ABI_MISMATCH);
  CHECK(std::string(error.text).find("0.90 to 0.95") != std::string::npos);
}

TEST_CASE("provider_memory_streams_and_events_round_trip") {
  if (devices() == 0) return;
  Error error;
  void *memory = nullptr, *stream = nullptr, *before = nullptr, *after = nullptr;
  std::vector<char> sent(1 << 20), got(1 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7);
  const auto& p = provider();

  REQUIRE(p.stream_create(0, &stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_create(0, &before, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_create(0, &after, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(0, sent.size(), &memory, &error.error) == ANYATTN_OK);
  CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
  REQUIRE(p.event_record(0, before, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(0, memory, sent.data(), sent.size(), ANYATTN_COPY_HOST_TO_DEVICE, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.fill(0, memory, 0x5a, 16, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(0, got.data(), memory, got.size(), ANYATTN_COPY_DEVICE_TO_HOST, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_record(0, after, stream, &error.error) == ANYATTN_OK);
  float milliseconds = -1;
  REQUIRE(p.event_elapsed(0, before, after, &milliseconds, &error.error) == ANYATTN_OK);
  REQUIRE(p.stream_synchronize(0, stream, &error.error) == ANYATTN_OK);

  CHECK(milliseconds > 0);
  CHECK(std::string(got.data(), 16) == std::string(16, 0x5a));
  CHECK(std::memcmp(got.data() + 16, sent.data() + 16, sent.size() - 16) == 0);
  p.free(0, memory);
  p.event_destroy(0, before);
  p.event_destroy(0, after);
  p.stream_destroy(0, stream);
}

TEST_CASE("provider_out_of_memory_names_the_figures") {
  if (devices() == 0) return;
  Error error;
  void* memory = nullptr;

  CHECK(provider().alloc(0, uint64_t{1} << 60, &memory, &error.error) == ANYATTN_OUT_OF_MEMORY);

  CHECK(memory == nullptr);
  CHECK(std::string(error.text).find("1152921504606846976 bytes") != std::string::npos);
}

TEST_CASE("provider_graph_replays_captured_work_on_changed_memory") {
  if (devices() == 0) return;
  Error error;
  const auto& p = provider();
  void *stream = nullptr, *from = nullptr, *to = nullptr, *graph = nullptr;
  REQUIRE(p.stream_create(0, &stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(0, 256, &from, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(0, 256, &to, &error.error) == ANYATTN_OK);

  REQUIRE(p.graph_capture_begin(0, stream, &error.error) == ANYATTN_OK);
  void* refused = nullptr;
  CHECK(p.alloc(0, 256, &refused, &error.error) == ANYATTN_CAPTURE_VIOLATION);
  (void)p.graph_capture_end(0, stream, &graph, &error.error);  // invalidated by the allocation
  p.graph_destroy(0, graph);
  REQUIRE(p.graph_capture_begin(0, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(0, to, from, 256, ANYATTN_COPY_DEVICE_TO_DEVICE, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.graph_capture_end(0, stream, &graph, &error.error) == ANYATTN_OK);

  for (const uint8_t byte : {uint8_t{1}, uint8_t{200}}) {
    unsigned char got[256] = {};
    REQUIRE(p.fill(0, from, byte, 256, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.graph_launch(0, graph, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.copy(0, got, to, 256, ANYATTN_COPY_DEVICE_TO_HOST, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.stream_synchronize(0, stream, &error.error) == ANYATTN_OK);
    CHECK(got[0] == byte);
    CHECK(got[255] == byte);
  }
  p.graph_destroy(0, graph);
  p.free(0, from);
  p.free(0, to);
  p.stream_destroy(0, stream);
}
