// SPDX-License-Identifier: Apache-2.0
// Vendors' run-time compilers: where they are looked for, and which of them suits a driver. Included by device providers, who
// report the version, and by plugins that compile. Opens libraries and keeps them open; compiles nothing.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <span>
#include <string>

#include "anyattn/error.hpp"

namespace anyattn {

struct CompilerNames {
  std::span<const char* const> libraries;  // the newest first
  const char* version_function;            // int(int* major, int* minor); 0 is success
  uint32_t driver_unit;                    // a driver loads code of majors up to its version / driver_unit; 0: of any
  bool present_first;                      // a library that the process has open goes before newer ones
};

inline constexpr const char* kNvrtcLibraries[] = {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13",
                                                  "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so.12",
                                                  "libnvrtc.so",    "/usr/local/cuda/lib64/libnvrtc.so"};
inline constexpr CompilerNames kNvrtc{kNvrtcLibraries, "nvrtcVersion", 1000, false};

// libamdhip64 holds hiprtc and a runtime, of which a process wants one only.
inline constexpr const char* kHiprtcLibraries[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so",
                                                   "libamdhip64.so.5"};
inline constexpr CompilerNames kHiprtc{kHiprtcLibraries, "hiprtcVersion", 0, true};

struct RunTimeCompiler {
  void* library = nullptr;  // of dlopen, never closed; null: none
  uint32_t version = 0;     // 1000 * major + 10 * minor
  std::string why;          // there is none: a clause
};

inline std::string compiler_version_text(uint32_t version) { return text(version / 1000, ".", version % 1000 / 10); }

// The first of `names` that opens, says its version and suits a driver of `driver_version`; 0: every driver. Threads: any.
inline RunTimeCompiler open_compiler(const CompilerNames& names, uint32_t driver_version) {
  RunTimeCompiler none;
  const uint32_t most = names.driver_unit ? driver_version / names.driver_unit : 0;
  for (const int present : {RTLD_NOLOAD, 0}) {
    if (present && !names.present_first) continue;
    for (const char* name : names.libraries) {
      void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | present);
      if (!library) {
        if (none.version == 0 && !present) none.why = dlerror();
        continue;
      }
      int major = 0, minor = 0;
      const auto ask = reinterpret_cast<int (*)(int*, int*)>(dlsym(library, names.version_function));
      if (ask && ask(&major, &minor) == 0) {
        const auto version = static_cast<uint32_t>(1000 * major + 10 * minor);
        if (most == 0 || static_cast<uint32_t>(major) <= most) return {library, version, {}};
        none = {nullptr, version, text(compiler_version_text(version), " is newer than the driver's ", most, ".x")};
      } else if (none.version == 0) {
        none.why = text(name, " does not say its version");
      }
      dlclose(library);
    }
  }
  none.version = 0;
  return none;
}

}  // namespace anyattn
