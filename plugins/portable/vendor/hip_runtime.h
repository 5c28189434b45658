// SPDX-License-Identifier: Apache-2.0
// AMD's names for what kernels_gpu.cc needs of a driver and a run-time compiler; see cuda_runtime.h.
#pragma once

#include <cstdint>
#include <string>

#include "anyattn/device.h"
#include "anyattn/run_time_compiler.hpp"
#include "library.h"

namespace anyattn::portable::vendor {

inline constexpr const char* kName = "hip";
inline constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_HIP;
// Lanes that multiply 16-bit tiles together: Config::matrix. What mfma.h has been compiled for.
inline int matrix_lanes(const anyattn_device_facts& facts) {
  return facts.arch_major == 9 && (facts.arch_minor == 0x0a || facts.arch_minor == 0x42) ? 64 : 0;
}
inline constexpr const char* kUnproven = "no AMD device has run these kernels yet";
inline constexpr const char* kDriverLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                                   "libamdhip64.so"};
inline constexpr CompilerNames kCompiler = kHiprtc;
inline constexpr const char* kModuleLoad = "hipModuleLoadData";
inline constexpr const char* kModuleUnload = "hipModuleUnload";
inline constexpr const char* kGetFunction = "hipModuleGetFunction";
inline constexpr const char* kSetAttribute = nullptr;  // 64 KiB of shared memory need no permission
inline constexpr const char* kLaunch = "hipModuleLaunchKernel";
inline constexpr const char* kErrorString = "hipGetErrorString";
inline constexpr int kMaxDynamicShared = 0;
inline constexpr const char* kCompilerPrefix = "hiprtc";
inline constexpr const char* kCodeSize = "hiprtcGetCodeSize";
inline constexpr const char* kCode = "hiprtcGetCode";
inline constexpr const char* kOptions[] = {"-std=c++17"};
inline constexpr const char* kOldest = "gfx90a";

// Why the compiler has no code for the device, a clause; empty: it has. hiprtc does not say, and ends the process where it does not know one (5.2:
// gfx942). The library that it compiles with says it, by the name of the code object's target.
inline constexpr const char* kTargetLibraries[] = {"libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"};
inline std::string why_not_compiled(const Library&, const anyattn_device_facts& facts) {
  static const Library targets(kTargetLibraries);
  const auto count = reinterpret_cast<int (*)(size_t*)>(targets.find("amd_comgr_get_isa_count"));
  const auto name_of = reinterpret_cast<int (*)(size_t, const char**)>(targets.find("amd_comgr_get_isa_name"));
  const std::string own = std::string("amdgcn-amd-amdhsa--") + facts.architecture;
  size_t number = 0;
  if (!count || !name_of || count(&number) != 0) return "without libamd_comgr, which knows what it compiles for";
  for (size_t i = 0; i < number; ++i)
    if (const char* name = nullptr; name_of(i, &name) == 0 && own == name) return {};
  return std::string("which does not compile for ") + facts.architecture;
}
// gfx90c is an older one's number: the graphics of a processor.
inline bool runs_on(const anyattn_device_facts& facts) {
  return facts.arch_major > 9 || (facts.arch_major == 9 && facts.arch_minor >= 0x0a && facts.arch_minor != 0x0c);
}
inline bool has_run(const anyattn_device_facts&) { return false; }
inline std::string architecture_option(const anyattn_device_facts& facts) {
  return "--offload-arch=" + std::string(facts.architecture);
}
inline constexpr const char* kLaunchEx = nullptr;  // no launch overlaps another
struct LaunchAttribute {
  int id;
  union {
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
inline constexpr int kProgrammatic = 0;
inline bool overlaps(const anyattn_device_facts&) { return false; }
inline bool has_groups(const anyattn_device_facts&) { return false; }

inline std::string words_of(void* error_string, int code) {
  const auto ask = reinterpret_cast<const char* (*)(int)>(error_string);
  return ask ? ask(code) : "error " + std::to_string(code);
}

}  // namespace anyattn::portable::vendor
