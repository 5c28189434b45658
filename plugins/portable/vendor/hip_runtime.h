// SPDX-License-Identifier: Apache-2.0
// AMD's names for what kernels_gpu.cc needs of a driver and a run-time compiler; see cuda_runtime.h.
#pragma once

#include <cstdint>
#include <string>

#include "anyattn/device.h"

namespace anyattn::portable::vendor {

inline constexpr const char* kName = "hip";
inline constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_HIP;
inline constexpr bool kMatrixCores = false;  // scalar products for every kind
inline constexpr const char* kUnproven = "no AMD device has run these kernels yet";
inline constexpr const char* kDriverLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                                   "libamdhip64.so"};
inline constexpr const char* kCompilerLibraries[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "libamdhip64.so.5"};
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

// gfx90c is an older one's number: the graphics of a processor.
inline bool runs_on(const anyattn_device_facts& facts) {
  return facts.arch_major > 9 || (facts.arch_major == 9 && facts.arch_minor >= 0x0a && facts.arch_minor != 0x0c);
}
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
