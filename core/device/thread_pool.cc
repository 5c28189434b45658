// SPDX-License-Identifier: Apache-2.0
#include "device/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "device/status_error.h"

namespace anyattn::device {
namespace {

constexpr uint32_t kOpen = 1u << 31;
// Ranges a worker gets on average: more balances uneven requests better, each costs one atomic add (about 20 ns).
constexpr uint64_t kRangesPerWorker = 4;
// How long a thread watches for the next loop or the end of one before it sleeps. Two attention calls of one step lie
// a few microseconds apart; waking a sleeping thread takes about 50.
constexpr std::chrono::microseconds kSpin{40};

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// True as soon as ready() is, false after kSpin.
template <class Ready>
bool spin_until(Ready ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(uint32_t num_workers) : num_workers_(std::max(1u, num_workers)) {
  // The engine's signal handlers run on the engine's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string failure;
  try {
    threads_.reserve(num_workers_ - 1);
    for (uint32_t worker = 1; worker < num_workers_; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::exception& error) {
    failure = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure.empty()) return;
  const size_t started = threads_.size();
  stop();
  throw StatusError(ANYATTN_INTERNAL, "thread pool: thread " + std::to_string(started + 1) + " of " +
                                          std::to_string(num_workers_ - 1) + " did not start: " + failure +
                                          "; ask for fewer with num_threads");
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

int32_t ThreadPool::parallel_for(uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) noexcept {
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  if (count == 0) return ANYATTN_OK;
  const uint64_t share = num_workers_ * kRangesPerWorker;
  const uint64_t range = std::max({grain, count / share + (count % share != 0), uint64_t{1}});
  // Another caller holds the helpers (or fn called us): this loop runs here, which never waits for anyone.
  if (num_workers_ == 1 || range >= count || busy_.exchange(true, std::memory_order_acquire)) {
    try {
      fn(argument, 0, count, 0);
    } catch (...) {
      return ANYATTN_INTERNAL;
    }
    return ANYATTN_OK;
  }
  loop_ = {fn, argument, count, range, count / range + (count % range != 0)};
  next_range_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  members_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  run_ranges(0);
  close_and_wait();
  const bool failed = failed_.load(std::memory_order_relaxed);
  busy_.store(false, std::memory_order_release);
  return failed ? ANYATTN_INTERNAL : ANYATTN_OK;
}

void ThreadPool::run_ranges(uint32_t worker) noexcept {
  try {
    for (;;) {
      const uint64_t index = next_range_.fetch_add(1, std::memory_order_relaxed);
      if (index >= loop_.num_ranges) return;
      const uint64_t begin = index * loop_.range;
      loop_.fn(loop_.argument, begin, std::min(loop_.count - begin, loop_.range) + begin, worker);
    }
  } catch (...) {
    failed_.store(true, std::memory_order_relaxed);
    next_range_.store(loop_.num_ranges, std::memory_order_relaxed);
  }
}

// Helpers that have not joined by now never will: they find the loop closed. Those inside are waited for.
void ThreadPool::close_and_wait() noexcept {
  members_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if (spin_until([this] { return members_.load(std::memory_order_acquire) == 0; })) return;
  for (uint32_t left = members_.load(std::memory_order_acquire); left != 0; left = members_.load(std::memory_order_acquire)) {
    members_.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::work(uint32_t worker) noexcept {
  int32_t seen = 0;
  for (;;) {
    const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(changed)) epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    uint32_t members = members_.load(std::memory_order_relaxed);
    while ((members & kOpen) != 0 &&
           !members_.compare_exchange_weak(members, members + 1, std::memory_order_acquire, std::memory_order_relaxed)) {
    }
    if ((members & kOpen) == 0) continue;
    run_ranges(worker);
    // The last helper wakes the caller; it sleeps only after the loop was closed.
    if (members_.fetch_sub(1, std::memory_order_acq_rel) == 1) members_.notify_one();
  }
}

}  // namespace anyattn::device
