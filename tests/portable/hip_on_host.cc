// SPDX-License-Identifier: Apache-2.0
#include "hip_on_host.h"

namespace anyattn::portable::on_host {
namespace {

constexpr size_t kStackBytes = 256 << 10;

}  // namespace

Block* Block::running = nullptr;

void Block::begin() {
  Block& block = *running;
  (*block.body_)();
  block.ended_[static_cast<size_t>(block.thread_)] = 1;
  ++block.progress_;
}

void Block::run(int threads, const std::function<void()>& body) {
  const auto count = static_cast<size_t>(threads);
  Block block;
  block.body_ = &body;
  block.contexts_.resize(count);
  block.ended_.resize(count);
  block.waves_.resize(count / kWaveLanes);
  const std::unique_ptr<char[]> stacks(new char[count * kStackBytes]);
  running = &block;
  for (size_t i = 0; i < count; ++i) {
    ucontext_t& context = block.contexts_[i];
    getcontext(&context);
    context.uc_stack.ss_sp = stacks.get() + i * kStackBytes;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = &block.turns_;
    makecontext(&context, begin, 0);
  }
  for (size_t left = count; left > 0;) {
    const int64_t before = block.progress_;
    left = 0;
    for (size_t i = 0; i < count; ++i) {
      if (block.ended_[i]) continue;
      block.thread_ = static_cast<int>(i);
      swapcontext(&block.turns_, &block.contexts_[i]);
      left += !block.ended_[i];
    }
    if (block.progress_ == before && left > 0) throw std::runtime_error("threads of a program wait for each other for ever");
  }
}

void Block::meet(Meeting& at, int members) {
  if (++at.arrived == members) {
    at.arrived = 0;
    ++at.number;
    ++progress_;
    return;
  }
  const int own = thread_;
  for (const int number = at.number; at.number == number;) swapcontext(&contexts_[static_cast<size_t>(own)], &turns_);
}

int Block::from_lane(int byte_of_lane, int value) {
  Wave& of = wave();
  of.value[lane()] = value;
  wave_barrier();
  const int found = of.value[(byte_of_lane / 4) & (kWaveLanes - 1)];
  wave_barrier();
  return found;
}

}  // namespace anyattn::portable::on_host
