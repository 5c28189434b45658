// SPDX-License-Identifier: Apache-2.0
// AMD's runtime, opened when it is first needed: the functions of hip_runtime_api.h that plugins/device_common calls, each passed on
// to the library's own. Nothing links libamdhip64, whose name changes with each major: the plugin loads without one and says so.
#include "runtime.h"

#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

#include <string>

#ifndef ANYATTN_HIP_LIBRARIES
#define ANYATTN_HIP_LIBRARIES "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"
#endif

namespace anyattn::device {
namespace {

struct Runtime {
  void* library = nullptr;  // never closed
  std::string why;          // there is none
};

// The one that the process has open, else the newest: two of one process do not know each other's streams.
const Runtime& runtime() {
  static const Runtime* const found = [] {
    auto* own = new Runtime;
    for (const int present : {RTLD_NOLOAD, 0})
      for (const char* name : {ANYATTN_HIP_LIBRARIES}) {
        own->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | present);
        if (own->library) return own;
        const char* const words = dlerror();
        // A library that is there and cannot be opened says more than one that is not.
        const bool is_there = words && !std::string(words).starts_with(std::string(name) + ": cannot open");
        if (!present && (own->why.empty() || is_there)) own->why = words ? words : name;
      }
    return own;
  }();
  return *found;
}

void* find(const char* name) { return runtime().library ? dlsym(runtime().library, name) : nullptr; }

// Code and words of a function that is not there.
constexpr hipError_t kAbsent = hipErrorInsufficientDriver;

}  // namespace

std::string why_no_runtime() { return runtime().library ? "" : runtime().why; }

}  // namespace anyattn::device

using anyattn::device::find;
using anyattn::device::kAbsent;

// The header may give a function another name; what counts is the name that the preprocessor leaves.
#define ANYATTN_TEXT_OF(name) #name
#define ANYATTN_TEXT(name) ANYATTN_TEXT_OF(name)
#define ANYATTN_PASS_ON(name, parameters, ...)                                                         \
  hipError_t name parameters {                                                                         \
    static const auto function = reinterpret_cast<hipError_t(*) parameters>(find(ANYATTN_TEXT(name))); \
    return function ? function(__VA_ARGS__) : kAbsent;                                                 \
  }

extern "C" {

ANYATTN_PASS_ON(hipDriverGetVersion, (int* version), version)
ANYATTN_PASS_ON(hipRuntimeGetVersion, (int* version), version)
ANYATTN_PASS_ON(hipGetDeviceCount, (int* count), count)
ANYATTN_PASS_ON(hipGetDevice, (int* ordinal), ordinal)
ANYATTN_PASS_ON(hipSetDevice, (int ordinal), ordinal)
ANYATTN_PASS_ON(hipMalloc, (void** memory, size_t bytes), memory, bytes)
ANYATTN_PASS_ON(hipFree, (void* memory), memory)
ANYATTN_PASS_ON(hipMemGetInfo, (size_t* free_bytes, size_t* total_bytes), free_bytes, total_bytes)
ANYATTN_PASS_ON(hipHostMalloc, (void** memory, size_t bytes, unsigned flags), memory, bytes, flags)
ANYATTN_PASS_ON(hipHostFree, (void* memory), memory)
ANYATTN_PASS_ON(hipMemcpyAsync, (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream), to, from,
                bytes, kind, stream)
ANYATTN_PASS_ON(hipMemsetAsync, (void* memory, int byte, size_t bytes, hipStream_t stream), memory, byte, bytes, stream)
ANYATTN_PASS_ON(hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags), stream, flags)
ANYATTN_PASS_ON(hipStreamDestroy, (hipStream_t stream), stream)
ANYATTN_PASS_ON(hipStreamSynchronize, (hipStream_t stream), stream)
ANYATTN_PASS_ON(hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags), stream, event, flags)
ANYATTN_PASS_ON(hipEventCreate, (hipEvent_t * event), event)
ANYATTN_PASS_ON(hipEventDestroy, (hipEvent_t event), event)
ANYATTN_PASS_ON(hipEventRecord, (hipEvent_t event, hipStream_t stream), event, stream)
ANYATTN_PASS_ON(hipEventSynchronize, (hipEvent_t event), event)
ANYATTN_PASS_ON(hipEventElapsedTime, (float* milliseconds, hipEvent_t from, hipEvent_t to), milliseconds, from, to)
ANYATTN_PASS_ON(hipStreamBeginCapture, (hipStream_t stream, hipStreamCaptureMode mode), stream, mode)
ANYATTN_PASS_ON(hipStreamEndCapture, (hipStream_t stream, hipGraph_t* graph), stream, graph)
ANYATTN_PASS_ON(hipGraphInstantiate,
                (hipGraphExec_t * executable, hipGraph_t graph, hipGraphNode_t* node, char* log, size_t log_bytes), executable,
                graph, node, log, log_bytes)
ANYATTN_PASS_ON(hipGraphDestroy, (hipGraph_t graph), graph)
ANYATTN_PASS_ON(hipGraphLaunch, (hipGraphExec_t executable, hipStream_t stream), executable, stream)
ANYATTN_PASS_ON(hipGraphExecDestroy, (hipGraphExec_t executable), executable)

hipError_t hipGetLastError() {
  static const auto function = reinterpret_cast<hipError_t (*)()>(find("hipGetLastError"));
  return function ? function() : hipSuccess;
}

const char* hipGetErrorString(hipError_t code) {
  static const auto function = reinterpret_cast<const char* (*)(hipError_t)>(find("hipGetErrorString"));
  return function ? function(code) : "no runtime with this function";
}

const char* hipGetErrorName(hipError_t code) {
  static const auto function = reinterpret_cast<const char* (*)(hipError_t)>(find("hipGetErrorName"));
  return function ? function(code) : "hipErrorInsufficientDriver";
}

// ROCm 6 gave the struct another layout. A library that knows both has the one of older headers, as these may be, under its own name.
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int ordinal) {
  static const auto function = [] {
    constexpr char kName[] = ANYATTN_TEXT(hipGetDeviceProperties);
    void* older = std::string(kName) == "hipGetDeviceProperties" ? find("hipGetDevicePropertiesR0000") : nullptr;
    return reinterpret_cast<hipError_t (*)(hipDeviceProp_t*, int)>(older ? older : find(kName));
  }();
  return function ? function(properties, ordinal) : kAbsent;
}

}  // extern "C"
