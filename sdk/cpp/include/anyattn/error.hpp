// SPDX-License-Identifier: Apache-2.0
// Errors in C++ and their way over the boundary: throw anyattn::Error inside, a status and one sentence come out.
// Included by plugins written in C++. Knows nothing of tensors or backends.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "anyattn/util.h"

namespace anyattn {

namespace detail {
inline void append(std::string& to, std::string_view value) { to += value; }
inline void append(std::string& to, const char* value) { to += value ? value : "(null)"; }
inline void append(std::string& to, std::integral auto value) { to += std::to_string(value); }
inline void append(std::string& to, std::floating_point auto value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", static_cast<double>(value));
  to += digits;
}
}  // namespace detail

// The parts one after the other: strings as they are, numbers in decimal.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  (detail::append(all, parts), ...);
  return all;
}

// A status of types.h with its sentence.
class Error : public std::exception {
 public:
  template <class... Parts>
  explicit Error(int32_t status, const Parts&... parts) : status_(status), text_(anyattn::text(parts...)) {}
  int32_t status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int32_t status_;
  std::string text_;
};

// Runs f and turns what it throws into a status and the caller's error, the text led by `who`. Nothing passes through.
template <class F>
int32_t guard(const char* who, anyattn_error* error, F&& f) noexcept {
  try {
    f();
    return ANYATTN_OK;
  } catch (const Error& thrown) {
    return anyattn_error_set(error, thrown.status(), "%s: %s", who, thrown.what());
  } catch (const std::bad_alloc&) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY, "%s: the process has no host memory left", who);
  } catch (const std::exception& thrown) {
    return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: internal error: %s", who, thrown.what());
  } catch (...) {
    return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: internal error of unknown type", who);
  }
}

}  // namespace anyattn
