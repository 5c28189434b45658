// SPDX-License-Identifier: Apache-2.0
#include "replay_arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "batch.h"
#include "case_data.h"
#include "format_case.h"
#include "mla_data.h"
#include "plain_call.h"

namespace anyattn::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t width_of(const Case& c) {
  return static_cast<size_t>(is_mla(c) ? c.kv_lora_rank : c.head_size_v > 0 ? c.head_size_v : c.head_size);
}

// Columns [first, first + count) of rows `places` of [any, width].
template <class Places>
std::vector<float> columns_of(const std::vector<float>& from, const Places& places, size_t width, size_t first, size_t count) {
  std::vector<float> values;
  for (const auto& place : places) {
    const auto begin = from.begin() + place.key_row * static_cast<int64_t>(width) + static_cast<int64_t>(first);
    values.insert(values.end(), begin, begin + static_cast<int64_t>(count));
  }
  return values;
}

// Inputs that no batch changes; absent where the case has none.
struct Constant {
  Constant(const char* name, const std::vector<float>& values) {
    if (values.empty()) return;
    tensor = Tensor(name, ANYATTN_DTYPE_FLOAT32, static_cast<int64_t>(values.size()), {});
    tensor.write(values);
  }
  Tensor tensor;
};

class PlainArena : public Arena {
 public:
  PlainArena(Session& session, const Case& c)
      : Arena(session, c),
        constants_(constants_of(c)),
        q_("q", c.dtype, limits_.max_num_tokens, {c.num_q_heads, c.head_size}),
        sinks_("sinks", constants_.sinks),
        slopes_("alibi_slopes", constants_.slopes),
        k_scale_("k_scale", k_scales_of(c)),
        v_scale_("v_scale", v_scales_of(c)) {}

  Reference fill(const Case& batch, uint64_t seed) override {
    const PlainData data = make_plain_data(batch, session_.subject().model_file);
    std::vector<std::vector<int64_t>> key_rows(batch.lens.size());
    for (size_t r = 0; r < batch.lens.size(); ++r) {
      for (int64_t key = 0; key < batch.lens[r].key_len; ++key) key_rows[r].push_back(data.key_row(r, key));
    }
    const auto places = lay_out(batch, {data.query_start_loc, data.num_tokens, std::move(key_rows)}, seed);
    const auto rows = static_cast<int64_t>(places.size());
    const auto k_width = static_cast<size_t>(c_.num_kv_heads) * static_cast<size_t>(c_.head_size);
    const auto v_width = static_cast<size_t>(c_.num_kv_heads) * width_;
    Tensor k("k", c_.dtype, rows, {c_.num_kv_heads, c_.head_size});
    Tensor v("v", c_.dtype, rows, {c_.num_kv_heads, static_cast<int64_t>(width_)});
    k.write(columns_of(data.k, places, k_width, 0, k_width));
    v.write(columns_of(data.v, places, v_width, 0, v_width));
    anyattn_kv_cache_update_args args{};
    args.k = k.view();
    args.v = v.view();
    args.k_scale = k_scale_.tensor.view();
    args.v_scale = v_scale_.tensor.view();
    store(args, places);
    write_rows(q_, data.q, static_cast<size_t>(c_.num_q_heads) * static_cast<size_t>(c_.head_size));
    return plain_reference(batch, data, 0);
  }

  int32_t forward(void* scratch, void* stream, anyattn_error* error) override {
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.lse_base = base_of(c_);
    args.softmax_scale = constants_.softmax_scale;
    args.q = q_.view();
    args.sinks = sinks_.tensor.view();
    args.alibi_slopes = slopes_.tensor.view();
    args.k_scale = k_scale_.tensor.view();
    args.v_scale = v_scale_.tensor.view();
    args.out = out_.view();
    if (wants_lse(c_)) args.lse = lse_.view();
    args.cache = &cache_;
    args.scratch = scratch;
    args.stream = stream;
    return session_.subject().backend.forward(session_.impl(), session_.metadata(), &args, error);
  }

 private:
  static PlainData constants_of(Case c) {
    c.causal.clear();
    return make_plain_data(c, "");
  }

  const PlainData constants_;  // of a batch of no request
  Tensor q_;
  Constant sinks_, slopes_, k_scale_, v_scale_;
};

