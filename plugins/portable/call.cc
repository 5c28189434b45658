// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <cmath>

namespace anyattn::portable {
namespace {

constexpr int32_t kWrong = ANYATTN_INVALID_ARGUMENT;
constexpr double kLn2 = 0.69314718055994530942;

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

double to_natural(uint32_t base, const char* name) {
  if (base == ANYATTN_LSE_NATURAL) return 1.0;
  if (base == ANYATTN_LSE_BASE2) return kLn2;
  throw Error(kWrong, name, " ", base, "; allowed: ", ANYATTN_LSE_NATURAL, " (natural), ", ANYATTN_LSE_BASE2, " (base 2)");
}

RawView<3> float_view(const anyattn_tensor& tensor, const char* name, const std::array<int64_t, 3>& shape) {
  RawView<3> out = view<3>(tensor, {.name = name, .shape = shape});
  if (out.dtype != ANYATTN_DTYPE_FLOAT32 && out.dtype != ANYATTN_DTYPE_FLOAT16 && out.dtype != ANYATTN_DTYPE_BFLOAT16)
    throw Error(kWrong, name, ": dtype ", dtype_name(out.dtype), "; needed: float32, float16 or bfloat16");
  return out;
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

Rows rows_of(const RawView<3>& view) {
  return {reinterpret_cast<char*>(view.data), view.stride_bytes[0], view.stride_bytes[1]};
}
Rows rows_of(const RawView<2>& view) { return {reinterpret_cast<char*>(view.data), view.stride_bytes[0], 0}; }

AttendArgs common_args(double softmax_scale, const void* scratch, uint64_t needed) {
  if (!(softmax_scale > 0) || !std::isfinite(softmax_scale))
    throw Error(kWrong, "softmax_scale ", softmax_scale, "; needed: above 0");
  if (needed > 0 && !scratch) throw Error(kWrong, "scratch is null; needed: ", needed, " bytes");
  if (reinterpret_cast<uintptr_t>(scratch) % 256 != 0)
    throw Error(kWrong, "scratch is ", reinterpret_cast<uintptr_t>(scratch) % 256, " bytes past a multiple of 256");
  AttendArgs args{};
  args.softmax_scale = static_cast<float>(softmax_scale);
  args.lse_factor = 1.f;
  return args;
}

void set_lse(AttendArgs& args, const Plan& plan, const anyattn_tensor& lse, uint32_t lse_base, int64_t tokens) {
  if (!lse.data) return;
  if (!plan.has(ANYATTN_FEATURE_LSE)) throw Error(kWrong, "lse is given; the problem does not carry the lse feature");
  args.lse_factor = static_cast<float>(1.0 / to_natural(lse_base, "lse_base"));
  const TensorView<float, 2> out(lse, {.name = "lse", .shape = {tokens, plan.num_q_heads}, .rows_at_least = true});
  args.lse = out.data();
  args.lse_token_stride = out.stride(0);
  args.lse_head_stride = out.stride(1);
}

void check_rows(const RawView<3>& view, const char* name, bool wide) {
  if (!wide) return;
  for (int dim = 0; dim < 2; ++dim) {
    const int64_t stride = view.stride_bytes[static_cast<size_t>(dim)];
    if (view.shape[static_cast<size_t>(dim)] > 1 && stride % 16 != 0)
      throw Error(kWrong, name, ": stride of ", stride, " bytes of dim ", dim, "; needed: a multiple of 16");
  }
  if (reinterpret_cast<uintptr_t>(view.data) % 16 != 0)
    throw Error(kWrong, name, ": byte_offset leaves the first element ", reinterpret_cast<uintptr_t>(view.data) % 16,
                " bytes past a multiple of 16");
}

void set_out(AttendArgs& args, const RawView<3>& out) {
  const int64_t quad = 4 * dtype_bytes(out.dtype);
  if (out.shape[2] % 4 == 0) {
    for (int64_t value :
         {out.stride_bytes[0], out.stride_bytes[1], static_cast<int64_t>(reinterpret_cast<uintptr_t>(out.data) % 16)})
      if (value % quad != 0) throw Error(kWrong, "out: a row starts ", value % quad, " bytes past a multiple of ", quad);
  }
  args.out = rows_of(out);
}

const float* per_head(const anyattn_tensor& tensor, const char* name, const Plan& plan) {
  return TensorView<const float, 1>(tensor, {.name = name, .shape = {plan.num_q_heads}}).data();
}

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
  if (args.num_states == 0 || args.num_states > static_cast<uint32_t>(kMaxStates))
    throw Error(kWrong, "num_states ", args.num_states, "; allowed: 1 to ", kMaxStates);
  if (!args.states) throw Error(kWrong, "states is null");
  const RawView<3> out = float_view(args.out, "out", {kAnySize, plan.num_q_heads, kAnySize});
  MergeArgs to{};
  to.num_states = static_cast<int32_t>(args.num_states);
  to.num_tokens = static_cast<int32_t>(out.shape[0]);
  to.num_heads = static_cast<int32_t>(plan.num_q_heads);
  to.head_size = static_cast<int32_t>(out.shape[2]);
  to.out = rows_of(out);
  to.out_kind = kind_of(out.dtype);
  if (args.lse.data) {
    const TensorView<float, 2> lse(args.lse, {.name = "lse", .shape = {out.shape[0], plan.num_q_heads}, .rows_at_least = true});
    to.lse = lse.data();
    to.lse_token_stride = lse.stride(0);
    to.lse_head_stride = lse.stride(1);
    to.lse_factor = 1.0 / to_natural(args.lse_base, "lse_base");
  }
  for (uint32_t i = 0; i < args.num_states; ++i) {
    const Received state(
        reinterpret_cast<const anyattn_state*>(reinterpret_cast<const char*>(args.states) + size_t{i} * args.state_stride),
        ANYATTN_STATE_SIZE, "a state");
    const RawView<3> part = float_view(state->out, "a state's out", {out.shape[0], plan.num_q_heads, out.shape[2]});
    if (i > 0 && kind_of(part.dtype) != to.part_kind) throw Error(kWrong, "states have two dtypes; needed: one");
    const TensorView<const float, 2> lse(
        state->lse, {.name = "a state's lse", .shape = {out.shape[0], plan.num_q_heads}, .rows_at_least = true});
    to.part_kind = kind_of(part.dtype);
    to.states[i] = {rows_of(part), lse.data(), lse.stride(0), lse.stride(1), to_natural(state->lse_base, "a state's lse_base")};
  }
  if (out.shape[0] > 0) kernels.merge(to, args.stream);
}

}  // namespace anyattn::portable
