// SPDX-License-Identifier: Apache-2.0
// Blocks and scratch: who gets which block, growth, locking, threads that come and go. Run under TSan too.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu_provider.h"
#include "device/status_error.h"
#include "fake_provider.h"
#include "memory/block.h"
#include "memory/scratch.h"

using anyattn::ErrorBuffer;
using anyattn::StatusError;
using anyattn::device::DeviceId;
using anyattn::memory::Block;
using anyattn::memory::Place;
using anyattn::memory::Scratch;

namespace {

constexpr DeviceId kCuda{ANYATTN_DEVICE_CUDA, 0};
constexpr DeviceId kCpu{ANYATTN_DEVICE_CPU, 0};

struct Lines {
  std::mutex mutex;
  std::vector<std::string> lines;
  Scratch::LogLine sink() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex);
      lines.push_back(line);
    };
  }
};

void* lend(Scratch& scratch, void* stream, uint64_t bytes) {
  void* block = nullptr;
  ErrorBuffer error;
  const int32_t status = scratch.lend(stream, bytes, &block, error.get());
  INFO(error.text());
  CHECK(status == ANYATTN_OK);
  return block;
}

void* stream_at(uintptr_t number) { return reinterpret_cast<void*>(number * 64); }

}  // namespace

TEST_CASE("block_is_zeroed_once_and_freed") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  {
    Block block(provider, kCuda, 1000, Place::kDevice, "group x");
    block.zero(nullptr, "group x");
    CHECK(static_cast<char*>(block.get())[999] == 0);
    Block moved = std::move(block);
    CHECK(moved.bytes() == 1000);
    CHECK(fake::provider_state().live_blocks == 1);
    CHECK(fake::provider_state().fills == 1);
  }
  CHECK(fake::provider_state().live_blocks == 0);
}

TEST_CASE("block_names_who_and_how_much_on_failure") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  fake::provider_state().fail_alloc = true;
  try {
    Block block(provider, kCuda, 4096, Place::kPinned, "group x");
    FAIL("no exception");
  } catch (const StatusError& error) {
    CHECK(error.status() == ANYATTN_MEMORY_NOT_NOW);
    CHECK(error.what() == std::string("group x: 4096 bytes of pinned memory could not be had: fake: planted shortage"));
  }
  fake::reset_provider();
  fake::provider_state().misalign = 64;
  CHECK_THROWS_AS(Block(provider, kCuda, 4096, Place::kDevice, "group x"), StatusError);
  CHECK(fake::provider_state().live_blocks == 0);
}

TEST_CASE("scratch_lends_one_block_a_stream_and_logs_each_once") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  Lines lines;
  {
    Scratch scratch(provider, kCuda, lines.sink());
    scratch.reserve(1000, "group a");
    void* first = lend(scratch, stream_at(1), 1000);
    void* second = lend(scratch, stream_at(2), 500);
    CHECK(first != second);
    for (int repeat = 0; repeat < 10; ++repeat) {
      CHECK(lend(scratch, stream_at(1), 800) == first);
      CHECK(lend(scratch, stream_at(2), 1000) == second);
    }
    // Another thread on the same stream gets the same block.
    std::thread other([&] { CHECK(lend(scratch, stream_at(1), 10) == first); });
    other.join();
    CHECK(fake::provider_state().allocs == 2);
    REQUIRE(lines.lines.size() == 2);
    CHECK(lines.lines[0] == "scratch of cuda: 1000 bytes allocated for a stream");
  }
  CHECK(fake::provider_state().live_blocks == 0);
}

TEST_CASE("scratch_keeps_outgrown_blocks_of_a_stream_for_its_graphs") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  Scratch scratch(provider, kCuda, [](const std::string&) {});
  scratch.reserve(1000, "group a");
  void* small = lend(scratch, stream_at(1), 1000);
  scratch.reserve(9000, "group b");
  void* large = lend(scratch, stream_at(1), 9000);
  CHECK(small != large);
  CHECK(fake::provider_state().live_blocks == 2);
  std::memset(small, 1, 1000);
}