class LatentArena : public Arena {
 public:
  LatentArena(Session& session, const Case& c)
      : Arena(session, c),
        softmax_scale_(make_mla_data(c).softmax_scale),
        q_latent_("q_latent", c.dtype, limits_.max_num_tokens, {c.num_q_heads, c.kv_lora_rank}),
        q_pe_("q_pe", c.dtype, limits_.max_num_tokens, {c.num_q_heads, c.rope}),
        k_scale_("k_scale", k_scales_of(c)) {}

  Reference fill(const Case& batch, uint64_t seed) override {
    const MlaData data = make_mla_data(batch);
    std::vector<std::vector<int64_t>> key_rows(batch.lens.size());
    for (size_t r = 0; r < batch.lens.size(); ++r) {
      key_rows[r].resize(static_cast<size_t>(batch.lens[r].key_len));
      std::iota(key_rows[r].begin(), key_rows[r].end(), data.key_start[r]);
    }
    const auto places = lay_out(batch, {data.query_start_loc, data.num_tokens, std::move(key_rows)}, seed);
    const auto rows = static_cast<int64_t>(places.size());
    const auto rope = static_cast<size_t>(c_.rope), depth = width_ + rope;
    Tensor kv_c("kv_c", c_.dtype, rows, {c_.kv_lora_rank}), k_pe("k_pe", c_.dtype, rows, {c_.rope});
    kv_c.write(columns_of(data.rows, places, depth, 0, width_));
    k_pe.write(columns_of(data.rows, places, depth, width_, rope));
    anyattn_kv_cache_update_args args{};
    args.kv_c = kv_c.view();
    args.k_pe = k_pe.view();
    args.k_scale = k_scale_.tensor.view();
    store(args, places);
    const auto heads = static_cast<size_t>(c_.num_q_heads);
    std::vector<Place> q_rows(static_cast<size_t>(data.num_tokens) * heads);
    for (size_t i = 0; i < q_rows.size(); ++i) q_rows[i].key_row = static_cast<int64_t>(i);
    write_rows(q_latent_, columns_of(data.q, q_rows, depth, 0, width_), heads * width_);
    write_rows(q_pe_, columns_of(data.q, q_rows, depth, width_, rope), heads * rope);
    return mla_decode_reference(batch, data, 0);
  }

  int32_t forward(void* scratch, void* stream, anyattn_error* error) override {
    anyattn_mqa_args args{};
    args.struct_size = ANYATTN_MQA_ARGS_SIZE;
    args.lse_base = base_of(c_);
    args.softmax_scale = softmax_scale_;
    args.q_latent = q_latent_.view();
    args.q_pe = q_pe_.view();
    args.k_scale = k_scale_.tensor.view();
    args.cache = &cache_;
    args.out = out_.view();
    if (wants_lse(c_)) args.lse = lse_.view();
    args.scratch = scratch;
    args.stream = stream;
    return session_.subject().backend.forward_mqa(session_.impl(), session_.metadata(), &args, error);
  }

 private:
  double softmax_scale_;
  Tensor q_latent_, q_pe_;
  Constant k_scale_;
};

}  // namespace

Arena::Arena(Session& session, const Case& c)
    : session_(session),
      c_(c),
      limits_(session.limits()),
      width_(width_of(c)),
      table_stride_(int64_t{limits_.max_blocks_per_req} + 1),
      memory_(uint64_t{limits_.max_num_reqs} * limits_.max_blocks_per_req, session.layout().spec()->block_bytes, {}),
      starts_("query_start_loc", (limits_.max_num_reqs + 1) * sizeof(int32_t), Fill::kZero),
      seq_lens_("seq_lens", limits_.max_num_reqs * sizeof(int32_t), Fill::kZero),
      table_("block_table", static_cast<size_t>(table_stride_) * limits_.max_num_reqs * sizeof(int32_t), Fill::kZero),
      causal_("causal", limits_.max_num_reqs, Fill::kZero),
      out_("out", out_dtype_of(c), limits_.max_num_tokens, {c.num_q_heads, static_cast<int64_t>(width_)}),
      lse_("lse", ANYATTN_DTYPE_FLOAT32, limits_.max_num_tokens, {c.num_q_heads}) {
  cache_ = {.struct_size = ANYATTN_CACHE_SIZE,
            .reserved = 0,
            .base = memory_.lent(),
            .block_stride_bytes = memory_.stride(),
            .num_blocks = memory_.num_blocks(),
            .spec = session.layout().spec()};
}

