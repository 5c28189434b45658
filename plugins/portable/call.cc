// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <limits>

namespace anyattn::portable {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;

uint64_t part_bytes(const Tile& tile) {
  const auto floats =
      2 * static_cast<uint64_t>(tile.slots) * static_cast<uint64_t>(tile.rows) * static_cast<uint64_t>(tile.columns + 4);
  return (floats * sizeof(float) + 255) / 256 * 256;
}

uint64_t parts_bytes(const Specialisation& spec, int lanes) {
  uint64_t bytes = 0;
  if (spec.direct || spec.cfg.invariant) return 0;
  for (int i = 0; i < lanes; ++i) bytes += part_bytes(spec.lanes[i]);
  return bytes;
}

}  // namespace

uint64_t scratch_bytes(const Host& host, const Specialisation& spec) {
  return parts_bytes(spec, spec.num_lanes) + workspace_bytes(host, spec);
}
float* parts_of(const Specialisation& spec, int lane, void* scratch) {
  return reinterpret_cast<float*>(static_cast<char*>(scratch) + parts_bytes(spec, lane));
}
void* workspace_of(const Specialisation& spec, void* scratch) {
  return static_cast<char*>(scratch) + parts_bytes(spec, spec.num_lanes);
}

int32_t counted(int64_t count, const char* call, const char* what) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (count > kMost)
    throw Error(kWrong, call, ": ", count, " ", what, "; allowed: at most ", kMost, "; ask for fewer at a time");
  return static_cast<int32_t>(count);
}

Rows rows_of(const RawView<3>& view) {
  return {reinterpret_cast<char*>(view.data), view.stride_bytes[0], view.stride_bytes[1]};
}
Rows rows_of(const RawView<2>& view) { return {reinterpret_cast<char*>(view.data), view.stride_bytes[0], 0}; }

LseRows rows_of(const LseOut& to) { return {to.data, to.token_stride, to.head_stride, to.factor}; }

AttendArgs common_args(double softmax_scale, const void* scratch, uint64_t needed) {
  check_softmax_scale(softmax_scale);
  check_scratch_block(scratch, needed);
  AttendArgs args{};
  args.softmax_scale = static_cast<float>(softmax_scale);
  return args;
}

void set_lse(AttendArgs& args, const Plan& plan, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens) {
  args.lse = rows_of(read_lse(plan.has(ANYATTN_FEATURE_LSE), lse, lse_base, tokens, plan.num_q_heads));
}

void set_out(AttendArgs& args, const RawView<3>& out) {
  const int64_t bytes = dtype_bytes(out.dtype), together = out.shape[2] % 4 == 0                ? 4
                                                           : out.shape[2] % 2 == 0 && bytes < 4 ? 2
                                                                                                : 1;
  for (int64_t value :
       {out.stride_bytes[0], out.stride_bytes[1], static_cast<int64_t>(reinterpret_cast<uintptr_t>(out.data) % 16)})
    if (value % (together * bytes) != 0)
      throw Error(kWrong, "out: a row starts ", value % (together * bytes), " bytes past a multiple of ", together * bytes);
  args.out = rows_of(out);
}

const float* call_scale(const anyattn_tensor& tensor, const char* name, const Plan& plan) {
  if (!plan.scaled()) return nullptr;
  return read_per_head(tensor, name, scale_stride(plan) ? plan.num_kv_heads : 1);
}
int32_t scale_stride(const Plan& plan) { return plan.has(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) ? 1 : 0; }

void launch(const Plan& plan, const Kernels& kernels, const Worklist& work, AttendArgs args, void* scratch, void* stream) {
  args.kept = work.kept();
  for (int lane = 0; lane < work.lanes_in_use(); ++lane) {
    args.lane = work.lane(lane);
    args.parts = parts_of(plan.main, lane, scratch);
    kernels.attend(lane, args, workspace_of(plan.main, scratch), stream);
    if (!plan.main.cfg.invariant) kernels.merge_parts(lane, args, stream);
  }
}

void merge_states(const Plan& plan, const Kernels& kernels, const anyattn_merge_args& args) {
  MergeArgs to{};
  const auto add = [&](uint32_t i, const RawView<3>& part, const TensorView<const float, 2>& lse, double factor) {
    to.part_kind = kind_of(part.dtype);
    to.parts[i] = rows_of(part);
    to.part_lse[i] = {const_cast<float*>(lse.data()), lse.stride(0), lse.stride(1), factor};  // is only read
  };
  const auto [out, lse] = read_merge(args, plan.num_q_heads, kMaxStates, add);
  to.num_states = static_cast<int32_t>(args.num_states);
  to.num_heads = static_cast<int32_t>(plan.num_q_heads);
  to.head_size = static_cast<int32_t>(out.shape[2]);
  to.out = rows_of(out);
  to.out_kind = kind_of(out.dtype);
  to.lse = rows_of(lse);
  const int tokens = counted(out.shape[0], "merge_states", "tokens");
  counted(out.shape[0] * to.num_heads, "merge_states", "rows");  // a program a row
  if (tokens > 0) kernels.merge(to, tokens, args.stream);
}

}  // namespace anyattn::portable
