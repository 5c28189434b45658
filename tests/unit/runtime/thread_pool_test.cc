// SPDX-License-Identifier: Apache-2.0
// The fork-join pool: every item once, worker numbers apart, callers at once, failures, sleep. Run under TSan too.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/thread_pool.h"

using anyattn::device::ThreadPool;

namespace {

struct Counts {
  std::vector<std::atomic<uint32_t>> items;
  std::vector<std::atomic<uint32_t>> inside;  // by worker
  std::atomic<uint32_t> shared_workers{0};
  std::atomic<uint32_t> short_ranges{0};
  uint64_t grain;

  Counts(uint64_t count, uint32_t num_workers, uint64_t least) : items(count), inside(num_workers), grain(least) {}
};

void count_items(void* argument, uint64_t begin, uint64_t end, uint32_t worker) {
  auto& counts = *static_cast<Counts*>(argument);
  if (counts.inside.at(worker).fetch_add(1) != 0) counts.shared_workers.fetch_add(1);
  if (end - begin < counts.grain && end != counts.items.size()) counts.short_ranges.fetch_add(1);
  for (uint64_t i = begin; i < end; ++i) counts.items[i].fetch_add(1);
  counts.inside[worker].fetch_sub(1);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TEST_CASE("thread_pool_runs_every_item_once_with_its_own_worker") {
  for (const uint32_t num_workers : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(num_workers);
    CHECK(pool.num_workers() == num_workers);
    for (const uint64_t count : {0u, 1u, 2u, 7u, 100u, 1000u}) {
      for (const uint64_t grain : {0u, 1u, 3u, 64u, 5000u}) {
        Counts counts(count, num_workers, grain);
        for (int repeat = 0; repeat < 5; ++repeat) {
          REQUIRE(pool.parallel_for(count, grain, count_items, &counts) == ANYATTN_OK);
        }
        CAPTURE(num_workers);
        CAPTURE(count);
        CAPTURE(grain);
        bool each_once = true;
        for (const auto& item : counts.items) each_once = each_once && item == 5;
        CHECK(each_once);
        CHECK(counts.shared_workers == 0);
        CHECK(counts.short_ranges == 0);
      }
    }
  }
}

TEST_CASE("thread_pool_runs_below_the_grain_on_the_caller_alone") {
  ThreadPool pool(4);
  struct Seen {
    std::thread::id id;
    int calls = 0;
  } seen;
  const auto note = [](void* argument, uint64_t begin, uint64_t end, uint32_t worker) {
    auto& note_here = *static_cast<Seen*>(argument);
    note_here.id = std::this_thread::get_id();
    ++note_here.calls;
    CHECK(begin == 0);
    CHECK(end == 10);
    CHECK(worker == 0);
  };
  CHECK(pool.parallel_for(10, 10, note, &seen) == ANYATTN_OK);
  CHECK(seen.calls == 1);
  CHECK(seen.id == std::this_thread::get_id());
}

TEST_CASE("thread_pool_uses_more_than_one_thread") {
  ThreadPool pool(2);
  struct Meeting {
    std::atomic<uint32_t> workers{0};
  } meeting;
  // Each range waits until both workers are inside, so one thread alone would not get through in time.
  const auto meet = [](void* argument, uint64_t, uint64_t, uint32_t worker) {
    auto& here = *static_cast<Meeting*>(argument);
    here.workers.fetch_or(1u << worker);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (here.workers != 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  };
  CHECK(pool.parallel_for(2, 1, meet, &meeting) == ANYATTN_OK);
  CHECK(meeting.workers == 3);
}

TEST_CASE("thread_pool_takes_several_callers_at_once") {
  ThreadPool pool(3);
  constexpr uint64_t kCount = 257;
  std::atomic<bool> all_right{true};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        Counts counts(kCount, 3, 1);
        if (pool.parallel_for(kCount, 1, count_items, &counts) != ANYATTN_OK || counts.shared_workers != 0) all_right = false;
        for (const auto& item : counts.items) {
          if (item != 1) all_right = false;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(all_right);
}

TEST_CASE("thread_pool_finishes_a_loop_that_calls_it_again") {
  ThreadPool pool(2);
  struct Nest {
    ThreadPool* pool;
    std::atomic<int> inner{0};
  } nest{&pool, {}};
  const auto outer = [](void* argument, uint64_t begin, uint64_t end, uint32_t) {
    auto& here = *static_cast<Nest*>(argument);
    const auto inner = [](void* counter, uint64_t from, uint64_t to, uint32_t) {
      *static_cast<std::atomic<int>*>(counter) += static_cast<int>(to - from);
    };
    for (uint64_t i = begin; i < end; ++i) here.pool->parallel_for(10, 1, inner, &here.inner);
  };
  CHECK(pool.parallel_for(50, 1, outer, &nest) == ANYATTN_OK);
  CHECK(nest.inner == 500);
}

TEST_CASE("thread_pool_keeps_exceptions_in_and_goes_on") {
  for (const uint32_t num_workers : {1u, 4u}) {
    ThreadPool pool(num_workers);
    const auto throws = [](void*, uint64_t begin, uint64_t end, uint32_t) {
      if (begin <= 13 && 13 < end) throw std::runtime_error("planted");
    };
    for (int repeat = 0; repeat < 20; ++repeat) CHECK(pool.parallel_for(100, 1, throws, nullptr) == ANYATTN_INTERNAL);
    Counts counts(100, num_workers, 1);
    CHECK(pool.parallel_for(100, 1, count_items, &counts) == ANYATTN_OK);
    CHECK(counts.items[99] == 1);
  }
}

TEST_CASE("thread_pool_refuses_a_null_function") {
  ThreadPool pool(2);
  CHECK(pool.parallel_for(10, 1, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("thread_pool_splits_counts_near_the_end_of_the_range") {
  ThreadPool pool(3);
  struct Ends {
    std::atomic<uint64_t> items{0};
    std::atomic<uint64_t> last{0};
  } ends;
  const auto note = [](void* argument, uint64_t begin, uint64_t end, uint32_t) {
    auto& here = *static_cast<Ends*>(argument);
    here.items.fetch_add(end - begin);
    uint64_t last = here.last;
    while (last < end && !here.last.compare_exchange_weak(last, end)) {
    }
  };
  CHECK(pool.parallel_for(UINT64_MAX, 1, note, &ends) == ANYATTN_OK);
  CHECK(ends.items == UINT64_MAX);
  CHECK(ends.last == UINT64_MAX);
}

TEST_CASE("thread_pool_sleeps_when_idle") {
  ThreadPool pool(4);
  Counts counts(1000, 4, 1);
  REQUIRE(pool.parallel_for(1000, 1, count_items, &counts) == ANYATTN_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // Three spinning helpers would burn up to 0.6 s on three cores, 0.4 on two.
  CHECK(cpu_seconds() - before < 0.05);
}
