// SPDX-License-Identifier: Apache-2.0
// Which library of several names is opened: what the process has goes first, so that no second runtime comes beside a provider's.
#include "library.h"

#include <doctest/doctest.h>

using anyattn::portable::Library;

TEST_CASE("library_takes_the_name_that_the_process_has_open") {
  constexpr const char* kOpen = "libc.so.6";
  constexpr const char* kClosed = "libBrokenLocale.so.1";  // glibc brings it, nothing loads it
  REQUIRE(dlopen(kClosed, RTLD_NOW | RTLD_NOLOAD) == nullptr);
  const char* const names[] = {"libnone.so.1", kClosed, kOpen};
  CHECK(Library(names).find("fork") != nullptr);
  CHECK(dlopen(kClosed, RTLD_NOW | RTLD_NOLOAD) == nullptr);

  const char* const only[] = {"libnone.so.1", kClosed};
  CHECK(static_cast<bool>(Library(only)));
  CHECK(dlopen(kClosed, RTLD_NOW | RTLD_NOLOAD) != nullptr);

  const char* const none[] = {"libnone.so.1"};
  CHECK_FALSE(static_cast<bool>(Library(none)));
  CHECK(Library(none).why().find("libnone.so.1") != std::string::npos);
}
