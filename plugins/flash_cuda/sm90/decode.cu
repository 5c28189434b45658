// SPDX-License-Identifier: Apache-2.0
// The decode family of sm_90: what it takes, its memory, its launches.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "anyattn/call_checks.hpp"
#include "cuda_common/check.h"
#include "cuda_common/launch.cuh"
#include "cuda_common/tensor_map.h"
#include "dtype_of.h"
#include "lacks.h"
#include "params.h"
#include "sm90/decode_instance.cuh"
#include "sm90/decode_plan.cuh"

namespace anyattn::flash {
namespace {

using namespace sm90;
using cuda::check;

constexpr int kReservedShared = 1024;  // of a block, the system's own
constexpr int kUnitChunks = 16;        // a unit's begin and end, so that blocks of many short units end with the others
constexpr int kFewChunks = 16;  // of a line, for 4 of 8 warps to share it: 8 x 500, 16 chunks a line, takes 9.3 us, not 10.0
constexpr int kMinChunks = 4;   // of a piece: 1 x 500 takes 6.1 us, with 2 chunks 6.6, with 8 6.4

DecodeTile tile_of(const Lane& lane) { return decode_tile(lane.problem.head_size); }

int row_bytes(const Problem& problem) { return problem.head_size * (problem.kv_dtype == kE4M3 ? 1 : 2); }

// Units that a kv head's query heads are cut into, equally; 0: there is no such cut without narrow units, which read keys too often.
int slices_of(const Problem& problem) {
  const int group = problem.group();
  for (int slices = (group + kMaxRows - 1) / kMaxRows; slices * 8 <= group; ++slices)
    if (group % slices == 0) return slices;
  return group <= kMaxRows ? 1 : 0;
}
int heads_of(const Problem& problem) { return problem.group() / slices_of(problem); }  // query heads of a unit

// Query tokens of an item: as few as the limits allow, since up to 8 rows cost less than 16. Invariant rows come from one kernel
// whatever the limits are.
int tokens_of(const Lane& lane) {
  const int longest = lane.problem.invariant ? lane.max_query : std::min(lane.max_query, lane.limits.max_query_len);
  return std::max(1, std::min(longest, kMaxRows / heads_of(lane.problem)));
}
int rows_of(const Lane& lane) { return tokens_of(lane) * heads_of(lane.problem); }

int shared_bytes(const Lane& lane, int depth) {
  return tile_of(lane).shared_bytes(row_bytes(lane.problem), rows_of(lane), depth);
}
// Chunks on their way for a warp: wider units leave less room.
int depth_of(const Lane& lane) {
  int depth = tile_of(lane).depth;
  while (depth > 1 && shared_bytes(lane, depth) > lane.device.shared_memory_per_block - kReservedShared) --depth;
  return depth;
}

struct Instance {
  int dtype, kv_dtype, head_size;
  DecodeKernel (*kernel)(bool wide);
};
template <class T, class Code, int kHead>
constexpr Instance instance(DecodeInstance<T, Code, kHead> of) {
  return {kDtypeOf<T>, kDtypeOf<Code>, kHead, of.kernel};
}
constexpr Instance kInstances[] = {
#define ANYATTN_INSTANCE(...) instance(__VA_ARGS__{}),
#include "kernels/sm90_decode_instances.inc"
#undef ANYATTN_INSTANCE
};

// The kernel for a lane; null where there is none.
DecodeKernel kernel_of(const Problem& problem, bool wide) {
  for (const Instance& one : kInstances)
    if (one.dtype == problem.dtype && one.kv_dtype == problem.kv_dtype && one.head_size == problem.head_size)
      return one.kernel(wide);
  return nullptr;
}
DecodeKernel kernel_of(const Lane& lane) { return kernel_of(lane.problem, rows_of(lane) > 8); }

// Keys are read twice at most, by two items or two slices. Prefill reads them once but never splits them, and needs up to seven times as
// long for few requests; with more items decode loses that again where requests are many (README).
int longest_query(const Device& device, const Problem& problem) {
  if (sm90_decode_lacks(device, problem)) return 0;
  return std::max(1, 2 / slices_of(problem)) * std::max(1, kMaxRows / heads_of(problem));
}

// Blocks of the launch, in clusters of two: an odd multiprocessor is left out.
int ranks_of(const Lane& lane) { return std::max(2, lane.device.num_multiprocessors / 2 * 2); }
int lines_of(const Lane& lane) { return ranks_of(lane) * tile_of(lane).teams(); }

// The lane's part of the persistent block.
struct Parts {
  Line* lines;
  Item* items;
  int64_t* before;
  int32_t* first_item;
  uint32_t* tickets;  // [kCounterSets][lines]
  uint64_t bytes;
};
Parts parts_of(const Lane& lane, void* persistent) {
  const int lines = lines_of(lane), reqs = lane.limits.max_num_reqs;
  const uint64_t items = static_cast<uint64_t>(reqs) + static_cast<uint64_t>(lane.limits.max_num_tokens / tokens_of(lane));
  Carver carver(persistent);
  Parts parts{};
  parts.lines = carver.take<Line>(lines);
  parts.items = carver.take<Item>(items);
  parts.before = carver.take<int64_t>(items + 1);
  parts.first_item = carver.take<int32_t>(reqs + 1);
  parts.tickets = carver.take<uint32_t>(kCounterSets * lines);
  parts.bytes = carver.used();
  return parts;
}

// Scratch: pieces of units, then tickets for calls that have no set of counters.
uint64_t pieces_bytes(const Lane& lane) {
  const int row = lane.problem.head_size + kPartPad;
  return 2ull * static_cast<uint64_t>(lines_of(lane)) * static_cast<uint64_t>(rows_of(lane) * row) * sizeof(float);
}
uint64_t tickets_bytes(const Lane& lane) { return static_cast<uint64_t>(lines_of(lane)) * sizeof(uint32_t); }

Memory memory(const Lane& lane) { return {pieces_bytes(lane) + tickets_bytes(lane), parts_of(lane, nullptr).bytes}; }

// Asks for the most that a block may have: impls of other sizes share the kernel, and the value set last counts.
void prepare(const Lane& lane) {
  cuda::tensor_map_encoder();  // found here, not in the first call
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_of(lane)), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             lane.device.shared_memory_per_block - kReservedShared),
        "the shared memory of a kernel");
}

