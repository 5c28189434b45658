// SPDX-License-Identifier: Apache-2.0
// CUDA's names as HIP's, and what only AMD's runtime has. Included by plugins/device_common.
#pragma once

#include <anyattn/device.h>
#include <hip/hip_runtime_api.h>
#include <anyattn/run_time_compiler.hpp>

#include <cstdlib>
#include <string>

#include "runtime.h"

#define cudaDeviceProp hipDeviceProp_t
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorNoDevice hipErrorNoDevice
#define cudaError_t hipError_t
#define cudaEventCreate hipEventCreate
#define cudaEventDestroy hipEventDestroy
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize
#define cudaEvent_t hipEvent_t
#define cudaFree hipFree
#define cudaFreeHost hipHostFree
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaGraphDestroy hipGraphDestroy
#define cudaGraphExecDestroy hipGraphExecDestroy
#define cudaGraphExec_t hipGraphExec_t
#define cudaGraphLaunch hipGraphLaunch
#define cudaGraph_t hipGraph_t
#define cudaHostAlloc hipHostMalloc
#define cudaHostAllocPortable hipHostMallocPortable
#define cudaMalloc hipMalloc
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyKind hipMemcpyKind
#define cudaMemsetAsync hipMemsetAsync
#define cudaRuntimeGetVersion hipRuntimeGetVersion
#define cudaSetDevice hipSetDevice
#define cudaStreamBeginCapture hipStreamBeginCapture
#define cudaStreamCaptureModeGlobal hipStreamCaptureModeGlobal
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamEndCapture hipStreamEndCapture
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess

namespace anyattn::device {

constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_HIP;
constexpr char kDevice[] = "hip";
constexpr char kVendor[] = "AMD";
constexpr char kPluginId[] = "org.anyattn.device.hip";
constexpr CompilerNames kCompiler = kHiprtc;

// HIP counts 10,000,000 * major + 100,000 * minor + patch; device.h wants 1000 * major + 10 * minor.
constexpr uint32_t version_of(int version) {
  return static_cast<uint32_t>(version / 10'000'000 * 1000 + version / 100'000 % 100 * 10);
}
static_assert(version_of(50221153) == 5020);

// Makes `ordinal` current for a scope. HIP has deprecated its stack of contexts: what is current is a device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t ordinal) {
    code_ = hipGetDevice(&before_);
    if (code_ == hipSuccess && before_ != ordinal) {
      code_ = hipSetDevice(ordinal);
      changed_ = code_ == hipSuccess;
    }
  }
  ~CurrentDevice() {
    if (changed_) (void)hipSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  hipError_t code() const { return code_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  hipError_t code_ = hipSuccess;
};

inline hipError_t instantiate(hipGraphExec_t* executable, hipGraph_t graph) {
  return hipGraphInstantiate(executable, graph, nullptr, nullptr, 0);
}

// gcnArchName is "gfx942:sramecc+:xnack-"; its digits are one decimal major and two hexadecimal places, gfx10 and later two
// decimal majors.
inline std::string vendor_facts(const hipDeviceProp_t& properties, anyattn_device_facts& facts) {
  std::string name = properties.gcnArchName;
  name = name.substr(0, name.find(':'));
  if (name.size() > 5 && name.compare(0, 3, "gfx") == 0) {
    facts.arch_major = static_cast<uint32_t>(std::strtoul(name.substr(3, name.size() - 5).c_str(), nullptr, 10));
    facts.arch_minor = static_cast<uint32_t>(std::strtoul(name.substr(name.size() - 2).c_str(), nullptr, 16));
  }
  facts.shared_memory_per_block = static_cast<uint32_t>(properties.sharedMemPerBlock);
  return name;
}

}  // namespace anyattn::device
