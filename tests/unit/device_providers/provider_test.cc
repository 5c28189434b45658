// SPDX-License-Identifier: Apache-2.0
// A device provider through its own table: honest without a driver, right with one.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "provider_file.h"

namespace {

void round_trip(int32_t at) {
  Error error;
  void *memory = nullptr, *stream = nullptr, *before = nullptr, *after = nullptr;
  std::vector<char> sent(1 << 20), got(1 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7);
  const auto& p = provider();

  REQUIRE(p.stream_create(at, &stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_create(at, &before, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_create(at, &after, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(at, sent.size(), &memory, &error.error) == ANYATTN_OK);
  CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0);
  REQUIRE(p.event_record(at, before, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(at, memory, sent.data(), sent.size(), ANYATTN_COPY_HOST_TO_DEVICE, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.fill(at, memory, 0x5a, 16, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(at, got.data(), memory, got.size(), ANYATTN_COPY_DEVICE_TO_HOST, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_record(at, after, stream, &error.error) == ANYATTN_OK);
  float milliseconds = -1;
  REQUIRE(p.event_elapsed(at, before, after, &milliseconds, &error.error) == ANYATTN_OK);
  REQUIRE(p.stream_synchronize(at, stream, &error.error) == ANYATTN_OK);

  CHECK(milliseconds > 0);
  CHECK(std::string(got.data(), 16) == std::string(16, 0x5a));
  CHECK(std::memcmp(got.data() + 16, sent.data() + 16, sent.size() - 16) == 0);
  p.free(at, memory);
  p.event_destroy(at, before);
  p.event_destroy(at, after);
  p.stream_destroy(at, stream);
}

void ask_too_much(int32_t at) {
  Error error;
  void* memory = nullptr;

  CHECK(provider().alloc(at, uint64_t{1} << 60, &memory, &error.error) == ANYATTN_OUT_OF_MEMORY);

  CHECK(memory == nullptr);
  CHECK(std::string(error.text).find("1152921504606846976 bytes") != std::string::npos);
}

void replay(int32_t at) {
  Error error;
  const auto& p = provider();
  void *stream = nullptr, *from = nullptr, *to = nullptr, *graph = nullptr;
  REQUIRE(p.stream_create(at, &stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(at, 256, &from, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(at, 256, &to, &error.error) == ANYATTN_OK);

  REQUIRE(p.graph_capture_begin(at, stream, &error.error) == ANYATTN_OK);
  void* refused = nullptr;
  CHECK(p.alloc(at, 256, &refused, &error.error) == ANYATTN_CAPTURE_VIOLATION);
  (void)p.graph_capture_end(at, stream, &graph, &error.error);  // invalidated by the allocation
  p.graph_destroy(at, graph);
  REQUIRE(p.graph_capture_begin(at, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(at, to, from, 256, ANYATTN_COPY_DEVICE_TO_DEVICE, stream, &error.error) == ANYATTN_OK);
  REQUIRE(p.graph_capture_end(at, stream, &graph, &error.error) == ANYATTN_OK);

  for (const uint8_t byte : {uint8_t{1}, uint8_t{200}}) {
    unsigned char got[256] = {};
    REQUIRE(p.fill(at, from, byte, 256, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.graph_launch(at, graph, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.copy(at, got, to, 256, ANYATTN_COPY_DEVICE_TO_HOST, stream, &error.error) == ANYATTN_OK);
    REQUIRE(p.stream_synchronize(at, stream, &error.error) == ANYATTN_OK);
    CHECK(got[0] == byte);
    CHECK(got[255] == byte);
  }
  p.graph_destroy(at, graph);
  p.free(at, from);
  p.free(at, to);
  p.stream_destroy(at, stream);
}

// Pinned memory carries a copy, and a stream waits for what another stream has recorded.
void wait_for_the_other_stream(int32_t at) {
  Error error;
  const auto& p = provider();
  constexpr uint64_t kBytes = 64 << 20;
  void *pinned = nullptr, *memory = nullptr, *writer = nullptr, *reader = nullptr, *written = nullptr;
  REQUIRE(p.alloc_pinned(at, kBytes, &pinned, &error.error) == ANYATTN_OK);
  REQUIRE(p.alloc(at, kBytes, &memory, &error.error) == ANYATTN_OK);
  REQUIRE(p.stream_create(at, &writer, &error.error) == ANYATTN_OK);
  REQUIRE(p.stream_create(at, &reader, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_create(at, &written, &error.error) == ANYATTN_OK);
  std::memset(pinned, 0, kBytes);

  for (const uint8_t byte : {uint8_t{1}, uint8_t{2}, uint8_t{77}})
    REQUIRE(p.fill(at, memory, byte, kBytes, writer, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_record(at, written, writer, &error.error) == ANYATTN_OK);
  REQUIRE(p.event_wait(at, written, reader, &error.error) == ANYATTN_OK);
  REQUIRE(p.copy(at, pinned, memory, kBytes, ANYATTN_COPY_DEVICE_TO_HOST, reader, &error.error) == ANYATTN_OK);
  REQUIRE(p.stream_synchronize(at, reader, &error.error) == ANYATTN_OK);

  const std::string got(static_cast<const char*>(pinned), kBytes);
  CHECK(got.find_first_not_of('\115') == std::string::npos);
  p.event_destroy(at, written);
  p.stream_destroy(at, reader);
  p.stream_destroy(at, writer);
  p.free(at, memory);
  p.free_pinned(at, pinned);
}

void refuse_null_capture(int32_t at) {
  Error error;
  CHECK(provider().graph_capture_begin(at, nullptr, &error.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(std::string(error.text).find("the default stream cannot be captured") != std::string::npos);
}

void on_each_device(void (*body)(int32_t at)) {
  for (int32_t at = 0; at < static_cast<int32_t>(devices()); ++at) {
    CAPTURE(at);
    body(at);
  }
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

TEST_CASE("provider_memory_streams_and_events_round_trip") { on_each_device(round_trip); }
TEST_CASE("provider_out_of_memory_names_the_figures") { on_each_device(ask_too_much); }
TEST_CASE("provider_graph_replays_captured_work_on_changed_memory") { on_each_device(replay); }
TEST_CASE("provider_stream_waits_for_the_event_of_another") { on_each_device(wait_for_the_other_stream); }
TEST_CASE("provider_refuses_to_capture_the_default_stream") { on_each_device(refuse_null_capture); }
