// SPDX-License-Identifier: Apache-2.0
// The HIP provider's text built with names of a runtime that no machine has: it answers, and every slot says what is missing.
#include <doctest/doctest.h>

#include <string>

#include "provider.h"
#include "runtime.h"

namespace {

using anyattn::device::kProvider;

struct Error {
  char text[512] = {};
  anyattn_error error{text, sizeof text, 0, 0, 0};
};

}  // namespace

TEST_CASE("provider_without_a_runtime_names_the_library_it_looked_for") {
  Error why;
  uint32_t count = 99;

  CHECK(kProvider.enumerate(nullptr, &count, &why.error) == ANYATTN_OK);

  CHECK(count == 0);
  const std::string text = why.text;
  CHECK(text.find("hip: no AMD runtime on this machine (libanyattn_absent.so.2: ") == 0);
  CHECK(text.find("; install one to use hip devices") != std::string::npos);
}

TEST_CASE("provider_without_a_runtime_refuses_every_call") {
  Error error;
  void* made = nullptr;
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;

  CHECK(kProvider.facts(nullptr, 0, &facts, &error.error) == ANYATTN_NOT_FOUND);
  CHECK(kProvider.set_current(0, &error.error) == ANYATTN_NOT_FOUND);
  CHECK(kProvider.alloc(0, 8, &made, &error.error) == ANYATTN_NOT_FOUND);
  CHECK(kProvider.stream_create(0, &made, &error.error) == ANYATTN_NOT_FOUND);
  CHECK(kProvider.event_create(0, &made, &error.error) == ANYATTN_NOT_FOUND);
  CHECK(std::string(error.text).find("hip:0: event_create: ") == 0);
  CHECK(made == nullptr);
  kProvider.free(0, &made);
  kProvider.stream_destroy(0, &made);
}
