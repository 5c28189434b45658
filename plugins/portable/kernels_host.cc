// SPDX-License-Identifier: Apache-2.0
// The kernels as ordinary functions on the host's threads: the same text, with the host's words.
#include "kernels.h"

#include <algorithm>
#include <limits>

#include "vendor/host_programs.h"

namespace anyattn::portable {
namespace {

uint64_t tile_bytes(const Specialisation& spec) {
  const auto head = static_cast<uint64_t>(padded_to(spec.cfg.head_size, 16)),
             columns = static_cast<uint64_t>(spec.lanes[0].columns);
  const uint64_t floats =
      (kHostRows + kHostKeys) * head + kHostKeys * columns + 2 * kHostRows + kHostRows * (columns + 8) + 4 * kHostKeys;
  return (floats * sizeof(float) + 255) / 256 * 256;
}

}  // namespace

const char* const kTarget = "cpu";
const uint32_t kTargetDevice = ANYATTN_DEVICE_CPU;
const uint32_t kMaxRotatedRow = kMaxRotated;  // each row is turned back as it is read

void check_target(const Host&, const anyattn_device_facts&, Reasons&) {}
std::string not_run_yet(const anyattn_device_facts&) { return {}; }

void choose_tiles(const Host& host, const anyattn_device_facts&, Specialisation& spec) {
  const Config& cfg = spec.cfg;
  Tile& tile = spec.lanes[0];
  spec.num_lanes = 1;
  tile.rows = kHostRows;
  tile.keys = kHostKeys;
  tile.columns = std::min(kHostColumns, padded_to(cfg.head_size_v, 16));
  tile.warps_m = tile.warps_n = tile.m_tiles = tile.stages = 1;
  tile.heads = std::min(cfg.group, kHostRows);
  tile.tokens = kHostRows / tile.heads;
  tile.head_units =
      cfg.num_kv_heads * ((cfg.group + tile.heads - 1) / tile.heads) * ((cfg.head_size_v + tile.columns - 1) / tile.columns);
  tile.max_query = std::numeric_limits<int>::max();
  tile.slots =
      std::min(kMaxSlots, static_cast<int>(4 * host.num_workers()));  // so that a slow thread does not hold up the others
  tile.slack = 10;
  tile.min_tiles = 4;  // 256 keys: below, joining costs more than it saves
}

void check_code(const Host&, const anyattn_device_facts&, const Specialisation&, int, Reasons&) {}

bool tiles_fit(const anyattn_device_facts&, const Specialisation&) { return true; }

uint64_t workspace_bytes(const Host& host, const Specialisation& spec) { return host.num_workers() * tile_bytes(spec); }

struct Kernels::Impl {
  Host host;
  Specialisation spec;
};

Kernels::Kernels(const Host& host, const anyattn_device_facts&, const Specialisation& spec)
    : impl_(std::make_unique<Impl>(Impl{host, spec})) {}
Kernels::~Kernels() = default;
void Kernels::begin(int) {}
bool Kernels::prepare(int) { return true; }
void Kernels::widen(int) {}

void Kernels::plan(int lane, const PlanArgs& args, void*) const {
  Programs(impl_->spec.cfg, impl_->spec.lanes[lane]).plan(args);
}

void Kernels::attend(int lane, const AttendArgs& args, void* workspace, void*) const {
  const Tile& tile = impl_->spec.lanes[lane];
  const uint64_t bytes = tile_bytes(impl_->spec);
  impl_->host.parallel_for(static_cast<uint64_t>(tile.slots), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    Programs programs(impl_->spec.cfg, tile);
    const auto tiles = programs.tiles(static_cast<char*>(workspace) + worker * bytes);
    for (uint64_t i = begin; i < end; ++i) programs.attend(args, tiles, static_cast<int>(i));
  });
}

void Kernels::merge_parts(int lane, const AttendArgs& args, void*) const {
  const Tile& tile = impl_->spec.lanes[lane];
  impl_->host.parallel_for(static_cast<uint64_t>(tile.slots), 4, [&](uint64_t begin, uint64_t end, uint32_t) {
    Programs programs(impl_->spec.cfg, tile);
    for (uint64_t i = begin; i < end; ++i) programs.merge_parts(args, static_cast<int>(i), 0, 1);
  });
}

void Kernels::direct(int lane, const AttendArgs& args, int count, void* workspace, void*) const {
  const uint64_t bytes = tile_bytes(impl_->spec);
  impl_->host.parallel_for(static_cast<uint64_t>(count), 1, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    Programs programs(impl_->spec.cfg, impl_->spec.lanes[lane]);
    const auto tiles = programs.tiles(static_cast<char*>(workspace) + worker * bytes);
    for (uint64_t i = begin; i < end; ++i) programs.attend_direct(args, tiles, static_cast<int>(i));
  });
}

void Kernels::store(const StoreArgs& args, int tokens, void*) const {
  impl_->host.parallel_for(static_cast<uint64_t>(tokens), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    Programs programs(impl_->spec.cfg, impl_->spec.lanes[0]);
    for (uint64_t i = begin; i < end; ++i) programs.store_token(args, static_cast<int>(i));
  });
}

void Kernels::gather(const GatherArgs& args, int rows, void*) const {
  impl_->host.parallel_for(static_cast<uint64_t>(rows), 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    Programs programs(impl_->spec.cfg, impl_->spec.lanes[0]);
    for (uint64_t i = begin; i < end; ++i) programs.gather_row(args, static_cast<int>(i));
  });
}

void Kernels::merge(const MergeArgs& args, int tokens, void*) const {
  const auto heads = static_cast<uint64_t>(args.num_heads);
  impl_->host.parallel_for(static_cast<uint64_t>(tokens) * heads, 16, [&](uint64_t begin, uint64_t end, uint32_t) {
    Programs programs(impl_->spec.cfg, impl_->spec.lanes[0]);
    for (uint64_t i = begin; i < end; ++i)
      programs.merge_row(args, static_cast<int64_t>(i / heads), static_cast<int64_t>(i % heads));
  });
}

}  // namespace anyattn::portable
