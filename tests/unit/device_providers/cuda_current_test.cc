// SPDX-License-Identifier: Apache-2.0
// What the CUDA provider leaves current, as the driver says it, which the provider does not link. Each case on its own threads:
// what is current belongs to a thread.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "provider_file.h"

namespace {

constexpr int kNone = -1;

template <class Function>
Function* driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(static_cast<bool>(library));
  const auto found = reinterpret_cast<Function*>(dlsym(library, name));
  REQUIRE_MESSAGE(static_cast<bool>(found), name);
  return found;
}

int current() {
  int device = kNone;
  return driver<int(int*)>("cuCtxGetDevice")(&device) == 0 ? device : kNone;
}
void* current_context() {
  void* context = nullptr;
  return driver<int(void**)>("cuCtxGetCurrent")(&context) == 0 ? context : nullptr;
}
bool has_primary(int device) {
  unsigned flags = 0;
  int is_active = 0;
  REQUIRE(driver<int(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState")(device, &flags, &is_active) == 0);
  return is_active != 0;
}

// One of each kind of slot; one that fails besides.
void use(int32_t at) {
  Error error;
  const auto& p = provider();
  void *memory = nullptr, *stream = nullptr, *event = nullptr;
  CHECK(p.stream_create(at, &stream, &error.error) == ANYATTN_OK);
  CHECK(p.event_create(at, &event, &error.error) == ANYATTN_OK);
  CHECK(p.alloc(at, 4096, &memory, &error.error) == ANYATTN_OK);
  CHECK(p.fill(at, memory, 1, 4096, stream, &error.error) == ANYATTN_OK);
  CHECK(p.event_record(at, event, stream, &error.error) == ANYATTN_OK);
  CHECK(p.stream_synchronize(at, stream, &error.error) == ANYATTN_OK);
  p.free(at, memory);
  p.event_destroy(at, event);
  p.stream_destroy(at, stream);
  CHECK(p.alloc(at, uint64_t{1} << 60, &memory, &error.error) == ANYATTN_OUT_OF_MEMORY);
}

}  // namespace

// First: no other case has used a device yet.
TEST_CASE("cuda_slots_make_no_context_on_another_device") {
  const uint32_t count = devices();
  if (count == 0) return;
  const int last = static_cast<int>(count) - 1;
  REQUIRE(!has_primary(0));

  std::thread([last] {
    use(last);
    CHECK(current() == kNone);
  }).join();

  CHECK(has_primary(last));
  if (last != 0)
    CHECK(!has_primary(0));
  else
    MESSAGE("SKIPPED: one device");
}

TEST_CASE("cuda_slots_leave_the_device_that_was_current") {
  const auto count = static_cast<int32_t>(devices());
  for (int32_t before = 0; before < count; ++before)
    for (int32_t at = 0; at < count; ++at)
      std::thread([before, at] {
        CAPTURE(before);
        CAPTURE(at);
        Error error;
        CHECK(provider().set_current(before, &error.error) == ANYATTN_OK);
        use(at);
        CHECK(current() == before);
      }).join();
}

TEST_CASE("cuda_slots_leave_a_context_that_the_engine_made") {
  const auto count = static_cast<int32_t>(devices());
  for (int32_t at = 0; at < count; ++at)
    std::thread([at] {
      CAPTURE(at);
      void *own = nullptr, *popped = nullptr;
      REQUIRE(driver<int(void**, unsigned, int)>("cuCtxCreate_v2")(&own, 0, 0) == 0);
      use(at);
      CHECK(current_context() == own);
      CHECK(driver<int(void**)>("cuCtxPopCurrent_v2")(&popped) == 0);
      CHECK(popped == own);
      CHECK(driver<int(void*)>("cuCtxDestroy_v2")(own) == 0);
    }).join();
}
