// SPDX-License-Identifier: Apache-2.0
// Memory for the tests of plugins/cpu: tensors with padded strides, guarded blocks, a paged cache full of poison.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "anyattn/backend.h"
#include "anyattn/conformance/numbers.h"
#include "anyattn/kv_cache.hpp"

namespace anyattn::cpu_test {

// 256-byte aligned bytes with a canary behind them.
class Guarded {
 public:
  explicit Guarded(uint64_t bytes, uint8_t fill = 0xa5)
      : bytes_(bytes),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(256, (bytes + kCanary + 255) / 256 * 256)), &std::free) {
    std::memset(memory_.get(), fill, bytes);
    std::memset(memory_.get() + bytes, 0xc5, kCanary);
  }
  void* data() const { return memory_.get(); }
  std::string broken(const char* name) const {
    for (uint64_t i = 0; i < kCanary; ++i)
      if (memory_.get()[bytes_ + i] != 0xc5) return std::string("written past the end of ") + name;
    return {};
  }

 private:
  static constexpr uint64_t kCanary = 64;
  uint64_t bytes_;
  std::unique_ptr<uint8_t, void (*)(void*)> memory_;
};

// A dense last dim; rows lie `kGap` elements further apart than they need.
class TestTensor {
 public:
  TestTensor(std::vector<int64_t> shape, uint32_t dtype)
      : shape_(std::move(shape)),
        strides_(shape_.size(), 1),
        dtype_(dtype),
        element_(dtype == ANYATTN_DTYPE_INT64 ? 8 : conformance::dtype_bytes(dtype)) {
    int64_t stride = 1;
    for (size_t i = shape_.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= shape_[i];
      if (i == 1) stride += kGap;
    }
    memory_ = std::make_unique<Guarded>(static_cast<uint64_t>(stride > 0 ? stride : 0) * element_ + element_, 0xff);
  }
  template <class T>
  static TestTensor of(const std::vector<T>& values) {
    constexpr uint32_t dtype = sizeof(T) == 8 ? ANYATTN_DTYPE_INT64 : ANYATTN_DTYPE_FLOAT32;
    TestTensor tensor({static_cast<int64_t>(values.size())}, dtype);
    std::memcpy(tensor.memory_->data(), values.data(), values.size() * sizeof(T));
    return tensor;
  }

  anyattn_tensor get() {
    anyattn_tensor tensor{};
    tensor.data = memory_->data();
    tensor.device_type = ANYATTN_DEVICE_CPU;
    tensor.ndim = static_cast<int32_t>(shape_.size());
    tensor.dtype_code = static_cast<uint8_t>(dtype_ & 0xff);
    tensor.dtype_bits = static_cast<uint8_t>((dtype_ >> 8) & 0xff);
    tensor.dtype_lanes = 1;
    tensor.shape = shape_.data();
    tensor.strides = strides_.data();
    return tensor;
  }

  void fill(uint64_t seed, double amplitude) {
    conformance::SplitMix64 generator(seed);
    each([&](void* at) { conformance::store_element(dtype_, at, static_cast<float>(generator.value() * amplitude)); });
  }
  void set_all(float value) {
    each([&](void* at) { conformance::store_element(dtype_, at, value); });
  }
  void poison() { set_all(__builtin_nanf("")); }
  void poison_row(int64_t row) {
    auto* at = static_cast<char*>(memory_->data()) + row * strides_[0] * static_cast<int64_t>(element_);
    for (int64_t i = 0; i < strides_[0] - kGap; ++i)
      conformance::store_element(dtype_, at + i * static_cast<int64_t>(element_), __builtin_nanf(""));
  }
  std::vector<float> floats() const {
    std::vector<float> values;
    each([&](void* at) { values.push_back(conformance::load_element(dtype_, at)); });
    return values;
  }
  // The same with one row of NaN behind.
  TestTensor with_row() const {
    std::vector<int64_t> shape = shape_;
    ++shape[0];
    TestTensor longer(shape, dtype_);
    const auto bytes = static_cast<size_t>(shape_[0] * strides_[0]) * element_;
    std::memcpy(longer.memory_->data(), memory_->data(), bytes);
    longer.poison_row(shape_[0]);
    return longer;
  }
  // Rows 0.. of `from` to rows `row`.. of this one.
  void copy_rows(const TestTensor& from, int64_t row, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(strides_[0]) * element_;
    std::memcpy(static_cast<char*>(memory_->data()) + static_cast<size_t>(row) * row_bytes, from.memory_->data(),
                static_cast<size_t>(rows) * row_bytes);
  }
  // Heads first_head.. of `from`, [rows, more heads, size], to all heads of this one.
  void copy_heads(const TestTensor& from, int64_t first_head) {
    for (int64_t row = 0; row < shape_[0]; ++row)
      std::memcpy(static_cast<char*>(memory_->data()) + static_cast<size_t>(row * strides_[0]) * element_,
                  static_cast<const char*>(from.memory_->data()) +
                      static_cast<size_t>(row * from.strides_[0] + first_head * strides_[1]) * element_,
                  static_cast<size_t>(shape_[1] * strides_[1]) * element_);
  }
  std::string broken(const char* name) const { return memory_->broken(name); }

 private:
  static constexpr int64_t kGap = 8;

  template <class F>
  void each(F f) const {
    const int64_t rows = shape_[0], inner = rows ? (shape_.size() > 1 ? strides_[0] - kGap : 1) : 0;
    auto* at = static_cast<char*>(memory_->data());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < inner; ++i) f(at + (r * strides_[0] + i) * static_cast<int64_t>(element_));
  }

  std::vector<int64_t> shape_, strides_;
  uint32_t dtype_;
  size_t element_;
  std::unique_ptr<Guarded> memory_;
};

