// SPDX-License-Identifier: Apache-2.0
#include "loader/call.h"

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <typeinfo>

#include "anyattn/util.h"

namespace anyattn::loader {
namespace {

// Of the exception being handled: "std::runtime_error", "int"; "an exception of a foreign language" where it has no C++ type.
std::string type_of_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (!type) return "an exception of a foreign language";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), std::free);
  return status == 0 && name ? name.get() : type->name();
}

}  // namespace

int32_t report_exception(Callee callee, anyattn_error* error) noexcept {
  try {
    const std::string type = type_of_exception();
    try {
      throw;
    } catch (const std::exception& exception) {
      return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: %s threw %s: %s", callee.name, callee.slot, type.c_str(),
                               exception.what());
    } catch (...) {
      return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: %s threw %s", callee.name, callee.slot, type.c_str());
    }
  } catch (...) {  // no memory left for the type's name
    return anyattn_error_set(error, ANYATTN_INTERNAL, "%s: %s threw an exception", callee.name, callee.slot);
  }
}

int32_t report_absent(Callee callee, anyattn_error* error) noexcept {
  return anyattn_error_set(error, ANYATTN_UNIMPLEMENTED, "%s has no %s", callee.name, callee.slot);
}

void complete_error(Callee callee, int32_t status, anyattn_error* error) noexcept {
  if (!error) return;
  error->status = status;
  if (error->length == 0) {
    anyattn_error_set(error, status, "%s: %s failed with status %d and gave no reason", callee.name, callee.slot, status);
  }
}

}  // namespace anyattn::loader
