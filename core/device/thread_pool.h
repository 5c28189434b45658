// SPDX-License-Identifier: Apache-2.0
// The host's threads: a fork-join pool in which the caller works too. Included by the API, which lends it to plugins.
// Not a task queue: one loop at a time is shared out; a second caller at the same moment runs its loop alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "anyattn/host.h"

namespace anyattn::device {

class ThreadPool {
 public:
  // Workers in all, the caller counted; 1 = no threads. Throws StatusError when a thread cannot be started.
  explicit ThreadPool(uint32_t num_workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs fn over [0, count) in ranges of at least `grain` items and returns when all are done. No allocation, no lock.
  // Worker numbers are below num_workers() and differ among the ranges of one call that run at once.
  // INVALID_ARGUMENT for a null fn, INTERNAL when fn threw: the exception ends here and ranges not yet begun are left out.
  int32_t parallel_for(uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) noexcept;

  uint32_t num_workers() const { return num_workers_; }

 private:
  struct Loop {
    anyattn_range_fn fn = nullptr;
    void* argument = nullptr;
    uint64_t count = 0;
    uint64_t range = 0;  // items a range
    uint64_t num_ranges = 0;
  };

  void work(uint32_t worker) noexcept;
  void run_ranges(uint32_t worker) noexcept;
  void close_and_wait() noexcept;
  void stop() noexcept;

  const uint32_t num_workers_;
  Loop loop_;  // written while members_ is 0 and closed, read only by members
  alignas(64) std::atomic<uint64_t> next_range_{0};
  alignas(64) std::atomic<uint32_t> members_{0};  // helpers inside the loop; the top bit says that it is open to them
  alignas(64) std::atomic<int32_t> epoch_{0};     // counts loops; helpers sleep on it
  std::atomic<bool> busy_{false};
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace anyattn::device
