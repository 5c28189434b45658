// SPDX-License-Identifier: Apache-2.0
#include "plain_call.h"

#include <algorithm>
#include <limits>

#include "failure.h"
#include "format_case.h"

namespace anyattn::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of the case's keys that each request's local keys are, on this rank.
std::vector<std::vector<int64_t>> key_rows(const Case& c, const PlainData& data, uint32_t rank) {
  std::vector<std::vector<int64_t>> rows;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const RowRules rules = rules_of(c, data, r, rank);
    const int64_t count = shard_length(c.lens[r].key_len, rules.cp_world_size, rules.cp_rank, rules.cp_interleave);
    auto& of_request = rows.emplace_back();
    for (int64_t key = 0; key < count; ++key) of_request.push_back(data.key_row(r, position_of_key(rules, key)));
  }
  return rows;
}

anyattn_tensor vector_of(const char* name, const std::vector<float>& values, Tensor* into) {
  *into = Tensor(name, ANYATTN_DTYPE_FLOAT32, static_cast<int64_t>(values.size()), {});
  into->write(values);
  return into->view();
}

// Row -1 is a row of NaN.
std::vector<float> gathered(const std::vector<float>& from, const std::vector<int64_t>& rows, size_t width) {
  std::vector<float> values;
  for (int64_t row : rows) {
    if (row < 0) {
      values.insert(values.end(), width, kNan);
    } else {
      const auto at = from.begin() + row * static_cast<int64_t>(width);
      values.insert(values.end(), at, at + static_cast<int64_t>(width));
    }
  }
  return values;
}

}  // namespace

PlainCall::PlainCall(Session& session, const Case& c, const PlainData& data, uint32_t rank, Poison poison, bool loose)
    : session_(session),
      c_(c),
      data_(data),
      rank_(rank),
      batch_(c, session.limits(), loose, loose || session.report().needs_host_lengths != 0) {
  const auto rows = key_rows(c, data, rank);
  if (c.kind == Kind::kRagged) {
    batch_.set_key_starts();
    std::vector<int64_t> flat;
    for (const auto& of_request : rows) flat.insert(flat.end(), of_request.begin(), of_request.end());
    make_keys(flat);
  } else {
    cache_ = std::make_unique<PagedCache>(c, session.layout(), rows, poison);
    store();
    std::vector<std::vector<int64_t>> table;
    for (size_t r = 0; r < c.lens.size(); ++r) table.push_back(cache_->blocks(r));
    batch_.set_table(table, session.limits());
    if (c.freed || c.holes) free_unseen_blocks();
  }
}

Outputs PlainCall::run() {
  session_.subject().host->reseed(c_.seeds[0]);
  if (c_.retable) {
    other_.emplace(c_, session_.limits(), false, session_.report().needs_host_lengths != 0);
    other_->set_table(std::vector<std::vector<int64_t>>(c_.lens.size(), {0}), session_.limits());
    session_.update_through(other_->get(), batch_.get());
  } else {
    session_.update(batch_.get());
  }
  const int64_t gap = c_.fused ? (int64_t{c_.num_kv_heads} * (data_.shape.head_size + data_.shape.head_size_v) + 7) / 8 * 8 : 0;
  Tensor q("q", q_dtype_of(c_), data_.num_tokens, {c_.num_q_heads, c_.head_size}, gap);
  Tensor out("out", out_dtype_of(c_), data_.num_tokens, {c_.num_q_heads, data_.shape.head_size_v}, c_.fused ? 8 : 0);
  Tensor lse, sinks, slopes, sparse, q_scale, k_scale, v_scale, out_scale;
  q.write(q_codes_of(c_, data_.q));
  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.lse_base = base_of(c_);
  args.softmax_scale = data_.softmax_scale;
  args.q = q.view();
  args.out = out.view();
  if (wants_lse(c_)) {
    lse = Tensor("lse", ANYATTN_DTYPE_FLOAT32, data_.num_tokens, {c_.num_q_heads});
    args.lse = lse.view();
  }
  if (!data_.sinks.empty() && rank_ == 0) args.sinks = vector_of("sinks", data_.sinks, &sinks);
  if (!data_.slopes.empty()) args.alibi_slopes = vector_of("alibi_slopes", data_.slopes, &slopes);
  if (!data_.sparse.empty()) {
    sparse = Tensor("sparse_indices", ANYATTN_DTYPE_INT32, data_.num_tokens, {c_.top_k});
    sparse.write_raw(data_.sparse);
    args.sparse_indices = sparse.view();
  }
  set_scales(&k_scale, &v_scale, &args.k_scale, &args.v_scale);
  if (c_.q_scale > 0) args.q_scale = vector_of("q_scale", q_scales_of(c_), &q_scale);
  if (c_.out_scale > 0) args.out_scale = vector_of("out_scale", {c_.out_scale}, &out_scale);
  if (cache_) args.cache = cache_->view();
  args.k = k_.view();
  args.v = v_.view();
  args.scratch = session_.scratch();
  session_.hot("forward", [&](anyattn_error* error) {
    return session_.subject().backend.forward(session_.impl(), session_.metadata(), &args, error);
  });
  for (const Tensor* tensor : {&q, &out, &lse, &sinks, &slopes, &sparse}) tensor->check();
  batch_.check();
  if (cache_) cache_->check_unchanged("forward");
  return {out.read(), wants_lse(c_) ? lse.read() : std::vector<float>{}};
}

