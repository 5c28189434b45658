// SPDX-License-Identifier: Apache-2.0
// The words of NVIDIA's runtime, and what only it has. Included by plugins/device_common. The static runtime finds the driver at
// run time, so nothing of ours links libcuda.
#pragma once

#include <anyattn/device.h>
#include <cuda_runtime_api.h>
#include <anyattn/run_time_compiler.hpp>

#include <string>

#include "primary_context.h"

namespace anyattn::device {

constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_CUDA;
constexpr char kDevice[] = "cuda";
constexpr char kVendor[] = "NVIDIA";
constexpr char kPluginId[] = "org.anyattn.device.cuda";
constexpr CompilerNames kCompiler = kNvrtc;

// The runtime is linked; what may be missing is the driver.
inline std::string why_no_runtime() { return {}; }

// 1000 * major + 10 * minor, as device.h has it.
constexpr uint32_t version_of(int version) { return static_cast<uint32_t>(version); }

// Makes `ordinal` current for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t ordinal) : context_(context_driver(), ordinal) {}
  cudaError_t code() const { return static_cast<cudaError_t>(context_.code()); }

 private:
  PrimaryContext context_;
};

inline cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t graph) {
  return cudaGraphInstantiate(executable, graph, 0);
}

// Fills what is counted differently by each vendor; returns the architecture.
inline std::string vendor_facts(const cudaDeviceProp& properties, anyattn_device_facts& facts) {
  facts.arch_major = static_cast<uint32_t>(properties.major);
  facts.arch_minor = static_cast<uint32_t>(properties.minor);
  facts.shared_memory_per_block = static_cast<uint32_t>(properties.sharedMemPerBlockOptin);
  return "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}

}  // namespace anyattn::device
