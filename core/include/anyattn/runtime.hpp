// SPDX-License-Identifier: Apache-2.0
// C++20 over runtime.h: owners for runtimes, groups and device memory, failures as RuntimeError, tensors with their dims.
// Included by C++ engines and the tools. Header-only: it adds no symbol and hides nothing; get() gives the C object.
#ifndef ANYATTN_RUNTIME_HPP
#define ANYATTN_RUNTIME_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "anyattn/runtime.h"

namespace anyattn {

// What a call of the library answered when it was not OK: a status of types.h and its sentence.
class RuntimeError : public std::exception {
 public:
  RuntimeError(int32_t status, std::string text) : status_(status), text_(std::move(text)) {}
  int32_t status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int32_t status_;
  std::string text_;
};

// Calls a function of the C API that takes an error slot last; throws RuntimeError where it is not OK.
//   anyattn::check(anyattn_group_update, group, part, &batch, stream);
template <class... Params, class... Args>
inline void check(int32_t (*function)(Params...), Args... args) {
  char text[16384];  // a refused selection names every candidate
  text[0] = '\0';
  anyattn_error error{text, sizeof text, 0, ANYATTN_OK, 0};
  const int32_t status = function(args..., &error);
  if (status != ANYATTN_OK) [[unlikely]]
    throw RuntimeError(status, text);
}

// A text the library handed out.
inline std::string take_text(char* text) {
  const std::unique_ptr<char, void (*)(char*)> owner(text, anyattn_text_free);
  return text ? std::string(text) : std::string();
}

// A tensor with its own dims, up to 4, row-major unless strides are given. Memory is the caller's. Converts to anyattn_tensor
// whose arrays lie in this object: it stays where it is while the tensor is in use.
class Tensor {
 public:
  Tensor() = default;  // absent
  Tensor(void* data, uint32_t dtype, std::initializer_list<int64_t> shape, uint32_t device_kind = ANYATTN_DEVICE_CPU,
         int32_t device_ordinal = 0)
      : data_(data), dtype_(dtype), device_kind_(device_kind), device_ordinal_(device_ordinal) {
    for (const int64_t size : shape) {
      if (ndim_ < kMaxDims) shape_[static_cast<size_t>(ndim_++)] = size;
    }
    int64_t stride = 1;
    for (int32_t i = ndim_ - 1; i >= 0; --i) {
      strides_[static_cast<size_t>(i)] = stride;
      stride *= shape_[static_cast<size_t>(i)];
    }
  }
  // In elements, one a dim.
  Tensor& strides(std::initializer_list<int64_t> strides) {
    size_t i = 0;
    for (const int64_t stride : strides) {
      if (i < kMaxDims) strides_[i++] = stride;
    }
    return *this;
  }
  // Rows [first, first + count) of the first dim.
  Tensor rows(int64_t first, int64_t count) const {
    Tensor part = *this;
    const int64_t bytes = (dtype_ >> 8 & 0xffu) / 8;
    part.data_ = data_ ? static_cast<char*>(data_) + first * strides_[0] * bytes : nullptr;
    part.shape_[0] = count;
    return part;
  }
  operator anyattn_tensor() const& {  // NOLINT(google-explicit-constructor): args take it as it is
    anyattn_tensor tensor{};
    tensor.data = data_;
    tensor.device_type = static_cast<int32_t>(device_kind_);
    tensor.device_id = device_ordinal_;
    tensor.ndim = ndim_;
    tensor.dtype_code = static_cast<uint8_t>(dtype_);
    tensor.dtype_bits = static_cast<uint8_t>(dtype_ >> 8);
    tensor.dtype_lanes = static_cast<uint16_t>(dtype_ >> 16);
    tensor.shape = const_cast<int64_t*>(shape_.data());  // DLPack's struct; nobody writes them
    tensor.strides = const_cast<int64_t*>(strides_.data());
    return tensor;
  }
  operator anyattn_tensor() && = delete;  // its arrays would be gone

