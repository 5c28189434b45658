// SPDX-License-Identifier: Apache-2.0
// What fakes do to a process that opens them. Included by hooks.cc.
#pragma once

#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

extern "C" void anyattn_fake_library_function(void);

namespace mischief {

#ifdef FAKE_THREAD_MEMORY
inline thread_local char thread_memory[FAKE_THREAD_MEMORY];
[[maybe_unused]] inline void use_thread_memory() { *static_cast<volatile char*>(thread_memory) = 1; }
#endif

#ifdef FAKE_DEVICE_CODE
// What nvcc puts into a file, without the code: machine code for sm_80, PTX for 8.6.
struct FatbinEntry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed[3], architecture, name[2];
  uint64_t flags, zero, unpacked;
};
struct Fatbin {
  uint32_t mark;
  uint16_t version, header_bytes;
  uint64_t bytes;
  FatbinEntry entries[2];
};
__attribute__((used)) inline const volatile Fatbin fatbin = {
    0xBA55ED50,
    1,
    16,
    2 * sizeof(FatbinEntry),
    {{2, 0x101, 64, 0, {}, 80, {}, 0x11, 0, 0}, {1, 0x101, 64, 0, {}, 86, {}, 0x11, 0, 0}}};
static_assert(sizeof(FatbinEntry) == 64);
#endif

[[maybe_unused]] inline void write_to_null() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

[[maybe_unused]] inline void wait_for_ever() {
  while (true) ::pause();
}

[[maybe_unused]] inline void read_empty_pipe() {
  int ends[2];
  char byte = 0;
  if (::pipe(ends) != 0 || ::read(ends[0], &byte, 1) != 1) std::abort();
}

// The child keeps every descriptor it inherited open.
[[maybe_unused]] inline void leave_child_and_wait() {
  if (::fork() == 0) ::sleep(60);
  wait_for_ever();
}

[[maybe_unused]] inline void print_and_exit(int status) {
  std::puts("first line");
  std::puts("licence server not found");
  std::exit(status);
}

// More than a pipe holds.
[[maybe_unused]] inline void print_much() {
  for (int i = 0; i < 20000; ++i) std::printf("line %d of the fake's diary\n", i);
  std::fflush(stdout);
}

[[maybe_unused]] inline void disturb_process() {
  pthread_t thread;
  if (::pthread_create(
          &thread, nullptr,
          [](void*) -> void* {
            wait_for_ever();
            return nullptr;
          },
          nullptr) != 0)
    std::abort();
  ::signal(SIGSEGV, [](int) {});
  if (::chdir("/") != 0) std::abort();
  ::setenv("FAKE_WAS_HERE", "1", 1);
  ::setlocale(LC_ALL, "C.UTF-8");
}

// Code of the file that runs when nobody holds the plugin any more: a thread, the end of the calling thread, the process's end.
[[maybe_unused]] inline void linger() {
  static std::atomic<int> steps{0};
  static const pthread_key_t key = [] {
    pthread_key_t made;
    const auto at_thread_end = [](void*) { steps += 1000; };
    if (::pthread_key_create(&made, at_thread_end) != 0) std::abort();
    pthread_t thread;
    const auto work = [](void*) -> void* {
      for (; true; ++steps) ::usleep(500);
    };
    if (::pthread_create(&thread, nullptr, work, nullptr) != 0 || ::pthread_detach(thread) != 0) std::abort();
    std::atexit([] { std::printf("the fake ends after %s steps\n", steps > 1000 ? "many" : "few"); });
    return made;
  }();
  static char value = 1;
  ::pthread_setspecific(key, &value);
}

// As a static object of a library does that asks for the devices while it is loaded. Nothing where there is no driver.
[[maybe_unused]] inline void start_gpu_driver() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return;
  if (void* start = ::dlsym(driver, "cuInit")) reinterpret_cast<int (*)(unsigned)>(start)(0);
}

}  // namespace mischief