std::vector<Arena::Place> Arena::lay_out(const Case& batch, const Rows& rows, uint64_t seed) {
  for (int64_t id : memory_.used()) std::memset(memory_.block(id), 0xff, memory_.stride());
  std::vector<int64_t> ids(memory_.num_blocks());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  SplitMix64 generator(seed);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[generator.below(i)]);
  std::fill_n(table_.as<int32_t>(), table_.size() / sizeof(int32_t), kForbiddenBlock);
  const auto block_size = static_cast<int64_t>(session_.block_size());
  std::vector<Place> places;
  size_t taken = 0;
  view_ = {};
  view_.struct_size = ANYATTN_BATCH_SIZE;
  view_.num_reqs = static_cast<uint32_t>(batch.lens.size());
  view_.num_tokens = static_cast<uint32_t>(rows.num_tokens);
  view_.max_query_len = view_.max_seq_len = 1;
  view_.shared_prefix_len = static_cast<uint32_t>(batch.shared_prefix);
  starts_.as<int32_t>()[0] = 0;
  for (size_t r = 0; r < batch.lens.size(); ++r) {
    const auto [query_len, key_len] = batch.lens[r];
    starts_.as<int32_t>()[r + 1] = rows.query_start_loc[r + 1];
    seq_lens_.as<int32_t>()[r] = key_len;
    if (!batch.causal.empty()) causal_.as<uint8_t>()[r] = batch.causal[r] != 0;
    view_.max_query_len = std::max(view_.max_query_len, static_cast<uint32_t>(query_len));
    view_.max_seq_len = std::max(view_.max_seq_len, static_cast<uint32_t>(key_len));
    for (int64_t key = 0; key < key_len; ++key) {
      if (key % block_size == 0)
        table_.as<int32_t>()[static_cast<int64_t>(r) * table_stride_ + key / block_size] = static_cast<int32_t>(ids[taken++]);
      places.push_back({ids[taken - 1] * block_size + key % block_size, rows.key_rows[r][static_cast<size_t>(key)]});
    }
  }
  if (batch.lens.empty()) return places;  // the arrays stay null
  view_.query_start_loc = starts_.lent_as<int32_t>();
  view_.seq_lens = seq_lens_.lent_as<int32_t>();
  view_.block_table = table_.lent_as<int32_t>();
  view_.block_table_stride = table_stride_;
  if (!batch.causal.empty()) view_.causal = causal_.lent_as<uint8_t>();
  return places;
}

void Arena::write_rows(Tensor& tensor, const std::vector<float>& values, size_t width) const {
  std::vector<float> rows(values);
  rows.resize(static_cast<size_t>(limits_.max_num_tokens) * width, kNan);
  tensor.write(rows);
}

void Arena::store(anyattn_kv_cache_update_args& args, const std::vector<Place>& places) {
  if (places.empty()) return;
  std::vector<int64_t> slots;
  for (const Place& place : places) slots.push_back(place.slot);
  Tensor slot_mapping("slot_mapping", ANYATTN_DTYPE_INT64, static_cast<int64_t>(slots.size()), {});
  slot_mapping.write_raw(slots);
  args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  args.slot_mapping = slot_mapping.view();
  args.cache = &cache_;
  session_.hot("kv_cache_update",
               [&](anyattn_error* error) { return session_.subject().backend.kv_cache_update(session_.impl(), &args, error); });
}

void Arena::poison() {
  const size_t heads = static_cast<size_t>(limits_.max_num_tokens) * static_cast<size_t>(c_.num_q_heads);
  out_.write(std::vector<float>(heads * width_, kNan));
  lse_.write(std::vector<float>(heads, kNan));
}

Outputs Arena::read() const {
  Outputs got{out_.read(), wants_lse(c_) ? lse_.read() : std::vector<float>{}};
  got.out.resize(view_.num_tokens * out_row());
  if (!got.lse.empty()) got.lse.resize(view_.num_tokens * static_cast<size_t>(c_.num_q_heads));
  return got;
}

std::unique_ptr<Arena> make_arena(Session& session, const Case& c) {
  if (is_mla(c)) return std::make_unique<LatentArena>(session, c);
  return std::make_unique<PlainArena>(session, c);
}

}  // namespace anyattn::conformance