void PlainCall::set_scales(Tensor* k, Tensor* v, anyattn_tensor* k_view, anyattn_tensor* v_view) const {
  if (c_.kv_scales.empty()) return;
  *k_view = vector_of("k_scale", k_scales_of(c_), k);
  *v_view = vector_of("v_scale", v_scales_of(c_), v);
}

void PlainCall::make_keys(const std::vector<int64_t>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t gap = c_.fused ? (int64_t{c_.num_q_heads} * c_.head_size + 7) / 8 * 8 : 0;
  k_ = Tensor("k", c_.dtype, count, {c_.num_kv_heads, data_.shape.head_size}, gap);
  v_ = Tensor("v", c_.dtype, count, {c_.num_kv_heads, data_.shape.head_size_v}, gap);
  k_.write(gathered(data_.k, rows, k_width()));
  v_.write(gathered(data_.v, rows, v_width()));
}

// Through the backend's own store, in two calls; each has a row of NaN whose slot is -1 and one past the slots.
void PlainCall::store() {
  const auto& slots = cache_->slots();
  const size_t half = slots.size() / 2;
  store_range(slots, 0, half);
  store_range(slots, half, slots.size());
  k_ = Tensor();
  v_ = Tensor();
  cache_->check_stored({{RowKind::kK, c_.num_kv_heads, data_.shape.head_size, &data_.k, k_scales_of(c_)},
                        {RowKind::kV, c_.num_kv_heads, data_.shape.head_size_v, &data_.v, v_scales_of(c_)}});
}

void PlainCall::store_range(const std::vector<Slot>& slots, size_t begin, size_t end) {
  std::vector<int64_t> rows, slot_ids;
  for (size_t i = begin; i < end; ++i) {
    rows.push_back(slots[i].key_row);
    slot_ids.push_back(slots[i].slot);
  }
  const auto middle = static_cast<ptrdiff_t>(rows.size() / 2);
  rows.insert(rows.begin() + middle, -1);
  slot_ids.insert(slot_ids.begin() + middle, -1);
  rows.push_back(-1);
  make_keys(rows);
  Tensor slot_mapping("slot_mapping", ANYATTN_DTYPE_INT64, static_cast<int64_t>(slot_ids.size()), {});
  slot_mapping.write_raw(slot_ids);
  Tensor k_scale, v_scale;
  anyattn_kv_cache_update_args args{};
  args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  args.k = k_.view();
  args.v = v_.view();
  args.slot_mapping = slot_mapping.view();
  set_scales(&k_scale, &v_scale, &args.k_scale, &args.v_scale);
  args.cache = cache_->view();
  session_.hot("kv_cache_update",
               [&](anyattn_error* error) { return session_.subject().backend.kv_cache_update(session_.impl(), &args, error); });
}

void PlainCall::free_unseen_blocks() {
  const auto block_size = static_cast<int64_t>(session_.block_size());
  for (size_t r = 0; r < c_.lens.size(); ++r) {
    const RowRules rules = rules_of(c_, data_, r, rank_);
    const int64_t keys = shard_length(c_.lens[r].key_len, rules.cp_world_size, rules.cp_rank, rules.cp_interleave);
    for (int64_t first = 0; first < keys; first += block_size) {
      bool seen = false;
      for (int64_t key = first; key < std::min(keys, first + block_size); ++key) {
        seen = seen || any_row_sees(c_, data_, r, position_of_key(rules, key));
      }
      if (seen) continue;
      const auto block = static_cast<size_t>(first / block_size);
      cache_->forget(cache_->blocks(r)[block]);
      if (c_.holes) batch_.punch(r, block);
    }
  }
}

}  // namespace anyattn::conformance
