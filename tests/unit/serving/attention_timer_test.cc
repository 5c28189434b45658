// SPDX-License-Identifier: Apache-2.0
// Where a step's time is booked, on the device without hardware, whose copies from the host come late.
#include "serving/attention_timer.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <thread>

#include "temp_dir.h"

namespace {

using namespace anyattn::tools;

struct PretendedPlace {
  PretendedPlace() {
    const std::string config = dir.write("config.yaml", "version: 1\nplugins: {search: [" ANYATTN_PRETEND_DIR "]}\n");
    runtime.emplace(anyattn::Runtime::Options{config, "", "error", 1});
    place = {&*runtime, runtime->resolve_device("cuda:0"), nullptr};
    stream = anyattn::DeviceStream(*runtime, place.device);
    place.stream = stream.get();
  }
  anyattn::testing::TempDir dir;
  std::optional<anyattn::Runtime> runtime;
  anyattn::DeviceStream stream;
  Place place;
};

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("attention_timer_books_copies_that_stood_before_a_call_on_their_own") {
  const PretendedPlace there;
  AttentionTimer timer(there.place);
  const DeviceBuffer inputs(there.place, size_t{64} << 20);
  inputs.upload(inputs.bytes());
  timer.measure(Spent::kCacheUpdate, [] {});
  CHECK(timer.copying_seconds() > timer.seconds());
}

TEST_CASE("attention_timer_tells_two_calls_and_the_wait_for_them_apart") {
  const PretendedPlace there;
  AttentionTimer timer(there.place);
  timer.measure(Spent::kCacheUpdate, [] { sleep_ms(3); }, Spent::kKernels, [] { sleep_ms(2); });
  timer.measure(Spent::kMetadata, [] { sleep_ms(1); });
  CHECK(timer.seconds(Spent::kCacheUpdate) >= 0.003);
  CHECK(timer.seconds(Spent::kKernels) >= 0.002);
  CHECK(timer.seconds(Spent::kMetadata) >= 0.001);
  CHECK(timer.seconds(Spent::kWaits) > 0);
  const double parts = timer.seconds(Spent::kCacheUpdate) + timer.seconds(Spent::kKernels) + timer.seconds(Spent::kMetadata) +
                       timer.seconds(Spent::kWaits);
  CHECK(timer.seconds() == doctest::Approx(parts));
}

}  // namespace