// Accepted specs, copied.
class Specs {
 public:
  static void accept(void* context, const anyattn_kv_cache_spec* spec) {
    auto& self = *static_cast<Specs*>(context);
    auto copy = std::make_unique<Copy>();
    copy->spec = *spec;
    copy->name = spec->name;
    for (uint32_t i = 0; i < spec->num_planes; ++i) copy->planes.push_back(spec->planes[i]);
    copy->spec.planes = copy->planes.data();
    copy->spec.plane_stride = sizeof(anyattn_plane);
    copy->spec.name = copy->name.c_str();
    self.copies_.push_back(std::move(copy));
  }
  size_t size() const { return copies_.size(); }
  const anyattn_kv_cache_spec& at(size_t i) const { return copies_.at(i)->spec; }

 private:
  struct Copy {
    anyattn_kv_cache_spec spec;
    std::vector<anyattn_plane> planes;
    std::string name;
  };
  std::vector<std::unique_ptr<Copy>> copies_;
};

// Blocks in scrambled order, poison in every slot without an owner, an enlarged block stride, -1 behind each table row.
class PagedCache {
 public:
  PagedCache(const anyattn_kv_cache_spec* spec, const std::vector<int32_t>& key_start, uint32_t width, uint64_t seed,
             float poison, uint32_t dtype)
      : width_(width) {
    if (!spec) return;
    const int64_t block_size = spec->block_size;
    const size_t num_reqs = key_start.size() - 1;
    std::vector<int32_t> ids;
    for (size_t r = 0; r < num_reqs; ++r)
      for (int64_t i = 0; i < (key_start[r + 1] - key_start[r] + block_size - 1) / block_size; ++i)
        ids.push_back(static_cast<int32_t>(ids.size()) + 1);
    conformance::SplitMix64 generator(seed + 99);
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[generator.below(i)]);
    cache_.struct_size = ANYATTN_CACHE_SIZE;
    cache_.block_stride_bytes = spec->block_bytes + spec->alignment * 3;
    cache_.num_blocks = ids.size() + 2;
    cache_.spec = spec;
    memory_ = std::make_unique<Guarded>(cache_.block_stride_bytes * cache_.num_blocks);
    const size_t element = conformance::dtype_bytes(dtype);
    for (uint64_t at = 0; at + element <= cache_.block_stride_bytes * cache_.num_blocks; at += element)
      conformance::store_element(dtype, static_cast<char*>(memory_->data()) + at, poison);
    cache_.base = memory_->data();
    table_.assign(std::max<size_t>(num_reqs, 1) * (width + 1), -1);
    size_t next = 0;
    for (size_t r = 0; r < num_reqs; ++r) {
      for (int64_t i = 0; i < key_start[r + 1] - key_start[r]; ++i) {
        auto& entry = table_[r * (width + 1) + static_cast<size_t>(i / block_size)];
        if (i % block_size == 0) entry = ids[next++];
        slots_.push_back(entry * block_size + i % block_size);
      }
    }
  }
  const anyattn_cache* get() const { return &cache_; }
  const std::vector<int64_t>& slots() const { return slots_; }
  int32_t* table() { return table_.data(); }
  int64_t table_stride() const { return width_ + 1; }
  std::vector<char> bytes() const {
    const auto* from = static_cast<const char*>(memory_->data());
    return {from, from + cache_.block_stride_bytes * cache_.num_blocks};
  }

 private:
  uint32_t width_;
  anyattn_cache cache_{};
  std::unique_ptr<Guarded> memory_;
  std::vector<int32_t> table_;
  std::vector<int64_t> slots_;
};

// The blocks of a cache once more, `stride` bytes apart in address space that is reserved and not committed.
class FarBlocks {
 public:
  FarBlocks(const PagedCache& cache, uint64_t stride) : stride_(stride), bytes_(stride * cache.get()->num_blocks) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  }
  ~FarBlocks() {
    if (base_) munmap(base_, bytes_);
  }
  FarBlocks(const FarBlocks&) = delete;
  FarBlocks& operator=(const FarBlocks&) = delete;
  char* base() const { return base_; }
  void copy_from(const PagedCache& cache) const {
    for (uint64_t block = 0; block < cache.get()->num_blocks; ++block)
      std::memcpy(base_ + block * stride_,
                  static_cast<const char*>(cache.get()->base) + block * cache.get()->block_stride_bytes,
                  cache.get()->spec->block_bytes);
  }

 private:
  uint64_t stride_, bytes_;
  char* base_;
};

// Destroys through the backend's slot.
template <class T>
struct Owned {
  Owned(T* made, void (*destroy_with)(T*)) : object(made), destroy(destroy_with) {}
  ~Owned() { destroy(object); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* object;
  void (*destroy)(T*);
};

// Every reason of a refusal.
class ReasonList {
 public:
  struct Reason {
    uint32_t id;
    std::string field, wanted, allowed;
  };
  const anyattn_reason_sink* sink() {
    sink_ = {
        ANYATTN_REASON_SINK_SIZE, 0, this, [](void* context, const anyattn_reason* reason) {
          static_cast<ReasonList*>(context)->reasons.push_back({reason->id, reason->field, reason->wanted, reason->allowed});
        }};
    return &sink_;
  }
  std::string all() const {
    std::string text;
    for (const Reason& r : reasons) text += r.field + "=" + r.wanted + " allowed " + r.allowed + "; ";
    return text;
  }
  std::vector<Reason> reasons;

 private:
  anyattn_reason_sink sink_{};
};

}  // namespace anyattn::cpu_test
