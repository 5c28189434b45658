// SPDX-License-Identifier: Apache-2.0
// The general path as two families: decode (16 rows a unit, four warps share the keys) and prefill (up to 128 rows), and the pass over
// a shared prefix.
#include <algorithm>

#include "anyattn/call_checks.hpp"
#include "cuda_common/check.h"
#include "cuda_common/launch.cuh"
#include "sm80/cascade.cuh"
#include "sm80/instances.h"
#include "sm80/merge.cuh"
#include "sm80/schedule.cuh"

namespace anyattn::flash {
namespace sm80 {
namespace {

using cuda::check;

// In tiles: what a unit costs beside its own, to begin and to end, and the least work of a block, since a cut costs a second start and
// a merge of all rows. Measured on an H200 (README).
struct Costs {
  int unit, least;
};
constexpr Costs kDecodeCosts{1, 1}, kPrefillCosts{4, 8};
constexpr Costs kCascadeCosts{1, 2};  // units of equal length: little to balance

template <bool kPrefill>
Tile tile_for(const Problem& problem) {
  return tile_of(head_of(std::max(problem.head_size, problem.head_size_v)), kPrefill);
}

struct Instance {
  int dtype, kv_dtype, head;
  bool prefill;
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const Call&, cudaStream_t);
};
template <int kDtype, bool kFp8, int kHead, bool kPrefill>
constexpr Instance instance(AttendInstance<kDtype, kFp8, kHead, kPrefill> of) {
  return {kDtype, kFp8 ? kE4M3 : kDtype, kHead, kPrefill, of.prepare, of.launch};
}
constexpr Instance kInstances[] = {
#define ANYATTN_INSTANCE(...) instance(__VA_ARGS__{}),
#include "kernels/sm80_instances.inc"
#include "kernels/sm80_instances_e4m3.inc"
#undef ANYATTN_INSTANCE
};

template <bool kPrefill>
const Instance& instance_for(const Problem& problem) {
  const int head = tile_for<kPrefill>(problem).head;
  for (const Instance& one : kInstances)
    if (one.dtype == problem.dtype && one.kv_dtype == problem.kv_dtype && one.head == head && one.prefill == kPrefill)
      return one;
  throw Error(ANYATTN_INTERNAL, "sm80: no kernel for a problem that longest_query takes");
}

// The lane's cut, its lists laid into `persistent`; null counts only.
template <bool kPrefill>
Work make_work(const Lane& lane, const void* persistent, uint64_t* bytes = nullptr) {
  const Problem& problem = lane.problem;
  const Tile tile = tile_for<kPrefill>(problem);
  Work work{};
  const int fits =
      lane.device.shared_memory_per_block / tile.shared_bytes();  // the multiprocessor has about as much as a block
  work.num_blocks = lane.device.num_multiprocessors * std::clamp(fits, 1, tile.blocks);
  const Cut cut = cut_of(tile, problem);
  work.heads = cut.heads;
  work.tokens = cut.tokens;
  work.head_units = cut.head_units;
  work.keys = tile.keys;
  work.unit_cost = (kPrefill ? kPrefillCosts : kDecodeCosts).unit;
  work.min_cost = (kPrefill ? kPrefillCosts : kDecodeCosts).least;
  work.invariant = problem.invariant;
  work.min_query = lane.min_query;
  work.max_query = lane.max_query;
  const uint64_t items = static_cast<uint64_t>(lane.limits.max_num_tokens / work.tokens) + lane.limits.max_num_reqs;
  Carver carver(const_cast<void*>(persistent));
  work.places = carver.take<Place>(work.num_blocks + 1);
  work.items = carver.take<Item>(items);
  work.before = carver.take<int64_t>(items);
  work.first = carver.take<int32_t>(lane.limits.max_num_reqs);
  work.cuts = carver.take<CutUnit>(work.num_blocks);
  work.num_cuts = carver.take<int32_t>(1);
  if (bytes) *bytes = carver.used();
  return work;
}

template <bool kPrefill>
int longest_query(const Device& device, const Problem& problem) {
  const int size = std::max(problem.head_size, problem.head_size_v);
  // Conversions of 8-bit codes are built for sm_90 alone: sm_80 has no instruction for them.
  const bool cache =
      problem.dtype != kE4M3 && (problem.kv_dtype == problem.dtype || (problem.kv_dtype == kE4M3 && device.arch_major == 9));
  if (device.arch_major < 8 || head_of(size) == 0 || !cache) return 0;
  if (kPrefill) return kAnyQuery;
  const int rows = tile_of(head_of(size), false).rows;
  return std::max(1, rows / problem.group());  // one unit a kv head, so that each key is read once
}

template <bool kPrefill>
Memory memory(const Lane& lane) {
  Memory memory{};
  const Work work = make_work<kPrefill>(lane, nullptr, &memory.persistent_bytes);
  const Tile tile = tile_for<kPrefill>(lane.problem);
  if (!lane.problem.invariant)
    memory.scratch_bytes = uint64_t{2} * work.num_blocks * tile.rows * part_floats(tile) * sizeof(float);
  return memory;
}

template <bool kPrefill>
void prepare(const Lane& lane) {
  check(instance_for<kPrefill>(lane.problem).prepare(), "the shared memory of a kernel");
}

template <bool kPrefill>
void update(const Lane& lane, const Update& to, void* stream) {
  schedule<<<1, kScheduleThreads, 0, static_cast<cudaStream_t>(stream)>>>(make_work<kPrefill>(lane, to.persistent),
                                                                          mask_of(lane.problem), to.batch, to.kept);
  check(cudaGetLastError(), "metadata_update");
}

void launch_merge(const Lane& lane, const Call& call, const Tile& tile, cudaStream_t stream) {
  check(cuda::launch({stream, lane.device.num_multiprocessors * kMergeBlocks, kMergeThreads, 0, lane.device.arch_major >= 9},
                     merge_parts, call, tile.rows, tile.head),
        "forward");
}

Call make_call(const Problem& problem, const Forward& f, const Work& work) {
  Call call{};
  call.f = f;
  call.work = work;
  call.mask = mask_of(problem);
  call.group = problem.group();
  call.num_kv_heads = problem.num_kv_heads;
  call.head_size = problem.head_size;
  call.head_size_v = problem.head_size_v;
  call.block_size = problem.block_size;
  call.out_dtype = problem.out_dtype;
  call.alibi = problem.alibi;
  call.soft_cap = problem.soft_cap;
  return call;
}

template <bool kPrefill>
void forward(const Lane& lane, const Forward& f, void* stream) {
  const Problem& problem = lane.problem;
  const Call call = make_call(problem, f, make_work<kPrefill>(lane, f.persistent));
  const auto on = static_cast<cudaStream_t>(stream);
  check(instance_for<kPrefill>(problem).launch(call, on), "forward");
  if (!problem.invariant) launch_merge(lane, call, tile_for<kPrefill>(problem), on);
}

// The pass over a shared prefix: prefill's kernel and merge with a schedule of their own.

CascadeParts cascade_parts(const Lane& lane, const void* persistent, Work& work, uint64_t* bytes = nullptr) {
  uint64_t used = 0;
  work = make_work<true>(lane, persistent, &used);
  work.min_query = 1;  // rows that no request owns are another lane's
  work.unit_cost = kCascadeCosts.unit;
  work.min_cost = kCascadeCosts.least;
  Carver carver(const_cast<void*>(persistent));
  carver.take<char>(used);
  CascadeParts parts{};
  parts.kept = carver.take<Batch>(1);
  parts.starts = carver.take<int32_t>(2);
  parts.lens = carver.take<int32_t>(1);
  parts.takes = carver.take<uint8_t>(lane.limits.max_num_tokens);
  if (bytes) *bytes = carver.used();
  return parts;
}

// Slopes go by a row's own position, which the one request of the pass does not have; a batch-invariant row may not be cut where
// others are.
int cascade_longest_query(const Device& device, const Problem& problem) {
  if (problem.block_size == 0 || problem.alibi != kAlibiNone || problem.invariant) return 0;
  return longest_query<true>(device, problem) == 0 ? 0 : longest_query<false>(device, problem);
}

Memory cascade_memory(const Lane& lane) {
  Memory memory = sm80::memory<true>(lane);
  Work work;
  cascade_parts(lane, nullptr, work, &memory.persistent_bytes);
  return memory;
}

void cascade_update(const Lane& lane, const Update& to, void* stream) {
  CascadePlan plan{};
  plan.parts = cascade_parts(lane, to.persistent, plan.work);
  plan.model = cascade_model(lane.device, lane.problem);
  plan.mask = mask_of(lane.problem);
  plan.batch = to.batch;
  plan.shared = to.shared;
  plan.shared_prefix = to.shared_prefix;
  plan.longest_query = lane.max_query;
  plan.always = to.always;
  plan_cascade<<<1, kScheduleThreads, 0, static_cast<cudaStream_t>(stream)>>>(plan);
  check(cudaGetLastError(), "metadata_update");
}

void cascade_forward(const Lane& lane, const Forward& f, void* stream) {
  Work work;
  const CascadeParts parts = cascade_parts(lane, f.persistent, work);
  Call call = make_call(lane.problem, f, work);
  call.f.kept = parts.kept;
  call.f.sinks = nullptr;  // counted with the other keys
  call.mask = {kNonCausal, -1, -1};
  call.takes = parts.takes;
  call.overlaps = lane.device.arch_major >= 9;
  const auto on = static_cast<cudaStream_t>(stream);
  check(instance_for<true>(lane.problem).launch(call, on), "forward");
  launch_merge(lane, call, tile_for<true>(lane.problem), on);
}

template <bool kPrefill>
constexpr Family family(const char* name) {
  return {name, longest_query<kPrefill>, memory<kPrefill>, prepare<kPrefill>, update<kPrefill>, forward<kPrefill>};
}

}  // namespace
}  // namespace sm80

constinit const Family kSm80Decode = sm80::family<false>("sm80_decode");
constinit const Family kSm80Prefill = sm80::family<true>("sm80_prefill");
constinit const Family kSm80Cascade{"sm80",
                                    sm80::cascade_longest_query,
                                    sm80::cascade_memory,
                                    sm80::prepare<true>,
                                    sm80::cascade_update,
                                    sm80::cascade_forward};

}  // namespace anyattn::flash
