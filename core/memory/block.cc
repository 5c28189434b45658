// SPDX-License-Identifier: Apache-2.0
#include "memory/block.h"

#include "device/status_error.h"

namespace anyattn::memory {
namespace {

std::string size_text(Place place, uint64_t bytes) {
  return std::to_string(bytes) + (place == Place::kPinned ? " bytes of pinned memory" : " bytes of device memory");
}

}  // namespace

Block::Block(const anyattn_device_provider& provider, device::DeviceId id, uint64_t bytes, Place place, const std::string& who)
    : provider_(&provider), id_(id), place_(place), bytes_(bytes) {
  if (bytes == 0) return;
  ErrorBuffer error;
  const auto take = place == Place::kPinned ? provider.alloc_pinned : provider.alloc;
  const int32_t status = take(id.ordinal, bytes, &memory_, error.get());
  if (status != ANYATTN_OK) {
    memory_ = nullptr;
    throw StatusError(status, who + ": " + size_text(place, bytes) + " could not be had: " + error.text());
  }
  const uint64_t rest = reinterpret_cast<uintptr_t>(memory_) % kBlockAlignment;
  if (memory_ && rest == 0) return;
  (place == Place::kPinned ? provider.free_pinned : provider.free)(id.ordinal, memory_);
  memory_ = nullptr;
  throw StatusError(ANYATTN_INTERNAL, who + ": the provider of " + device::kind_name(id.kind) + " gave " +
                                          size_text(place, bytes) + " at an address " + std::to_string(rest) +
                                          " past a multiple of 256 (or none); plugins are promised 256");
}

Block::~Block() {
  if (memory_) (place_ == Place::kPinned ? provider_->free_pinned : provider_->free)(id_.ordinal, memory_);
}

void Block::zero(void* stream, const std::string& who) {
  if (!memory_) return;
  ErrorBuffer error;
  int32_t status = provider_->fill(id_.ordinal, memory_, 0, bytes_, stream, error.get());
  if (status == ANYATTN_OK) status = provider_->stream_synchronize(id_.ordinal, stream, error.get());
  if (status != ANYATTN_OK) {
    throw StatusError(status, who + ": " + size_text(place_, bytes_) + " could not be zeroed: " + error.text());
  }
}

}  // namespace anyattn::memory
