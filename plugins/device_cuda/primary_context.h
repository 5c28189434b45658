// SPDX-License-Identifier: Apache-2.0
// A device current for a scope, by its primary context on the driver's stack. Included by vendor.h.
// Not cudaSetDevice: since CUDA 12 it makes a primary context (hundreds of MB) on the device that is set back, and it puts that in
// the place of a context that the engine made through the driver.
#pragma once

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace anyattn::device {

// The driver's functions of contexts, in its C types; all null where there is no driver. Codes are CUresult's, which are
// cudaError_t's.
struct ContextDriver {
  int (*get_device)(int* device, int ordinal) = nullptr;
  int (*current_device)(int* device) = nullptr;  // fails where no context is current
  int (*retain_primary)(void** context, int device) = nullptr;
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int initialised = 35;                          // cuInit's answer; 35, the driver is too old, where there is none
  std::array<std::atomic<void*>, 64> primary{};  // by ordinal; kept once retained, as the runtime keeps its own

  bool is_whole() const { return get_device && current_device && retain_primary && push && pop; }
};

inline ContextDriver& context_driver() {
  static ContextDriver* const driver = [] {
    static ContextDriver found;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto find = [library](auto& function, const char* name) {
      if (library) function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    int (*init)(unsigned) = nullptr;
    find(init, "cuInit");
    if (init) found.initialised = init(0);
    if (found.initialised != 0) return &found;
    find(found.get_device, "cuDeviceGet");
    find(found.current_device, "cuCtxGetDevice");
    find(found.retain_primary, "cuDevicePrimaryCtxRetain");
    find(found.push, "cuCtxPushCurrent_v2");
    find(found.pop, "cuCtxPopCurrent_v2");
    return &found;
  }();
  return *driver;
}

// A context of the device that is current already stays, the engine's own too: its streams belong to it.
class PrimaryContext {
 public:
  PrimaryContext(ContextDriver& driver, int32_t ordinal) : driver_(driver) {
    if (!driver.is_whole()) {
      if (driver.initialised != 0) code_ = driver.initialised;
      return;
    }
    int device = 0, current = 0;
    code_ = driver.get_device(&device, ordinal);
    if (code_ != 0 || (driver.current_device(&current) == 0 && current == device)) return;
    void* context = nullptr;
    code_ = find(device, static_cast<size_t>(ordinal), &context);
    if (code_ != 0) return;
    code_ = driver.push(context);
    is_pushed_ = code_ == 0;
  }
  ~PrimaryContext() {
    void* popped = nullptr;
    if (is_pushed_) (void)driver_.pop(&popped);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  int code() const { return code_; }

 private:
  static constexpr int kNoDriver = 35;  // cudaErrorInsufficientDriver

  int find(int device, size_t ordinal, void** context) const {
    const bool is_kept = ordinal < driver_.primary.size();
    if (is_kept) *context = driver_.primary[ordinal].load(std::memory_order_acquire);
    if (is_kept && *context) return 0;
    const int code = driver_.retain_primary(context, device);
    if (code == 0 && is_kept) driver_.primary[ordinal].store(*context, std::memory_order_release);
    return code;
  }

  ContextDriver& driver_;
  int code_ = kNoDriver;
  bool is_pushed_ = false;
};

}  // namespace anyattn::device