void update(const Lane& lane, const Update& u, void* stream) {
  const Parts parts = parts_of(lane, u.persistent);
  PlanArgs args{};
  args.batch = u.batch;
  args.kept = u.kept;
  args.items = parts.items;
  args.before = parts.before;
  args.first_item = parts.first_item;
  args.lines = parts.lines;
  args.mask = mask_of(lane.problem);
  args.min_query = lane.min_query;
  args.max_query = lane.max_query;
  args.tokens = tokens_of(lane);
  args.num_heads = lane.problem.num_kv_heads * slices_of(lane.problem);
  args.ranks = ranks_of(lane);
  args.warps = tile_of(lane).warps;
  args.few_chunks = kFewChunks;
  args.chunks_per_block = lane.problem.block_size / kChunk;
  args.min_chunks = kMinChunks;
  args.unit_cost = kUnitChunks;
  args.invariant = lane.problem.invariant;
  decode_plan<<<1, kPlanThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  check(cudaGetLastError(), "metadata_update");
}

// [block][head][segment of a row][slot][elements]; a chunk of one head is a box.
CUtensorMap map_of(const Lane& lane, const Forward& f, const Rows& plane) {
  const Problem& p = lane.problem;
  const auto wide = [](auto value) { return static_cast<uint64_t>(value); };
  const int row = row_bytes(p), segment = segment_bytes(row), size = row / p.head_size;
  const uint32_t elements = static_cast<uint32_t>(segment / size), segments = static_cast<uint32_t>(row / segment);
  const CUtensorMapDataType type = size == 1          ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : p.dtype == kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                      : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  // Fetching 256 bytes a miss costs 5 % where the memory is busy.
  return cuda::make_tensor_map(
      {plane.data,
       5,
       {elements, wide(p.block_size), segments, wide(p.num_kv_heads), std::max<uint64_t>(1, f.num_blocks)},
       {wide(plane.token_bytes), wide(segment), wide(plane.head_bytes), wide(f.block_bytes)},
       {elements, kChunk, segments, 1, 1},
       CU_TENSOR_MAP_L2_PROMOTION_L2_128B},
      type);
}

