// SPDX-License-Identifier: Apache-2.0
#include "serving/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "anyattn/runtime.hpp"
#include "common/failure.h"

namespace anyattn::tools {

Scheduler::Scheduler(const Trace& trace, const SchedulerOptions& options, anyattn_kv_pool* pool)
    : trace_(trace), options_(options), pool_(pool) {}

const std::vector<StepRow>& Scheduler::plan(double clock_s) {
  rows_.clear();
  budget_ = options_.token_budget;
  preempted_ = false;
  admit_arrivals(clock_s);
  schedule_running();
  if (!preempted_) schedule_waiting();
  return rows_;
}

void Scheduler::admit_arrivals(double clock_s) {
  for (; next_arrival_ < trace_.requests.size() && arrival_s(next_arrival_) <= clock_s; ++next_arrival_) {
    auto request = std::make_unique<ServedRequest>();
    request->content = {&trace_.requests[next_arrival_], options_.seed, next_arrival_};
    request->id = next_arrival_;
    waiting_.push_back(std::move(request));
  }
}

void Scheduler::schedule_running() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    ServedRequest& request = *running_[i];
    const uint32_t count = std::min(request.known() - request.computed, budget_);
    if (!make_room(i, request.computed + count)) return;
    rows_.push_back({&request, request.computed, count});
    budget_ -= count;
  }
}

// Room for the request at `position`, taken from those behind it if it must be. False where it had to give way itself.
bool Scheduler::make_room(size_t position, uint32_t total_tokens) {
  while (!reserve(*running_[position], total_tokens, running_.size() == 1)) {
    const bool itself = position + 1 == running_.size();
    preempt_last();
    if (itself) return false;
  }
  return true;
}

void Scheduler::preempt_last() {
  std::unique_ptr<ServedRequest> request = std::move(running_.back());
  running_.pop_back();
  anyattn::check(anyattn_kv_pool_release, pool_, request->id);
  request->computed = 0;
  waiting_.push_front(std::move(request));
  preempted_ = true;
  ++preemptions_;
}

void Scheduler::schedule_waiting() {
  while (!waiting_.empty() && budget_ > 0 && running_.size() < options_.max_num_reqs) {
    if (!take_in(*waiting_.front())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    ServedRequest& request = *running_.back();
    const uint32_t count = std::min(request.known() - request.computed, budget_);
    rows_.push_back({&request, request.computed, count});
    budget_ -= count;
  }
}

bool Scheduler::take_in(ServedRequest& request) {
  token_ids_.resize(request.known());
  for (uint32_t p = 0; p < request.known(); ++p) token_ids_[p] = request.content.token_id(p);
  anyattn::check(anyattn_kv_pool_begin, pool_, request.id, token_ids_.data(), request.known(), 0, &request.cached);
  request.computed = request.cached;
  const uint32_t count = std::min(request.known() - request.cached, budget_);
  if (reserve(request, request.cached + count, running_.empty())) return true;
  anyattn::check(anyattn_kv_pool_release, pool_, request.id);
  request.computed = request.cached = 0;
  return false;
}

// False where there is no room now. `alone`: nobody else holds blocks, so waiting would not help.
bool Scheduler::reserve(ServedRequest& request, uint32_t total_tokens, bool alone) {
  std::array<char, 512> text;
  anyattn_error error{text.data(), static_cast<uint32_t>(text.size()), 0, 0, 0};
  const int32_t status = anyattn_kv_pool_reserve(pool_, request.id, total_tokens, &error);
  if (status == ANYATTN_OK) return true;
  if (status == ANYATTN_MEMORY_NOT_NOW && !alone) return false;
  std::string why = text.data();
  if (status == ANYATTN_OUT_OF_MEMORY) {  // the library knows neither our numbers nor our flags
    anyattn_kv_pool_stats stats{};
    stats.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
    anyattn::check(anyattn_kv_pool_get_stats, pool_, &stats);
    why =
        fmt::format("{} tokens are too many for the whole KV pool of {} pages; raise --blocks, or leave it out by --max-prompt",
                    total_tokens, stats.total_pages);
  }
  throw Failure(kExitFailed, fmt::format("request {} of {} ({} prompt and {} output tokens): {}", request.id + 1, trace_.name,
                                         request.trace().prompt_tokens, request.trace().output_tokens, why));
}

void Scheduler::finish() {
  for (const StepRow& row : rows_) {
    ServedRequest& request = *row.request;
    request.computed = row.start + row.count;
    anyattn::check(anyattn_kv_pool_commit, pool_, request.id, request.computed);
    if (request.computed < request.known()) continue;
    const int32_t token = request.content.token_id(request.known());
    ++request.generated;
    if (request.generated < request.trace().output_tokens) {
      anyattn::check(anyattn_kv_pool_append, pool_, request.id, &token, 1);
    } else {
      anyattn::check(anyattn_kv_pool_release, pool_, request.id);
      ++requests_done_;
    }
  }
  rows_.clear();
  std::erase_if(running_, [](const auto& request) { return request->generated >= request->trace().output_tokens; });
}

}  // namespace anyattn::tools
