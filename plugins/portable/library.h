// SPDX-License-Identifier: Apache-2.0
// A shared library opened at run time and kept open, and its functions by name. Included by compiler.cc and kernels_gpu.cc, and by
// hip_runtime.h.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

#include "anyattn/error.hpp"

namespace anyattn::portable {

class Library {
 public:
  Library() = default;
  explicit Library(void* handle) : handle_(handle) {}
  // The first of `names` that the process has open, else the first that opens; none is an empty library. Two versions of one
  // runtime in a process do not know each other's devices and streams.
  explicit Library(std::span<const char* const> names) {
    for (const int present : {RTLD_NOLOAD, 0})
      for (const char* name : names) {
        handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | present);
        if (handle_) return;
        if (!present) why_ = dlerror();  // what is not open is no error
      }
  }
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& why() const { return why_; }
  void* find(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }
  // Throws where the library lacks it.
  template <class Function>
  Function* get(const char* name) const {
    void* found = find(name);
    if (!found) throw Error(ANYATTN_UNSUPPORTED, "the library has no function ", name);
    return reinterpret_cast<Function*>(found);
  }

 private:
  void* handle_ = nullptr;
  std::string why_;
};

}  // namespace anyattn::portable
