// SPDX-License-Identifier: Apache-2.0
// The decode family of sm_90: what it takes, its memory, its launches.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "anyattn/call_checks.hpp"
#include "cuda_common/check.h"
#include "cuda_common/tensor_map.h"
#include "lacks.h"
#include "params.h"
#include "sm90/decode_kernel.cuh"
#include "sm90/decode_plan.cuh"

namespace anyattn::flash {
namespace {

using namespace sm90;
using cuda::check;

constexpr int kReservedShared = 1024;  // of a block, the system's own
constexpr int kUnitChunks = 16;        // a unit's begin and end, so that blocks of many short units end with the others
constexpr int kMinChunks = 4;          // of a piece: 1 x 500 takes 6.1 us, with 2 chunks 6.6, with 8 6.4

int head_tile(const Problem& problem) { return (problem.head_size + 63) / 64 * 64; }
// Query tokens of an item: as few as the limits allow, since up to 8 rows cost less than 16. Invariant rows come from one kernel
// whatever the limits are.
int tokens_of(const Lane& lane) {
  const int longest = lane.problem.invariant ? lane.max_query : std::min(lane.max_query, lane.limits.max_query_len);
  return std::max(1, std::min(longest, kMaxRows / lane.problem.group()));
}
int rows_of(const Lane& lane) { return tokens_of(lane) * lane.problem.group(); }

// Chunks on their way for a warp: three cover the latency twice over; wider units leave room for two.
int depth_of(const Lane& lane) {
  const int most = lane.device.shared_memory_per_block - kReservedShared;
  int depth = 8;
  while (depth > 1 && decode_shared_bytes(head_tile(lane.problem), rows_of(lane), depth) > most) --depth;
  return depth;
}

int longest_query(const Device& device, const Problem& problem) {
  return sm90_decode_lacks(device, problem) ? 0 : std::max(1, kMaxRows / problem.group());
}

// The lane's part of the persistent block.
struct Parts {
  Line* lines;
  Item* items;
  int64_t* before;
  int32_t* first_item;
  uint32_t* tickets;  // [kCounterSets][ranks]
  uint64_t bytes;
};
Parts parts_of(const Lane& lane, void* persistent) {
  const int ranks = lane.device.num_multiprocessors, reqs = lane.limits.max_num_reqs;
  const uint64_t items = static_cast<uint64_t>(reqs) + static_cast<uint64_t>(lane.limits.max_num_tokens / tokens_of(lane));
  Carver carver(persistent);
  Parts parts{};
  parts.lines = carver.take<Line>(ranks);
  parts.items = carver.take<Item>(items);
  parts.before = carver.take<int64_t>(items + 1);
  parts.first_item = carver.take<int32_t>(reqs + 1);
  parts.tickets = carver.take<uint32_t>(kCounterSets * ranks);
  parts.bytes = carver.used();
  return parts;
}

// Scratch: pieces of units, then tickets for calls that have no set of counters.
uint64_t pieces_bytes(const Lane& lane) {
  const int row = head_tile(lane.problem) + kPartPad;
  return 2ull * static_cast<uint64_t>(lane.device.num_multiprocessors) * static_cast<uint64_t>(rows_of(lane) * row) *
         sizeof(float);
}
uint64_t tickets_bytes(const Lane& lane) { return static_cast<uint64_t>(lane.device.num_multiprocessors) * sizeof(uint32_t); }

Memory memory(const Lane& lane) { return {pieces_bytes(lane) + tickets_bytes(lane), parts_of(lane, nullptr).bytes}; }

using Kernel = void (*)(CUtensorMap, CUtensorMap, DecodeArgs);
template <class T, int kHead>
Kernel kernel_of(bool wide) {
  return wide ? decode<T, kHead, true> : decode<T, kHead, false>;
}
template <class T>
Kernel kernel_of(int head, bool wide) {
  return head == 64 ? kernel_of<T, 64>(wide) : kernel_of<T, 128>(wide);
}
Kernel kernel_of(const Lane& lane) {
  const bool wide = rows_of(lane) > 8;
  const int head = head_tile(lane.problem);
  return lane.problem.dtype == kBF16 ? kernel_of<__nv_bfloat16>(head, wide) : kernel_of<__half>(head, wide);
}

int shared_bytes(const Lane& lane) { return decode_shared_bytes(head_tile(lane.problem), rows_of(lane), depth_of(lane)); }

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
  args.num_kv_heads = lane.problem.num_kv_heads;
  args.ranks = lane.device.num_multiprocessors;
  args.chunks_per_block = lane.problem.block_size / kChunk;
  args.min_chunks = kMinChunks;
  args.unit_cost = kUnitChunks;
  args.invariant = lane.problem.invariant;
  decode_plan<<<1, kPlanThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  check(cudaGetLastError(), "metadata_update");
}

// [block][head][half of a row][slot][64 elements]; a chunk of one head is a box.
CUtensorMap map_of(const Lane& lane, const Forward& f, const Rows& plane) {
  const Problem& p = lane.problem;
  const auto wide = [](auto value) { return static_cast<uint64_t>(value); };
  const uint32_t halves = static_cast<uint32_t>(head_tile(p) / 64);
  // Fetching 256 bytes a miss costs 5 % where the memory is busy.
  return cuda::make_tensor_map({plane.data,
                                5,
                                {64, wide(p.block_size), halves, wide(p.num_kv_heads), std::max<uint64_t>(1, f.num_blocks)},
                                {wide(plane.token_bytes), 128, wide(plane.head_bytes), wide(f.block_bytes)},
                                {64, kChunk, halves, 1, 1},
                                CU_TENSOR_MAP_L2_PROMOTION_L2_128B},
                               p.dtype == kBF16);
}

void forward(const Lane& lane, const Forward& f, void* stream) {
  const Parts parts = parts_of(lane, f.persistent);
  DecodeArgs args{};
  args.lines = parts.lines;
  args.items = parts.items;
  args.parts = static_cast<float*>(f.scratch);
  args.tickets = parts.tickets + f.counter_set * lane.device.num_multiprocessors;
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
  args.softmax_scale = f.softmax_scale;
  args.soft_cap = lane.problem.soft_cap;
  args.mask = mask_of(lane.problem);
  args.group = lane.problem.group();
  args.rows = rows_of(lane);
  args.num_kv_heads = lane.problem.num_kv_heads;
  args.chunks_per_block = lane.problem.block_size / kChunk;
  args.depth = depth_of(lane);
  args.invariant = lane.problem.invariant;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(lane.device.num_multiprocessors));
  config.blockDim = dim3(kWarps * 32);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes(lane));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel_of(lane), map_of(lane, f, f.k), map_of(lane, f, f.v), args), "forward");
}

}  // namespace

const char* sm90_decode_lacks(const Device& device, const Problem& problem) {
  if (device.arch_major != 9) return "sm_90";
  if (problem.kv_dtype != problem.dtype) return "a cache in the dtype of the query";
  if (problem.out_dtype != problem.dtype) return "out in the dtype of the query";
  if (problem.head_size != problem.head_size_v || (problem.head_size != 64 && problem.head_size != 128))
    return "head sizes of 64 or 128, of values the same";
  if (problem.block_size == 0) return "paged keys";
  if (problem.block_size % sm90::kChunk != 0) return "block sizes in multiples of 16";
  if (problem.alibi != kAlibiNone) return "scores without ALiBi";
  if (problem.group() > sm90::kMaxRows) return "up to 16 query heads a kv head";
  return nullptr;
}

constinit const Family kSm90Decode{"sm90_decode", longest_query, memory, prepare, update, forward};

}  // namespace anyattn::flash
