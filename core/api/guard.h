// SPDX-License-Identifier: Apache-2.0
// The boundary of the C API: exceptions of the core become statuses with their sentence. Included by the API's cold functions.
#pragma once

#include <cstdint>
#include <exception>
#include <new>

#include "anyattn/util.h"
#include "config/config.h"
#include "device/status_error.h"

namespace anyattn::api {

// Runs body(), which returns nothing, and returns ANYATTN_OK or what it threw.
template <class Body>
int32_t guarded(const char* function, anyattn_error* error, Body&& body) noexcept {
  try {
    body();
    if (error) error->status = ANYATTN_OK;
    return ANYATTN_OK;
  } catch (const StatusError& failure) {
    return anyattn_error_set(error, failure.status(), "%s", failure.what());
  } catch (const config::ConfigError& failure) {
    return anyattn_error_set(error, ANYATTN_INVALID_ARGUMENT, "%s", failure.what());
  } catch (const std::bad_alloc&) {
    return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "%s: no host memory left", function);
  } catch (const std::exception& failure) {
    return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: %s", function, failure.what());
  } catch (...) {
    return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: an exception of an unknown type", function);
  }
}

// Throws StatusError where a pointer that a function needs is null.
inline void require_given(const void* pointer, const char* function, const char* argument) {
  if (!pointer) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT, std::string(function) + ": " + argument + " is null; it is needed");
  }
}

// The caller's struct, whatever its age, as this library knows it.
template <class Struct>
Struct read_options(const Struct* given, uint32_t size, const char* function) {
  if (given->struct_size < sizeof(uint32_t)) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT,
                      std::string(function) + ": struct_size is " + std::to_string(given->struct_size) +
                          "; set it to the end offset of the last field you know (" + std::to_string(size) + " here)");
  }
  Struct own;
  anyattn_read_struct(&own, size, given);
  return own;
}

}  // namespace anyattn::api