 private:
  static constexpr int32_t kMaxDims = 4;
  void* data_ = nullptr;
  uint32_t dtype_ = ANYATTN_DTYPE_NONE;
  uint32_t device_kind_ = ANYATTN_DEVICE_CPU;
  int32_t device_ordinal_ = 0;
  int32_t ndim_ = 0;
  std::array<int64_t, kMaxDims> shape_{};
  std::array<int64_t, kMaxDims> strides_{};
};

// A problem that owns its feature words and format name. `fields` holds the numbers; its pointers are not read.
class Problem {
 public:
  Problem() { fields.struct_size = ANYATTN_PROBLEM_SIZE; }
  // A deep copy of what the library handed out.
  explicit Problem(const anyattn_problem& given) : fields(given) {
    for (uint32_t word = 0; word < ANYATTN_FEATURE_WORDS && word < given.num_feature_words; ++word)
      words_[word] = given.features[word];
    has_format_ = given.kv_cache_dtype != nullptr;
    if (has_format_) format_ = given.kv_cache_dtype;
  }
  anyattn_problem fields{};

  Problem& set(uint32_t feature) {
    words_[feature / 64] |= uint64_t{1} << (feature % 64);
    return *this;
  }
  bool has(uint32_t feature) const { return (words_[feature / 64] >> (feature % 64) & 1u) != 0; }
  Problem& kv_cache_dtype(std::string name) {
    format_ = std::move(name);
    has_format_ = true;
    return *this;
  }
  // Points into this object.
  anyattn_problem view() const {
    anyattn_problem problem = fields;
    problem.num_feature_words = ANYATTN_FEATURE_WORDS;
    problem.features = words_.data();
    problem.kv_cache_dtype = has_format_ ? format_.c_str() : nullptr;
    return problem;
  }

 private:
  std::array<uint64_t, ANYATTN_FEATURE_WORDS> words_{};
  std::string format_;
  bool has_format_ = false;
};

struct Device {
  uint32_t kind = ANYATTN_DEVICE_CPU;
  int32_t ordinal = 0;
};

// Owns an anyattn_runtime. Outlives what is made from it.
class Runtime {
 public:
  struct Options {
    std::string config_path;  // empty: ANYATTN_CONFIG, else the one installed with the library; likewise below
    std::string backend;
    std::string log_level;
    uint32_t num_threads = 0;
  };

  explicit Runtime(const Options& options) {
    const auto or_null = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
    anyattn_runtime_options given{};
    given.struct_size = ANYATTN_RUNTIME_OPTIONS_SIZE;
    given.num_threads = options.num_threads;
    given.config_path = or_null(options.config_path);
    given.backend = or_null(options.backend);
    given.log_level = or_null(options.log_level);
    anyattn_runtime* made = nullptr;
    check(anyattn_runtime_create, &given, &made);
    runtime_.reset(made);
  }
  Runtime() : Runtime(Options{}) {}

  anyattn_runtime* get() const { return runtime_.get(); }
  uint64_t generation() const { return anyattn_runtime_generation(get()); }

  // See anyattn_runtime_reload; throws where nothing changed.
  void reload() const { check(anyattn_runtime_reload, get()); }

  // JSON texts with the keys that runtime.h names.
  std::string list() const { return text_of(anyattn_runtime_list, get()); }
  std::string config() const { return text_of(anyattn_runtime_config, get()); }
  std::string devices() const { return text_of(anyattn_runtime_devices, get()); }
  // backend: a must of this call; empty = the policy decides.
  std::string explain(const anyattn_problem& problem, const std::string& device = "auto",
                      const std::string& backend = "") const {
    return text_of(anyattn_runtime_explain, get(), &problem, device.c_str(), backend.empty() ? nullptr : backend.c_str());
  }

  Device resolve_device(const std::string& device) const {
    Device resolved;
    check(anyattn_runtime_resolve_device, get(), device.c_str(), &resolved.kind, &resolved.ordinal);
    return resolved;
  }
  void register_backend(const std::string& name, uint32_t device_kind, const std::string& where) {
    check(anyattn_runtime_register_backend, get(), name.c_str(), device_kind, where.c_str());
  }
  void clear_override(const std::string& name, uint32_t device_kind) {
    check(anyattn_runtime_clear_override, get(), name.c_str(), device_kind);
  }
  void lock_memory() { check(anyattn_runtime_lock_memory, get()); }

  void copy(Device device, void* to, const void* from, uint64_t bytes, uint32_t direction, void* stream = nullptr) const {
    check(anyattn_device_copy, get(), device.kind, device.ordinal, to, from, bytes, direction, stream);
  }
  void synchronize(Device device, void* stream = nullptr) const {
    check(anyattn_device_synchronize, get(), device.kind, device.ordinal, stream);
  }

