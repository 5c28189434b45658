// SPDX-License-Identifier: Apache-2.0
// The kernels made ready for one specialisation and launched on a stream. One declaration, an implementation a target:
// kernels_host.cc runs them on the host's threads, kernels_gpu.cc compiles them at run time. Included by plan.cc and attn.cc.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "anyattn/host.hpp"
#include "anyattn/problem.hpp"
#include "kernels/shared.h"

namespace anyattn::portable {

inline constexpr int kMaxLanes = 2;
inline constexpr int kMaxSlots = 1000;  // programs of a launch

// What is compiled together: the lanes of one configuration. min_blocks: programs that share a multiprocessor.
struct Specialisation {
  Config cfg{};
  int num_lanes = 0;
  Tile lanes[kMaxLanes] = {};
  int min_blocks[kMaxLanes] = {1, 1};
  int direct = 0;  // 1: units follow from the program's number (forward_mha)
};

// The target: its name in texts, its device kind, whether this machine can run what a problem needs.
extern const char* const kTarget;
extern const uint32_t kTargetDevice;
// Values of the longest 4-bit row.
extern const uint32_t kMaxRotatedRow;
void check_target(const Host& host, const anyattn_device_facts& facts, Reasons& reasons);
// What a report adds where no device of the architecture has run the kernels; else empty.
std::string not_run_yet(const anyattn_device_facts& facts);
// Cuts the work: fills the lanes for spec.cfg on this device.
void choose_tiles(const Host& host, const anyattn_device_facts& facts, Specialisation& spec);
// Programs side by side on neighbouring heads of the same keys: as many as leave no program of a launch over.
inline int team_of(const Tile& tile) { return std::gcd(tile.slots, tile.head_units); }
// Have they as many tiles of keys in flight as their loop needs, and is there shared memory for them?
bool tiles_fit(const anyattn_device_facts& facts, const Specialisation& spec);
// Can the kernels of the first `lanes` lanes be had: compiled here, or taken from where code lies?
void check_code(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec, int lanes, Reasons& reasons);
// Lanes that queries of at most `longest` rows need: short ones leave the second one out.
inline int lanes_for(const Specialisation& spec, uint32_t longest) {
  return longest <= static_cast<uint32_t>(spec.lanes[0].max_query) ? 1 : spec.num_lanes;
}
// Bytes of scratch beside the parts.
uint64_t workspace_bytes(const Host& host, const Specialisation& spec);

class Kernels {
 public:
  Kernels(const Host& host, const anyattn_device_facts& facts, const Specialisation& spec);
  ~Kernels();
  // Begins to compile the first `lanes` lanes in threads of its own, or to take them from disk. prepare does so too; two impls
  // begin before either waits.
  void begin(int lanes);
  // Waits for the code and loads it; lanes that are there stay. False where all is only to be kept on disk (option warmup).
  bool prepare(int lanes);
  // prepare where something was prepared before, for metadata of wider limits than warmup's; else a launch says what is missing.
  void widen(int lanes);

  // Hot: each queues one launch.
  void plan(int lane, const PlanArgs& args, void* stream) const;
  void attend(int lane, const AttendArgs& args, void* workspace, void* stream) const;
  void merge_parts(int lane, const AttendArgs& args, void* stream) const;
  void direct(int lane, const AttendArgs& args, int programs, void* workspace, void* stream) const;
  void store(const StoreArgs& args, int tokens, void* stream) const;
  void gather(const GatherArgs& args, int rows, void* stream) const;
  void merge(const MergeArgs& args, int tokens, void* stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace anyattn::portable
