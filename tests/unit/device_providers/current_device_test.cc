// SPDX-License-Identifier: Apache-2.0
// The providers' one text with a pretended runtime of two devices: each slot works on the device that it was given and leaves the
// one that was current, and makes no context on a device that nobody named.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "provider.h"
#include "vendor.h"

namespace {

using anyattn::device::kProvider;
using pretended::state;

struct Error {
  char text[512] = {};
  anyattn_error error{text, sizeof text, 0, 0, 0};
};

struct Slot {
  const char* name;
  std::function<int32_t(int32_t ordinal, anyattn_error* error)> call;  // OK where the slot gives no status
};

char thing[8];  // a handle, a block
void* const kThing = thing;

const Slot kSlots[] = {
    {"alloc",
     [](int32_t at, anyattn_error* e) {
       void* out;
       return kProvider.alloc(at, 8, &out, e);
     }},
    {"free", [](int32_t at, anyattn_error*) { return kProvider.free(at, kThing), ANYATTN_OK; }},
    {"alloc_pinned",
     [](int32_t at, anyattn_error* e) {
       void* out;
       return kProvider.alloc_pinned(at, 8, &out, e);
     }},
    {"free_pinned", [](int32_t at, anyattn_error*) { return kProvider.free_pinned(at, kThing), ANYATTN_OK; }},
    {"copy", [](int32_t at,
                anyattn_error* e) { return kProvider.copy(at, kThing, kThing, 8, ANYATTN_COPY_DEVICE_TO_DEVICE, nullptr, e); }},
    {"fill", [](int32_t at, anyattn_error* e) { return kProvider.fill(at, kThing, 1, 8, nullptr, e); }},
    {"stream_create",
     [](int32_t at, anyattn_error* e) {
       void* out;
       return kProvider.stream_create(at, &out, e);
     }},
    {"stream_destroy", [](int32_t at, anyattn_error*) { return kProvider.stream_destroy(at, kThing), ANYATTN_OK; }},
    {"stream_synchronize", [](int32_t at, anyattn_error* e) { return kProvider.stream_synchronize(at, kThing, e); }},
    {"event_create",
     [](int32_t at, anyattn_error* e) {
       void* out;
       return kProvider.event_create(at, &out, e);
     }},
    {"event_destroy", [](int32_t at, anyattn_error*) { return kProvider.event_destroy(at, kThing), ANYATTN_OK; }},
    {"event_record", [](int32_t at, anyattn_error* e) { return kProvider.event_record(at, kThing, kThing, e); }},
    {"event_wait", [](int32_t at, anyattn_error* e) { return kProvider.event_wait(at, kThing, kThing, e); }},
    {"event_elapsed",
     [](int32_t at, anyattn_error* e) {
       float out;
       return kProvider.event_elapsed(at, kThing, kThing, &out, e);
     }},
    {"graph_capture_begin", [](int32_t at, anyattn_error* e) { return kProvider.graph_capture_begin(at, kThing, e); }},
    {"graph_capture_end",
     [](int32_t at, anyattn_error* e) {
       void* out;
       return kProvider.graph_capture_end(at, kThing, &out, e);
     }},
    {"graph_launch", [](int32_t at, anyattn_error* e) { return kProvider.graph_launch(at, kThing, kThing, e); }},
    {"graph_destroy", [](int32_t at, anyattn_error*) { return kProvider.graph_destroy(at, kThing), ANYATTN_OK; }},
};

bool gives_status(const std::string& slot) { return slot.find("free") != 0 && slot.find("_destroy") == std::string::npos; }

}  // namespace

TEST_CASE("slot_works_on_its_device_and_leaves_the_current_one") {
  for (const int before : {pretended::kNone, 0, 1})
    for (const int32_t ordinal : {0, 1})
      for (const cudaError_t answer : {cudaSuccess, cudaErrorIllegalAddress, cudaErrorMemoryAllocation})
        for (const Slot& slot : kSlots) {
          CAPTURE(slot.name);
          CAPTURE(before);
          CAPTURE(ordinal);
          CAPTURE(static_cast<int>(answer));
          state = {};
          if (before != pretended::kNone) state.contexts = {before};
          const std::vector<int> contexts = state.contexts;
          state.answer = answer;
          Error error;

          const int32_t status = slot.call(ordinal, &error.error);

          CHECK((status == ANYATTN_OK) == (answer == cudaSuccess || !gives_status(slot.name)));
          CHECK(state.contexts == contexts);
          CHECK(!state.saw.empty());
          for (const auto& [function, device] : state.saw) CHECK_MESSAGE(device == ordinal, function);
          CHECK(state.retained[1 - ordinal] == 0);
        }
}

TEST_CASE("slot_refuses_a_device_that_is_not_there_and_leaves_the_current_one") {
  for (const Slot& slot : kSlots) {
    if (!gives_status(slot.name)) continue;
    CAPTURE(slot.name);
    state = {};
    state.contexts = {1};
    Error error;

    CHECK(slot.call(pretended::kNumDevices, &error.error) == ANYATTN_NOT_FOUND);

    CHECK(std::string(error.text).find("cuda:2: ") == 0);
    CHECK(state.contexts == std::vector<int>{1});
    CHECK(state.saw.empty());
  }
}

TEST_CASE("set_current_is_the_one_slot_that_changes_the_device") {
  state = {};
  state.contexts = {0};

  CHECK(kProvider.set_current(1, nullptr) == ANYATTN_OK);

  CHECK(pretended::current() == 1);
}
