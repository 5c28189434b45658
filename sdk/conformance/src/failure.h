// SPDX-License-Identifier: Apache-2.0
// How a running case ends early. Thrown inside the kit only, caught by the runner; never crosses the C interface.
#ifndef ANYATTN_CONFORMANCE_FAILURE_H
#define ANYATTN_CONFORMANCE_FAILURE_H

#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace anyattn::conformance {

// The backend did something wrong.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The backend does not offer what the case is about, and may do so: another layout, an LSE base.
struct NotOffered : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
inline std::string
text(const char* format, ...) {
  char buffer[512];
  va_list values;
  va_start(values, format);
  std::vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  return buffer;
}

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_FAILURE_H
