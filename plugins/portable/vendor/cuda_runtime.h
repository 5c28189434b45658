// SPDX-License-Identifier: Apache-2.0
// NVIDIA's names for what kernels_gpu.cc needs of a driver and a run-time compiler. Both are opened at run time, so the plugin
// builds without the toolkit and loads without a driver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "anyattn/device.h"
#include "anyattn/run_time_compiler.hpp"
#include "library.h"

namespace anyattn::portable::vendor {

inline constexpr const char* kName = "cuda";
inline constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_CUDA;
// Lanes that multiply 16-bit tiles together: Config::matrix.
inline int matrix_lanes(const anyattn_device_facts&) {
#ifndef ANYATTN_PORTABLE_SHIM
  return 32;
#else
  return 0;  // the text of hip.h, through hip_on_cuda.h
#endif
}
inline constexpr const char* kUnproven = nullptr;  // what was run: README.md
inline constexpr const char* kDriverLibraries[] = {"libcuda.so.1"};
inline constexpr CompilerNames kCompiler = kNvrtc;
inline constexpr const char* kModuleLoad = "cuModuleLoadData";
inline constexpr const char* kModuleUnload = "cuModuleUnload";
inline constexpr const char* kGetFunction = "cuModuleGetFunction";
inline constexpr const char* kSetAttribute = "cuFuncSetAttribute";
inline constexpr const char* kLaunch = "cuLaunchKernel";
inline constexpr const char* kErrorString = "cuGetErrorString";
inline constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr const char* kCompilerPrefix = "nvrtc";
inline constexpr const char* kCodeSize = "nvrtcGetCUBINSize";
inline constexpr const char* kCode = "nvrtcGetCUBIN";
inline constexpr const char* kOptions[] = {"-std=c++17", "-default-device"};
inline constexpr const char* kOldest = "sm_80";  // asynchronous copies and bfloat16 products

// Why the compiler has no code for the device, a clause; empty: it has. Those before 11.2 do not say.
inline std::string why_not_compiled(const Library& compiler, const anyattn_device_facts& facts) {
  const auto count = reinterpret_cast<int (*)(int*)>(compiler.find("nvrtcGetNumSupportedArchs"));
  const auto list = reinterpret_cast<int (*)(int*)>(compiler.find("nvrtcGetSupportedArchs"));
  int number = 0;
  if (!count || !list || count(&number) != 0) return {};
  std::vector<int> known(static_cast<size_t>(number));
  const int own = static_cast<int>(10 * facts.arch_major + facts.arch_minor);
  if (list(known.data()) == 0 && std::find(known.begin(), known.end(), own) != known.end()) return {};
  return std::string("which does not compile for ") + facts.architecture;
}
inline bool runs_on(const anyattn_device_facts& facts) { return facts.arch_major >= 8; }
inline bool has_run(const anyattn_device_facts& facts) { return facts.arch_major == 9 && facts.arch_minor == 0; }
// Warp groups that multiply are a feature of just this architecture.
inline bool has_groups(const anyattn_device_facts& facts) { return facts.arch_major == 9 && facts.arch_minor == 0; }
inline std::string architecture_option(const anyattn_device_facts& facts) {
  return "--gpu-architecture=" + std::string(facts.architecture) + (has_groups(facts) ? "a" : "");
}
// A launch that may start before the one before it has ended; the kernel itself waits (sm_90). The driver's structs by hand.
inline constexpr const char* kLaunchEx = "cuLaunchKernelEx";
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int allowed;
  } value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
inline constexpr int kProgrammatic = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline bool overlaps(const anyattn_device_facts& facts) { return facts.arch_major >= 9; }

// The driver's words for an error.
inline std::string words_of(void* error_string, int code) {
  const char* words = nullptr;
  const auto ask = reinterpret_cast<int (*)(int, const char**)>(error_string);
  return ask && ask(code, &words) == 0 && words ? words : "error " + std::to_string(code);
}

}  // namespace anyattn::portable::vendor
