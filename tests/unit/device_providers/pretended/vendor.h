// SPDX-License-Identifier: Apache-2.0
// A vendor of two pretended devices, and the driver whose stack of contexts says which is current. Included by
// plugins/device_common in place of a vendor's own words, with the contexts of plugins/device_cuda.
#pragma once

#include <anyattn/device.h>
#include <anyattn/run_time_compiler.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "primary_context.h"

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorECCUncorrectable = 214,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum { cudaHostAllocPortable = 1, cudaStreamNonBlocking = 1, cudaStreamCaptureModeGlobal = 0 };
using cudaStream_t = void*;
using cudaEvent_t = void*;
using cudaGraph_t = void*;
using cudaGraphExec_t = void*;
struct cudaDeviceProp {
  char name[16];
  int multiProcessorCount, warpSize, l2CacheSize;
  size_t totalGlobalMem;
};

namespace pretended {

constexpr int kNumDevices = 2, kNone = -1;

struct State {
  std::vector<int> contexts;                     // the thread's stack; a primary context is its device's number
  int retained[kNumDevices] = {};                // how often a primary context was asked for
  std::vector<std::pair<std::string, int>> saw;  // the runtime's functions, and the device that was current
  cudaError_t answer = cudaSuccess;              // of the runtime's functions that take a device's handle
};
inline State state;

inline int current() { return state.contexts.empty() ? kNone : state.contexts.back(); }
inline cudaError_t answer(const char* function) {
  state.saw.emplace_back(function, current());
  return state.answer;
}
inline cudaError_t give(const char* function, void** handle) {
  const cudaError_t code = answer(function);
  static char thing;
  *handle = code == cudaSuccess ? &thing : nullptr;
  return code;
}

inline int get_device(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kNumDevices ? 0 : cudaErrorInvalidDevice;
}
inline int current_device(int* device) {
  *device = current();
  return current() == kNone ? 201 : 0;
}
inline int retain_primary(void** context, int device) {
  ++state.retained[device];
  *context = &state.retained[device];
  return 0;
}
inline int push(void* context) {
  state.contexts.push_back(static_cast<int>(static_cast<int*>(context) - state.retained));
  return 0;
}
inline int pop(void**) {
  state.contexts.pop_back();
  return 0;
}

}  // namespace pretended

inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = pretended::kNumDevices, cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) { return *properties = {}, cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "words"; }
inline const char* cudaGetErrorName(cudaError_t) { return "name"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int ordinal) { return pretended::state.contexts = {ordinal}, cudaSuccess; }
inline cudaError_t cudaMalloc(void** memory, size_t) { return pretended::give("cudaMalloc", memory); }
inline cudaError_t cudaFree(void*) { return pretended::answer("cudaFree"); }
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return *free_bytes = *total_bytes = 4096, pretended::answer("cudaMemGetInfo");
}
inline cudaError_t cudaHostAlloc(void** memory, size_t, unsigned) { return pretended::give("cudaHostAlloc", memory); }
inline cudaError_t cudaFreeHost(void*) { return pretended::answer("cudaFreeHost"); }
inline cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return pretended::answer("cudaMemcpyAsync");
}
inline cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return pretended::answer("cudaMemsetAsync"); }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return pretended::give("cudaStreamCreateWithFlags", stream);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return pretended::answer("cudaStreamDestroy"); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return pretended::answer("cudaStreamSynchronize"); }
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return pretended::give("cudaEventCreate", event); }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return pretended::answer("cudaEventDestroy"); }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return pretended::answer("cudaEventRecord"); }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return pretended::answer("cudaEventSynchronize"); }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  return *milliseconds = 1, pretended::answer("cudaEventElapsedTime");
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return pretended::answer("cudaStreamWaitEvent"); }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, int) { return pretended::answer("cudaStreamBeginCapture"); }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  return pretended::give("cudaStreamEndCapture", graph);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return pretended::answer("cudaGraphDestroy"); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return pretended::answer("cudaGraphLaunch"); }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return pretended::answer("cudaGraphExecDestroy"); }

namespace anyattn::device {

constexpr uint32_t kDeviceKind = ANYATTN_DEVICE_CUDA;
constexpr char kDevice[] = "cuda";
constexpr char kVendor[] = "pretended";
constexpr CompilerNames kCompiler = kNvrtc;

constexpr uint32_t version_of(int version) { return static_cast<uint32_t>(version); }

class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t ordinal) : context_(driver(), ordinal) {}
  cudaError_t code() const { return static_cast<cudaError_t>(context_.code()); }

 private:
  static ContextDriver& driver() {
    static ContextDriver calls{
        pretended::get_device, pretended::current_device, pretended::retain_primary, pretended::push, pretended::pop, {}};
    return calls;
  }
  PrimaryContext context_;
};

inline std::string why_no_runtime() { return {}; }
inline cudaError_t instantiate(cudaGraphExec_t* executable, cudaGraph_t) {
  return pretended::give("cudaGraphInstantiate", executable);
}
inline std::string vendor_facts(const cudaDeviceProp&, anyattn_device_facts&) { return "sm_00"; }

}  // namespace anyattn::device