TEST_CASE("scratch_growth_after_lock_is_an_error_with_both_numbers") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  Scratch scratch(provider, kCuda, [](const std::string&) {});
  scratch.reserve(1000, "group a");
  lend(scratch, stream_at(1), 1000);
  scratch.lock();
  CHECK(scratch.locked());
  scratch.reserve(1000, "group b");  // no growth
  try {
    scratch.reserve(1001, "group c");
    FAIL("no exception");
  } catch (const StatusError& error) {
    CHECK(error.status() == ANYATTN_OUT_OF_MEMORY);
    CHECK(error.what() ==
          std::string("group c: needs 1001 bytes of scratch on cuda, memory was locked at 1000; make every group "
                      "before memory is locked"));
  }
  CHECK(scratch.reserved_bytes() == 1000);
}

TEST_CASE("scratch_never_allocates_for_a_stream_that_may_be_captured") {
  fake::reset_provider();
  const anyattn_device_provider provider = fake::provider(ANYATTN_DEVICE_CUDA, true);
  Scratch scratch(provider, kCuda, [](const std::string&) {});
  scratch.reserve(1000, "group a");
  void* known = lend(scratch, stream_at(1), 1000);
  scratch.lock();
  CHECK(lend(scratch, stream_at(1), 1000) == known);
  ErrorBuffer error;
  void* block = nullptr;
  CHECK(scratch.lend(stream_at(2), 1000, &block, error.get()) == ANYATTN_CAPTURE_VIOLATION);
  CHECK(error.text().find("call once on the stream before locking, or pass args.scratch") != std::string::npos);
  CHECK(fake::provider_state().allocs == 1);
}

TEST_CASE("scratch_refuses_more_than_was_reserved") {
  Scratch scratch(anyattn::device::cpu_provider(), kCpu, [](const std::string&) {});
  scratch.reserve(64, "group a");
  ErrorBuffer error;
  void* block = nullptr;
  CHECK(scratch.lend(nullptr, 65, &block, error.get()) == ANYATTN_OUT_OF_MEMORY);
  CHECK(error.text() == "scratch of cpu: 65 bytes asked for, 64 were reserved");
}

TEST_CASE("scratch_of_the_cpu_belongs_to_the_calling_thread") {
  Lines lines;
  Scratch scratch(anyattn::device::cpu_provider(), kCpu, lines.sink());
  scratch.reserve(4096, "group a");
  scratch.lock();  // the CPU has no graphs: a new thread still gets its block
  void* mine = lend(scratch, nullptr, 4096);
  CHECK(lend(scratch, stream_at(5), 4096) == mine);  // the stream says nothing here
  std::atomic<bool> apart{true};
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&, index] {
      for (int repeat = 0; repeat < 500; ++repeat) {
        auto* block = static_cast<unsigned char*>(lend(scratch, nullptr, 4096));
        if (block == mine) apart = false;
        std::memset(block, index, 4096);
        for (int i = 0; i < 4096; i += 512) {
          if (block[i] != index) apart = false;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(apart);
  CHECK(lines.lines.size() <= 5);
}

TEST_CASE("scratch_of_an_ended_thread_is_used_again") {
  Lines lines;
  Scratch scratch(anyattn::device::cpu_provider(), kCpu, lines.sink());
  scratch.reserve(4096, "group a");
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::thread thread([&] { lend(scratch, nullptr, 4096); });
    thread.join();
  }
  CHECK(lines.lines.size() == 1);
}

TEST_CASE("scratch_may_go_before_the_threads_that_used_it") {
  for (int repeat = 0; repeat < 20; ++repeat) {
    auto scratch = std::make_unique<Scratch>(anyattn::device::cpu_provider(), kCpu, [](const std::string&) {});
    scratch->reserve(256, "group a");
    std::atomic<int> stage{0};
    std::thread thread([&] {
      lend(*scratch, nullptr, 256);
      stage = 1;
      while (stage != 2) std::this_thread::yield();
    });
    while (stage != 1) std::this_thread::yield();
    scratch.reset();
    stage = 2;
    thread.join();
    // A later scratch object on this thread must not be served from the old one's entry.
    Scratch next(anyattn::device::cpu_provider(), kCpu, [](const std::string&) {});
    next.reserve(256, "group b");
    std::memset(lend(next, nullptr, 256), 1, 256);
  }
}