void forward(const Lane& lane, const Forward& f, void* stream) {
  const Parts parts = parts_of(lane, f.persistent);
  DecodeArgs args{};
  args.lines = parts.lines;
  args.items = parts.items;
  args.parts = static_cast<float*>(f.scratch);
  args.tickets = parts.tickets + f.counter_set * lines_of(lane);
  if (f.counter_set < 0) {  // more blocks of scratch than sets: this call's own, cleared before it
    args.tickets = reinterpret_cast<uint32_t*>(static_cast<char*>(f.scratch) + pieces_bytes(lane));
    check(cudaMemsetAsync(args.tickets, 0, tickets_bytes(lane), static_cast<cudaStream_t>(stream)), "forward");
  }
  args.q = f.q;
  args.out = f.out;
  args.lse = f.lse;
  args.lse_token_stride = f.lse_token_stride;
  args.lse_head_stride = f.lse_head_stride;
  args.lse_factor = f.lse_factor;
  args.sinks = f.sinks;
  args.k_scale = f.k_scale;
  args.v_scale = f.v_scale;
  args.scales_per_head = f.scales_per_head;
  args.out_dtype = lane.problem.out_dtype;
  args.softmax_scale = f.softmax_scale;
  args.soft_cap = lane.problem.soft_cap;
  args.mask = mask_of(lane.problem);
  args.group = heads_of(lane.problem);
  args.inverse_group = 256 / args.group + 1;
  args.rows = rows_of(lane);
  args.slices = slices_of(lane.problem);
  args.num_heads = lane.problem.num_kv_heads * args.slices;
  args.chunks_per_block = cuda::Divisor(lane.problem.block_size / kChunk);
  args.depth = depth_of(lane);
  args.invariant = lane.problem.invariant;
  const cuda::Launch launch{.stream = static_cast<cudaStream_t>(stream),
                            .blocks = ranks_of(lane),
                            .threads = tile_of(lane).threads(),
                            .shared_bytes = shared_bytes(lane, args.depth),
                            .overlaps = true,
                            .cluster = 2};
  check(cuda::launch(launch, kernel_of(lane), map_of(lane, f, f.k), map_of(lane, f, f.v), args), "forward");
}

}  // namespace

const char* sm90_decode_lacks(const Device& device, const Problem& problem) {
  if (device.arch_major != 9 || device.arch_minor != 0) return "sm_90";  // sm_90a runs there alone
  if (problem.dtype == kE4M3) return "queries of 16 bits";
  if (problem.kv_dtype != problem.dtype && problem.kv_dtype != kE4M3) return "a cache in the dtype of the query, or fp8_e4m3";
  if (problem.head_size != problem.head_size_v || !kernel_of(problem, false))
    return "head sizes of 64, 96, 128, 192 or 256, of values the same";
  if (problem.block_size == 0) return "paged keys";
  if (problem.block_size % sm90::kChunk != 0) return "block sizes in multiples of 16";
  if (problem.alibi != kAlibiNone) return "scores without ALiBi";
  if (slices_of(problem) == 0) return "query heads a kv head up to 16, or in equal parts of 8 to 16";
  return nullptr;
}

constinit const Family kSm90Decode{"sm90_decode", longest_query, memory, prepare, update, forward};

}  // namespace anyattn::flash
