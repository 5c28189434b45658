// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "call.h"

namespace anyattn::device {
namespace {

// The run-time compiler's version; 0 where no library that suits the driver is installed. Opened by name, never linked, so that this
// plugin loads on machines without it.
uint32_t compiler_version(int driver) {
  static const uint32_t version = open_compiler(kCompiler, version_of(driver)).version;
  return version;
}

// Strings that facts hand out live as long as the process.
const char* keep(std::string text) {
  static std::mutex mutex;
  static std::deque<std::string>* const kept = new std::deque<std::string>;
  const std::lock_guard lock(mutex);
  const auto found = std::find(kept->begin(), kept->end(), text);
  return found != kept->end() ? found->c_str() : kept->emplace_back(std::move(text)).c_str();
}

}  // namespace

int32_t enumerate(const anyattn_host* /*host*/, uint32_t* count, anyattn_error* why) {
  *count = 0;
  if (const std::string words = why_no_runtime(); !words.empty())
    return anyattn_error_set(why, ANYATTN_OK, "%s: no %s runtime on this machine (%s); install one to use %s devices", kDevice,
                             kVendor, words.c_str(), kDevice);
  int driver = 0, runtime = 0, devices = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return anyattn_error_set(why, ANYATTN_OK, "%s: no %s driver on this machine; install one to use %s devices", kDevice,
                             kVendor, kDevice);
  const cudaError_t code = cudaGetDeviceCount(&devices);  // leaves `devices` untouched when it fails
  if (code == cudaErrorNoDevice)
    return anyattn_error_set(why, ANYATTN_OK, "%s: no %s device: driver %u and runtime %u find none", kDevice, kVendor,
                             version_of(driver), version_of(runtime));
  if (code != cudaSuccess) {
    (void)cudaGetLastError();
    return anyattn_error_set(why, ANYATTN_OK, "%s: driver %u refuses runtime %u: %s", kDevice, version_of(driver),
                             version_of(runtime), cudaGetErrorString(code));
  }
  *count = static_cast<uint32_t>(devices);
  return ANYATTN_OK;
}

int32_t facts(const anyattn_host* /*host*/, int32_t ordinal, anyattn_device_facts* out, anyattn_error* error) {
  cudaDeviceProp properties;
  if (const cudaError_t code = cudaGetDeviceProperties(&properties, ordinal); code != cudaSuccess)
    return failed(code, "facts", ordinal, error);
  int driver = 0, runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);

  anyattn_device_facts own{};
  own.struct_size = std::min(out->struct_size, ANYATTN_DEVICE_FACTS_SIZE);
  own.device_kind = kDeviceKind;
  own.ordinal = ordinal;
  own.num_multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
  own.warp_size = static_cast<uint32_t>(properties.warpSize);
  own.memory_bytes = properties.totalGlobalMem;
  own.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  own.features = ANYATTN_DEVICE_HAS_GRAPHS;
  own.driver_version = version_of(driver);
  own.runtime_version = version_of(runtime);
  own.compiler_version = compiler_version(driver);
  own.architecture = keep(vendor_facts(properties, own));
  own.name = keep(properties.name);
  std::memcpy(out, &own, own.struct_size);
  return ANYATTN_OK;
}

}  // namespace anyattn::device
