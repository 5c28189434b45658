// SPDX-License-Identifier: Apache-2.0
// The Hopper prefill as a family of params.h: which problems it does, what memory it needs, how its two kernels are launched.
#include <algorithm>
#include <numbers>
#include <numeric>

#include "cuda_common/check.h"
#include "cuda_common/tensor_map.h"
#include "flash_cuda/dtype_of.h"
#include "flash_cuda/lacks.h"
#include "flash_cuda/params.h"
#include "flash_cuda/sm90/prefill_instance.cuh"
#include "flash_cuda/sm90/prefill_work.cuh"

namespace anyattn::flash {
namespace {

struct Instance {
  int dtype, row;  // Dtype; of kPrefillTiles
  void (*prepare)();
  void (*launch)(const PrefillMaps&, const PrefillArgs&, int, void*);
};
template <class Element, int kRow>
constexpr Instance instance(PrefillInstance<Element, kRow> of) {
  return {kDtypeOf<Element>, kRow, of.prepare, of.launch};
}
constexpr Instance kInstances[] = {
#define ANYATTN_INSTANCE(...) instance(__VA_ARGS__{}),
#include "kernels/sm90_instances.inc"
#undef ANYATTN_INSTANCE
};

// The one decision: everything the launches need; instance null: not this family's problem, for what it lacks.
struct Choice {
  const Instance* instance = nullptr;
  PrefillTile tile{};
  int pack = 1;  // query heads a token in a row tile
  const char* lacks = nullptr;
};

const char* lacks_beside_tile(const Device& device, const Problem& problem) {
  const bool codes = problem.dtype == kE4M3;
  if (device.arch_major != 9 || device.arch_minor != 0) return "sm_90";
  if (problem.kv_dtype != problem.dtype) return "a cache in the dtype of the query";
  if (codes && problem.block_size == 0) return "paged keys";
  if (codes ? problem.out_dtype != kF16 && problem.out_dtype != kBF16 : problem.out_dtype != problem.dtype)
    return codes ? "out in float16 or bfloat16" : "out in the dtype of the query";
  if (problem.alibi != kAlibiNone) return "scores without ALiBi";
  const int step = codes ? 16 : 8;  // rows of a multiple of 16 bytes, for the copy engine
  if (problem.head_size % step != 0 || problem.head_size_v % step != 0)
    return codes ? "head sizes in multiples of 16" : "head sizes in multiples of 8";
  return nullptr;
}

Choice choose(const Device& device, const Problem& problem) {
  Choice choice;
  choice.lacks = lacks_beside_tile(device, problem);
  if (choice.lacks) return choice;
  for (const Instance& instance : kInstances) {  // those of a dtype: smallest first
    const PrefillTile& tile = kPrefillTiles[instance.row];
    if (instance.dtype != problem.dtype || tile.head_size < problem.head_size || tile.head_size_v < problem.head_size_v)
      continue;
    if (problem.block_size % 8 != 0) {  // a copy is of whole groups of 8 swizzled rows
      choice.lacks = "block sizes in multiples of 8";
      continue;
    }
    choice.instance = &instance;
    choice.tile = tile;
    break;
  }
  if (choice.instance)
    choice.lacks = nullptr;
  else if (!choice.lacks)
    choice.lacks = "another pairing of head sizes";
  // The largest divisor of the group up to 16: at most 15 of 128 rows stay empty, and a single token fills up to 16.
  for (int pack = 1; pack <= 16; pack++) {
    if (problem.group() % pack == 0) choice.pack = pack;
  }
  return choice;
}

int tokens_per_tile(const Choice& choice) { return choice.tile.rows / choice.pack; }

int max_works(const Lane& lane, const Choice& choice) {
  return (lane.limits.max_num_tokens + tokens_per_tile(choice) - 1) / tokens_per_tile(choice) + lane.limits.max_num_reqs + 1;
}

Choice choose(const Lane& lane) { return choose(lane.device, lane.problem); }

int blocks_of(const Lane& lane, const Choice& choice) {
  const int64_t items = static_cast<int64_t>(max_works(lane, choice)) * (lane.problem.num_q_heads / choice.pack);
  return static_cast<int>(std::min<int64_t>(lane.device.num_multiprocessors, items));
}

int longest_query(const Device& device, const Problem& problem) {
  return choose(device, problem).instance != nullptr ? kAnyQuery : 0;
}

Memory memory(const Lane& lane) {
  return {0, sizeof(PrefillHeader) + sizeof(PrefillWork) * static_cast<uint64_t>(max_works(lane, choose(lane)))};
}

void prepare(const Lane& lane) {
  choose(lane).instance->prepare();
  cuda::tensor_map_encoder();
}

void update(const Lane& lane, const Update& update, void* stream) {
  const Choice choice = choose(lane);
  const Problem& problem = lane.problem;
  const PrefillPlan plan{tokens_per_tile(choice),
                         choice.tile.keys,
                         problem.window_left,
                         problem.window_right,
                         problem.causality,
                         lane.min_query,
                         lane.max_query,
                         problem.num_q_heads / choice.pack,
                         problem.group() / choice.pack,
                         choice.tile.element * (problem.head_size + problem.head_size_v),
                         blocks_of(lane, choice)};
  prefill_schedule<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(update.batch, plan, update.kept,
                                                                      static_cast<PrefillHeader*>(update.persistent));
  cuda::check(cudaGetLastError(), "sm90_prefill, schedule");
}

CUtensorMap map_of(const Problem& problem, const cuda::BoxedTensor& tensor) {
  if (problem.dtype == kE4M3) return cuda::make_tensor_map(tensor, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  return cuda::make_tensor_map(tensor, problem.dtype == kBF16);
}

// Rows of one plane of a paged cache, or ragged ones as a single block.
CUtensorMap map_of(const Lane& lane, const Forward& call, const Rows& rows, int head_size, int columns, int box_rows) {
  const Problem& problem = lane.problem;
  const bool paged = problem.block_size != 0;
  const cuda::BoxedTensor tensor{
      rows.data,
      4,
      {static_cast<uint64_t>(head_size),
       static_cast<uint64_t>(paged ? problem.block_size : std::max<int64_t>(call.num_keys, 1)),
       static_cast<uint64_t>(problem.num_kv_heads), paged ? std::max<uint64_t>(call.num_blocks, 1) : 1},
      {static_cast<uint64_t>(rows.token_bytes), static_cast<uint64_t>(rows.head_bytes),
       static_cast<uint64_t>(paged ? call.block_bytes : rows.token_bytes)},
      {static_cast<uint32_t>(columns), static_cast<uint32_t>(box_rows), 1, 1}};
  return map_of(problem, tensor);
}

void forward(const Lane& lane, const Forward& call, void* stream) {
  const Choice choice = choose(lane);
  const Problem& problem = lane.problem;
  const int q_tokens = tokens_per_tile(choice), columns = 128 / choice.tile.element;
  const int box_rows = problem.block_size == 0 ? choice.tile.keys : std::gcd(problem.block_size, choice.tile.keys);
  const cuda::BoxedTensor q{
      call.q.data,
      3,
      {static_cast<uint64_t>(problem.head_size), static_cast<uint64_t>(problem.num_q_heads),
       static_cast<uint64_t>(std::max<int64_t>(call.num_tokens, 1))},
      {static_cast<uint64_t>(call.q.head_bytes), static_cast<uint64_t>(call.q.token_bytes)},
      {static_cast<uint32_t>(columns), static_cast<uint32_t>(choice.pack), static_cast<uint32_t>(q_tokens)}};
  const PrefillMaps maps{map_of(problem, q), map_of(lane, call, call.k, problem.head_size, columns, box_rows),
                         map_of(lane, call, call.v, problem.head_size_v, columns, box_rows)};
  PrefillArgs args{};
  args.header = static_cast<const PrefillHeader*>(call.persistent);
  args.kept = call.kept;
  args.heads = problem.num_q_heads / choice.pack;
  args.pack = choice.pack;
  args.kv_ratio = problem.group() / choice.pack;
  args.q_tokens = q_tokens;
  args.head_size_v = problem.head_size_v;
  args.window_left = problem.window_left < 0 ? kFar : problem.window_left;
  args.block_size = problem.block_size;
  args.box_rows = box_rows;
  args.num_blocks = static_cast<int>(call.num_blocks);
  const double scale = call.softmax_scale, cap = problem.soft_cap;
  args.scale_log2 = static_cast<float>(std::numbers::log2e * (cap > 0 ? cap : scale));
  args.cap_log2 = cap > 0 ? static_cast<float>(2 * std::numbers::log2e * scale / cap) : 0;
  args.q_scale = call.q_scale;
  args.k_scale = call.k_scale;
  args.v_scale = call.v_scale;
  args.q_scales_per_head = call.q_scales_per_head;
  args.kv_scales_per_head = call.scales_per_head;
  args.out_dtype = problem.out_dtype;
  args.sinks = problem.sinks ? call.sinks : nullptr;
  args.out = call.out;
  args.lse = call.lse;
  args.lse_token_stride = call.lse_token_stride;
  args.lse_head_stride = call.lse_head_stride;
  args.lse_factor = call.lse_factor;
  choice.instance->launch(maps, args, blocks_of(lane, choice), stream);
}

}  // namespace

const char* sm90_prefill_lacks(const Device& device, const Problem& problem) { return choose(device, problem).lacks; }

const Family kSm90Prefill{"sm90_prefill", longest_query, memory, prepare, update, forward};

}  // namespace anyattn::flash