  uint32_t num_workers() const { return anyattn_num_workers(get()); }
  // body(begin, end, worker) over [0, count) on the runtime's threads. An exception inside becomes RuntimeError.
  template <class Body>
  void parallel_for(uint64_t count, uint64_t grain, Body&& body) const {
    using Fn = std::remove_reference_t<Body>;
    const auto run = [](void* argument, uint64_t begin, uint64_t end, uint32_t worker) {
      (*static_cast<Fn*>(argument))(begin, end, worker);
    };
    const int32_t status =
        anyattn_parallel_for(get(), count, grain, run, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
    if (status != ANYATTN_OK) throw RuntimeError(status, "parallel_for: the body let an exception out");
  }

 private:
  template <class Function, class... Args>
  static std::string text_of(Function function, Args... args) {
    char* text = nullptr;
    check(function, args..., &text);
    return take_text(text);
  }
  struct Destroy {
    void operator()(anyattn_runtime* runtime) const { anyattn_runtime_destroy(runtime); }
  };
  std::unique_ptr<anyattn_runtime, Destroy> runtime_;
};

// Owns device memory; freed with it, before its runtime.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const Runtime& runtime, Device device, uint64_t bytes)
      : runtime_(runtime.get()), device_(device), bytes_(bytes) {
    check(anyattn_device_alloc, runtime_, device.kind, device.ordinal, bytes, &memory_);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory() {
    if (memory_) anyattn_device_free(runtime_, device_.kind, device_.ordinal, memory_);
  }
  void* get() const { return memory_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) noexcept {
    std::swap(runtime_, other.runtime_);
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  anyattn_runtime* runtime_ = nullptr;
  Device device_;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// Owns an anyattn_group. Its calls are the C functions with exceptions for statuses; they are as hot as those.
class Group {
 public:
  struct Options {
    anyattn_problem problem{};
    anyattn_limits limits{};
    std::string device = "auto";
    std::string backend;  // a must of this call; empty = the policy decides
    std::string label;    // the layer kind
    uint32_t metadata_mode = 0;
    void* stream = nullptr;
  };

  Group(const Runtime& runtime, const Options& options) {
    anyattn_group_options given{};
    given.struct_size = ANYATTN_GROUP_OPTIONS_SIZE;
    given.metadata_mode = options.metadata_mode;
    given.problem = &options.problem;
    given.limits = &options.limits;
    given.device = options.device.c_str();
    given.backend = options.backend.empty() ? nullptr : options.backend.c_str();
    given.label = options.label.empty() ? nullptr : options.label.c_str();
    given.stream = options.stream;
    anyattn_group* made = nullptr;
    check(anyattn_group_create, runtime.get(), &given, &made);
    group_.reset(made);
  }

  anyattn_group* get() const { return group_.get(); }
  anyattn_group_info info() const {
    anyattn_group_info info{};
    info.struct_size = ANYATTN_GROUP_INFO_SIZE;
    check(anyattn_group_get_info, static_cast<const anyattn_group*>(get()), &info);
    return info;
  }

  void update(uint32_t part, const anyattn_batch& batch, void* stream = nullptr) {
    check(anyattn_group_update, get(), part, &batch, stream);
  }
  void kv_cache_update(const anyattn_kv_cache_update_args& args) { check(anyattn_group_kv_cache_update, get(), &args); }
  void forward(uint32_t part, const anyattn_forward_args& args) { check(anyattn_group_forward, get(), part, &args); }
  void forward_mqa(const anyattn_mqa_args& args) { check(anyattn_group_forward_mqa, get(), &args); }
  void context_gather(const anyattn_context_chunk& chunk, const anyattn_context_gather_args& args) {
    check(anyattn_group_context_gather, get(), &chunk, &args);
  }
  void forward_mha(const anyattn_mha_args& args) { check(anyattn_group_forward_mha, get(), &args); }
  void merge_states(const anyattn_merge_args& args) { check(anyattn_group_merge_states, get(), &args); }

 private:
  struct Destroy {
    void operator()(anyattn_group* group) const { anyattn_group_destroy(group); }
  };
  std::unique_ptr<anyattn_group, Destroy> group_;
};

}  // namespace anyattn

#endif  // ANYATTN_RUNTIME_HPP
