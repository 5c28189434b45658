// SPDX-License-Identifier: Apache-2.0
#include "memory/scratch.h"

#include <atomic>
#include <cinttypes>
#include <map>
#include <mutex>
#include <vector>

#include "anyattn/util.h"
#include "device/status_error.h"
#include "memory/block.h"

namespace anyattn::memory {
namespace {

// What this thread was last lent, by scratch object and stream. Numbers of scratch objects are never used twice, so an entry of
// one that is gone matches nothing.
struct Lent {
  uint64_t number = 0;
  void* stream = nullptr;
  void* block = nullptr;
  uint64_t bytes = 0;
};
constexpr size_t kLentEntries = 16;
constinit thread_local Lent lent_here[kLentEntries];

Lent& lent_entry(uint64_t number, void* stream) {
  return lent_here[(number * 7 + (reinterpret_cast<uintptr_t>(stream) >> 6)) % kLentEntries];
}

std::atomic<uint64_t> next_number{1};

}  // namespace

struct Scratch::State : std::enable_shared_from_this<Scratch::State> {
  const anyattn_device_provider* provider = nullptr;
  device::DeviceId id;
  LogLine log;
  uint64_t number = 0;
  bool per_thread = false;  // host memory: the stream says nothing, a calling thread has its own block
  bool has_graphs = false;

  mutable std::mutex mutex;
  uint64_t reserved = 0;
  bool is_locked = false;
  std::map<const void*, Block> current;  // by stream, or by a thread's own address
  std::vector<Block> idle;               // of threads that ended
  std::vector<Block> replaced;           // grown out of; a captured graph may still name them

  int32_t lend_slowly(void* stream, uint64_t bytes, void** block, anyattn_error* error);
  void give_back(const void* key);
};

// Hands this thread's blocks back when it ends, so that an engine that starts threads anew does not pile blocks up.
class Scratch::ThreadBlocks {
 public:
  ~ThreadBlocks() {
    for (const std::weak_ptr<State>& weak : states_) {
      if (const auto state = weak.lock()) state->give_back(this);
    }
  }
  void belongs_to(const std::shared_ptr<State>& state) {
    std::erase_if(states_, [](const std::weak_ptr<State>& weak) { return weak.expired(); });
    states_.push_back(state);
  }

 private:
  std::vector<std::weak_ptr<State>> states_;
};
thread_local Scratch::ThreadBlocks Scratch::thread_blocks_;

Scratch::Scratch(const anyattn_device_provider& provider, device::DeviceId id, LogLine log)
    : state_(std::make_shared<State>()) {
  state_->provider = &provider;
  state_->id = id;
  state_->log = std::move(log);
  state_->number = next_number.fetch_add(1, std::memory_order_relaxed);
  state_->per_thread = id.kind == ANYATTN_DEVICE_CPU;
  state_->has_graphs = provider.graph_capture_begin != nullptr;
}

// Memory goes with the runtime; a thread that ends later finds the state empty or gone.
Scratch::~Scratch() {
  const std::lock_guard lock(state_->mutex);
  state_->current.clear();
  state_->idle.clear();
  state_->replaced.clear();
}

void Scratch::reserve(uint64_t bytes, const std::string& who) {
  const std::lock_guard lock(state_->mutex);
  if (bytes <= state_->reserved) return;
  if (state_->is_locked) {
    throw StatusError(ANYATTN_OUT_OF_MEMORY, who + ": needs " + std::to_string(bytes) + " bytes of scratch on " +
                                                 device::kind_name(state_->id.kind) + ", memory was locked at " +
                                                 std::to_string(state_->reserved) +
                                                 "; make every group before memory is locked");
  }
  state_->reserved = bytes;
}

void Scratch::lock() {
  const std::lock_guard lock(state_->mutex);
  state_->is_locked = true;
}

uint64_t Scratch::reserved_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reserved;
}

bool Scratch::locked() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_locked;
}

int32_t Scratch::lend(void* stream, uint64_t bytes, void** block, anyattn_error* error) {
  State& state = *state_;
  void* const key = state.per_thread ? nullptr : stream;
  const Lent& entry = lent_entry(state.number, key);
  if (entry.number == state.number && entry.stream == key && entry.bytes >= bytes) {
    *block = entry.block;
    return ANYATTN_OK;
  }
  return state.lend_slowly(stream, bytes, block, error);
}

int32_t Scratch::State::lend_slowly(void* stream, uint64_t bytes, void** block, anyattn_error* error) try {
  const std::lock_guard guard(mutex);
  const std::string kind = device::kind_name(id.kind);
  if (bytes > reserved) {
    return anyattn_error_set(error, ANYATTN_OUT_OF_MEMORY,
                             "scratch of %s: %" PRIu64 " bytes asked for, %" PRIu64 " were reserved", kind.c_str(), bytes,
                             reserved);
  }
  const void* key = per_thread ? static_cast<const void*>(&thread_blocks_) : stream;
  auto at = current.find(key);
  if (at == current.end() || at->second.bytes() < bytes) {
    if (is_locked && has_graphs) {
      return anyattn_error_set(error, ANYATTN_CAPTURE_VIOLATION,
                               "scratch of %s: this stream has no block of %" PRIu64
                               " bytes and memory is locked, so a graph may "
                               "be under capture; call once on the stream before locking, or pass args.scratch",
                               kind.c_str(), bytes);
    }
    Block fresh;
    if (!idle.empty() && idle.back().bytes() >= bytes) {
      fresh = std::move(idle.back());
      idle.pop_back();
    } else {
      fresh = Block(*provider, id, reserved, Place::kDevice, "scratch of " + kind);
      log("scratch of " + kind + ": " + std::to_string(reserved) + " bytes allocated for " +
          (per_thread ? "a calling thread" : "a stream"));
    }
    if (at == current.end()) {
      idle.reserve(idle.size() + current.size() + 1);  // give_back runs while a thread ends and cannot fail then
      at = current.emplace(key, std::move(fresh)).first;
      if (per_thread) thread_blocks_.belongs_to(shared_from_this());
    } else {
      std::swap(at->second, fresh);
      if (!per_thread) replaced.push_back(std::move(fresh));
    }
  }
  lent_entry(number, per_thread ? nullptr : stream) = {number, per_thread ? nullptr : stream, at->second.get(),
                                                       at->second.bytes()};
  *block = at->second.get();
  return ANYATTN_OK;
} catch (const StatusError& failure) {
  return anyattn_error_set(error, failure.status(), "%s", failure.what());
} catch (const std::exception& failure) {
  return anyattn_error_set(error, ANYATTN_MEMORY_NOT_NOW, "scratch: %s", failure.what());
}

void Scratch::State::give_back(const void* key) {
  const std::lock_guard guard(mutex);
  const auto at = current.find(key);
  if (at == current.end()) return;
  if (at->second.bytes() >= reserved) idle.push_back(std::move(at->second));
  current.erase(at);
}

}  // namespace anyattn::memory
