// SPDX-License-Identifier: Apache-2.0
// Streams, events and graphs through the C API, on a device without hardware and on the CPU, which has none.
#include "anyattn/streams.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr anyattn::Device kPretended{ANYATTN_DEVICE_CUDA, 0};
constexpr uint32_t kHostToDevice = 1;

anyattn::Runtime pretended() {
  const auto file = std::filesystem::temp_directory_path() / "anyattn_streams_test.yaml";
  std::ofstream(file) << "version: 1\nplugins: {search: [" << ANYATTN_PRETEND_DIR << "]}\n";
  anyattn::Runtime runtime({file.string(), "", "error", 2});
  std::filesystem::remove(file);
  runtime.resolve_device("cuda:0");  // opens the provider
  return runtime;
}

void fill(const anyattn::Runtime& runtime, const anyattn::DeviceMemory& memory, uint8_t byte, void* stream) {
  anyattn::check(anyattn_device_fill, runtime.get(), kPretended.kind, kPretended.ordinal, memory.get(), byte, memory.bytes(),
                 stream);
}

template <class Body>
std::string refusal(Body&& body) {
  try {
    body();
  } catch (const anyattn::RuntimeError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("graph_holds_what_was_queued_and_runs_it_with_what_memory_holds_then") {
  const anyattn::Runtime runtime = pretended();
  const anyattn::DeviceStream stream(runtime, kPretended);
  const anyattn::DeviceMemory from(runtime, kPretended, 512), to(runtime, kPretended, 512);
  fill(runtime, from, 1, stream.get());
  fill(runtime, to, 0, stream.get());

  const anyattn::DeviceGraph graph(runtime, kPretended, stream.get(), [&] {
    runtime.copy(kPretended, to.get(), from.get(), from.bytes(), kHostToDevice, stream.get());
  });
  const auto first = [&] { return static_cast<const uint8_t*>(to.get())[511]; };  // the pretended device is host memory
  CHECK(first() == 0);
  graph.launch(stream.get());
  CHECK(first() == 1);
  fill(runtime, from, 2, stream.get());
  graph.launch(stream.get());
  CHECK(first() == 2);
}

TEST_CASE("graph_that_fails_under_capture_leaves_the_stream_free") {
  const anyattn::Runtime runtime = pretended();
  const anyattn::DeviceStream stream(runtime, kPretended);
  const std::string text = refusal([&] {
    const anyattn::DeviceGraph graph(runtime, kPretended, stream.get(),
                                     [&] { const anyattn::DeviceMemory memory(runtime, kPretended, 512); });
  });
  CHECK(text.find("while a stream is captured") != std::string::npos);
  const anyattn::DeviceMemory memory(runtime, kPretended, 512);
  fill(runtime, memory, 7, stream.get());
  CHECK(static_cast<const uint8_t*>(memory.get())[0] == 7);
}

TEST_CASE("event_counts_time_between_two_points_of_a_stream") {
  const anyattn::Runtime runtime = pretended();
  anyattn::DeviceEvent before(runtime, kPretended), after(runtime, kPretended);
  const anyattn::DeviceMemory memory(runtime, kPretended, 1 << 20);
  before.record(nullptr);
  fill(runtime, memory, 1, nullptr);
  after.record(nullptr);
  CHECK(after.milliseconds_since(before) > 0);
}

TEST_CASE("streams_say_in_one_sentence_what_cannot_be") {
  const anyattn::Runtime runtime = pretended();
  const anyattn::Device cpu;
  const anyattn::DeviceStream stream(runtime, cpu);
  const std::string none = refusal([&] { const anyattn::DeviceGraph graph(runtime, cpu, stream.get(), [] {}); });
  CHECK(none == "anyattn_device_graph_begin: devices of kind cpu capture no graphs; queue the calls themselves");
  CHECK(anyattn_device_graph_launch(runtime.get(), kPretended.kind, 0, nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_device_stream_create(nullptr, 0, 0, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(anyattn_device_stream_create(runtime.get(), ANYATTN_DEVICE_HIP, 0, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  void* made = &made;
  CHECK(anyattn_device_stream_create(runtime.get(), ANYATTN_DEVICE_HIP, 0, &made, nullptr) == ANYATTN_NOT_FOUND);
  CHECK(made == nullptr);
}

}  // namespace
