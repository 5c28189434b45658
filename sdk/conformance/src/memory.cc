// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "failure.h"

namespace anyattn::conformance {
namespace {

constexpr size_t kAlignment = 256;
constexpr uint16_t kCanary = 0x7fe5;              // a NaN in float16, bfloat16 and, twice, in float32
constexpr uint64_t kWholeCacheBytes = 64u << 20;  // up to here every block counts as used

void paint(std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(i % 2 ? kCanary >> 8 : kCanary & 0xff);
}

bool painted(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != static_cast<std::byte>(i % 2 ? kCanary >> 8 : kCanary & 0xff)) return false;
  }
  return true;
}

}  // namespace

Block::Block(std::string name, size_t bytes, Fill fill, Side side) : name_(std::move(name)), bytes_(bytes) {
  store_.resize(bytes + 2 * kCanaryBytes + kAlignment);
  const auto start = reinterpret_cast<uintptr_t>(store_.data()) + kCanaryBytes;
  offset_ = (start + kAlignment - 1) / kAlignment * kAlignment - reinterpret_cast<uintptr_t>(store_.data());
  paint(store_.data() + offset_ - kCanaryBytes, kCanaryBytes);
  paint(store_.data() + offset_ + bytes_, kCanaryBytes);
  refill(fill);
  if (bytes_ && side == Side::kDevice && lending_device())
    twin_ = std::make_unique<Twin>(store_.data() + offset_ - kCanaryBytes, bytes_ + 2 * kCanaryBytes);
}

void Block::refill(Fill fill) {
  if (bytes_) std::memset(store_.data() + offset_, fill == Fill::kZero ? 0 : 0xff, bytes_);
}

void Block::check() const {
  if (store_.empty()) return;
  if (!painted(store_.data() + offset_ - kCanaryBytes, kCanaryBytes)) throw Failure("bytes before " + name_ + " were written");
  if (!painted(store_.data() + offset_ + bytes_, kCanaryBytes)) throw Failure("bytes behind " + name_ + " were written");
}

CacheMemory::CacheMemory(uint64_t num_blocks, uint64_t block_stride_bytes, std::vector<int64_t> used)
    : num_blocks_(num_blocks), stride_(block_stride_bytes), used_(std::move(used)) {
  if (num_blocks_ * stride_ <= kWholeCacheBytes) {
    used_.resize(num_blocks_);
    std::iota(used_.begin(), used_.end(), int64_t{0});
  }
  std::sort(used_.begin(), used_.end());
  used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  inner_bytes_ = (num_blocks_ * stride_ + page - 1) / page * page;
  map_bytes_ = inner_bytes_ + 2 * page;
  void* map = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    throw std::runtime_error(text("the kit cannot reserve %zu bytes of address space for a cache", map_bytes_));
  map_ = static_cast<std::byte*>(map);
  base_ = map_ + page;
  if (mprotect(base_, inner_bytes_, PROT_READ | PROT_WRITE) != 0) {
    munmap(map_, map_bytes_);
    throw std::runtime_error(text("the kit cannot make %zu bytes of a cache writable", inner_bytes_));
  }
  paint(base_ + num_blocks_ * stride_, inner_bytes_ - num_blocks_ * stride_);
  if (!lending_device()) return;
  twin_ = std::make_unique<Twin>(base_, inner_bytes_);
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const int64_t id : used_) ranges.emplace_back(static_cast<uint64_t>(id) * stride_, stride_);
  if (used_.size() == num_blocks_) ranges = {{0, num_blocks_ * stride_}};
  if (inner_bytes_ > num_blocks_ * stride_) ranges.emplace_back(num_blocks_ * stride_, inner_bytes_ - num_blocks_ * stride_);
  twin_->only(std::move(ranges));
}

CacheMemory::~CacheMemory() {
  twin_.reset();
  munmap(map_, map_bytes_);
}

std::vector<std::byte> CacheMemory::image() const {
  std::vector<std::byte> bytes(used_.size() * stride_);
  for (size_t i = 0; i < used_.size(); ++i) std::memcpy(bytes.data() + i * stride_, block(used_[i]), stride_);
  return bytes;
}

void CacheMemory::check() const {
  const uint64_t end = num_blocks_ * stride_;
  if (!painted(base_ + end, inner_bytes_ - end)) throw Failure("bytes behind the cache were written");
}

}  // namespace anyattn::conformance
