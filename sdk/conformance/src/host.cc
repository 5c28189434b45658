// SPDX-License-Identifier: Apache-2.0
#include "host.h"

#include <algorithm>

#include "heap_watch.h"

namespace anyattn::conformance {
namespace {

constexpr uint32_t kWorkers = 5;  // no power of two, so that item counts rarely divide

}  // namespace

Host::Host(Options options, uint64_t isa_mask) : options_(std::move(options)), cpu_(read_cpu_facts()) {
  for (const auto& [key, value] : options_) {
    option_table_.push_back({.struct_size = ANYATTN_OPTION_SIZE, .reserved = 0, .key = key.c_str(), .value = value.c_str()});
  }
  cpu_.isa &= isa_mask;
  table_.struct_size = ANYATTN_HOST_SIZE;
  table_.abi_version = ANYATTN_ABI_VERSION_CURRENT;
  table_.context = this;
  table_.log = log_line;
  table_.parallel_for = parallel_for;
  table_.num_workers = kWorkers;
  table_.num_options = static_cast<uint32_t>(option_table_.size());
  table_.option_stride = sizeof(anyattn_option);
  table_.options = option_table_.data();
  table_.cpu = &cpu_;
}

std::unique_ptr<Host> Host::bare() {
  auto host = std::make_unique<Host>(Options{}, 0);
  host->cpu_ = {};
  host->cpu_.struct_size = ANYATTN_END_OFFSET(anyattn_cpu_facts, num_cores);
  host->cpu_.arch = read_cpu_facts().arch;
  host->cpu_.num_cores = 1;
  host->table_.num_workers = 1;
  host->table_.options = nullptr;
  host->divides_ = false;
  return host;
}

void Host::log_line(void* context, int32_t, const char* line) {
  const KitWork own;
  static_cast<Host*>(context)->log_.emplace_back(line ? line : "(null)");
}

int32_t Host::parallel_for(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) {
  auto* host = static_cast<Host*>(context);
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  if (host->inside_) host->nested_ = true;
  grain = std::max<uint64_t>(grain, 1);
  auto& ranges = host->ranges_;
  ranges.clear();
  for (uint64_t begin = 0; begin < count;) {
    const uint64_t length = host->divides_ ? std::min(count - begin, grain + host->generator_.below(grain + 1)) : count;
    const KitWork own;
    ranges.emplace_back(begin, begin + length);
    begin += length;
  }
  for (size_t i = ranges.size(); i > 1; --i) std::swap(ranges[i - 1], ranges[host->generator_.below(i)]);
  const bool outer = host->inside_;
  host->inside_ = true;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto worker = static_cast<uint32_t>(host->generator_.below(host->table_.num_workers));
    fn(argument, ranges[i].first, ranges[i].second, worker);
  }
  host->inside_ = outer;
  return ANYATTN_OK;
}

}  // namespace anyattn::conformance
