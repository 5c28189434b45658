// SPDX-License-Identifier: Apache-2.0
#include "run_mla.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "batch.h"
#include "failure.h"
#include "format_case.h"
#include "mla_data.h"
#include "outputs.h"
#include "paged_cache.h"
#include "run_merge.h"
#include "run_replay.h"

namespace anyattn::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t base_of(const Case& c) { return c.lse_base ? c.lse_base : ANYATTN_LSE_NATURAL; }

std::vector<std::vector<int64_t>> key_rows(const Case& c, const MlaData& data, uint32_t rank) {
  std::vector<std::vector<int64_t>> rows;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const RowRules rules = mla_rules(c, data, r, rank);
    const int64_t count = shard_length(c.lens[r].key_len, rules.cp_world_size, rank, rules.cp_interleave);
    auto& of_request = rows.emplace_back();
    for (int64_t key = 0; key < count; ++key) of_request.push_back(data.key_start[r] + position_of_key(rules, key));
  }
  return rows;
}

// Columns [first, first + width) of [rows, row_size].
std::vector<float> columns(const std::vector<float>& from, size_t row_size, size_t first, size_t width) {
  std::vector<float> values;
  for (size_t at = 0; at < from.size(); at += row_size) {
    const auto begin = from.begin() + static_cast<ptrdiff_t>(at + first);
    values.insert(values.end(), begin, begin + static_cast<ptrdiff_t>(width));
  }
  return values;
}

// Absent where the case has no scales.
anyattn_tensor scale_view(const Case& c, Tensor* into) {
  const std::vector<float> scales = k_scales_of(c);
  if (scales.empty()) return {};
  *into = Tensor("k_scale", ANYATTN_DTYPE_FLOAT32, 1, {});
  into->write(scales);
  return into->view();
}

// A latent cache filled through the backend's store, and the metadata of one batch over it.
class LatentStep {
 public:
  LatentStep(Session& session, const Case& c, const MlaData& data, uint32_t rank, Poison poison)
      : session_(session),
        c_(c),
        data_(data),
        batch_(c, session.limits(), false, session.report().needs_host_lengths != 0),
        cache_(c, session.layout(), key_rows(c, data, rank), poison) {
    store();
    std::vector<std::vector<int64_t>> table;
    for (size_t r = 0; r < c.lens.size(); ++r) table.push_back(cache_.blocks(r));
    batch_.set_table(table, session.limits());
    session.subject().host->reseed(c.seeds[0]);
    session.update(batch_.get());
  }

  PagedCache& cache() { return cache_; }
  const Batch& batch() const { return batch_; }

 private:
  // The second half of the rows first; in the middle a row of NaN whose slot is -1.
  void store() {
    const size_t half = cache_.slots().size() / 2;
    std::vector<int64_t> slot_ids;
    std::vector<float> values;
    const auto row_size = static_cast<size_t>(c_.kv_lora_rank) + static_cast<size_t>(c_.rope);
    const auto add = [&](const Slot& slot) {
      slot_ids.push_back(slot.slot);
      const auto at = data_.rows.begin() + slot.key_row * static_cast<int64_t>(row_size);
      values.insert(values.end(), at, at + static_cast<int64_t>(row_size));
    };
    for (size_t i = half; i < cache_.slots().size(); ++i) add(cache_.slots()[i]);
    slot_ids.push_back(-1);
    values.insert(values.end(), row_size, kNan);
    for (size_t i = 0; i < half; ++i) add(cache_.slots()[i]);
    const auto rows = static_cast<int64_t>(slot_ids.size());
    Tensor kv_c("kv_c", c_.dtype, rows, {c_.kv_lora_rank}, c_.fused ? c_.rope : 0);
    Tensor k_pe("k_pe", c_.dtype, rows, {c_.rope});
    Tensor slot_mapping("slot_mapping", ANYATTN_DTYPE_INT64, rows, {});
    kv_c.write(columns(values, row_size, 0, static_cast<size_t>(c_.kv_lora_rank)));
    k_pe.write(columns(values, row_size, static_cast<size_t>(c_.kv_lora_rank), static_cast<size_t>(c_.rope)));
    slot_mapping.write_raw(slot_ids);
    anyattn_kv_cache_update_args args{};
    args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    args.kv_c = kv_c.view();
    args.k_pe = k_pe.view();
    args.slot_mapping = slot_mapping.view();
    args.cache = cache_.view();
    Tensor k_scale;
    args.k_scale = scale_view(c_, &k_scale);
    session_.hot("kv_cache_update", [&](anyattn_error* error) {
      return session_.subject().backend.kv_cache_update(session_.impl(), &args, error);
    });
    cache_.check_stored({{RowKind::kLatent, 1, static_cast<int64_t>(row_size), &data_.rows, k_scales_of(c_)}});
  }

  Session& session_;
  const Case& c_;
  const MlaData& data_;
  Batch batch_;
  PagedCache cache_;
};

Outputs decode(Session& session, const Case& c, const MlaData& data, uint32_t rank = 0, Poison poison = Poison::kNan) {
  LatentStep step(session, c, data, rank, poison);
  const auto depth = static_cast<size_t>(c.kv_lora_rank) + static_cast<size_t>(c.rope);
  const auto latent_size = static_cast<size_t>(c.kv_lora_rank);
  Tensor q_latent("q_latent", c.dtype, data.num_tokens, {c.num_q_heads, c.kv_lora_rank});
  Tensor q_pe("q_pe", c.dtype, data.num_tokens, {c.num_q_heads, c.rope});
  Tensor joint("q", c.dtype, data.num_tokens, {c.num_q_heads, c.kv_lora_rank + c.rope});
  Tensor out("out", c.dtype, data.num_tokens, {c.num_q_heads, c.kv_lora_rank});
  Tensor lse("lse", ANYATTN_DTYPE_FLOAT32, data.num_tokens, {c.num_q_heads});
  q_latent.write(columns(data.q, depth, 0, latent_size));
  q_pe.write(columns(data.q, depth, latent_size, depth - latent_size));
  joint.write(data.q);
  anyattn_mqa_args args{};
  args.struct_size = ANYATTN_MQA_ARGS_SIZE;
  args.lse_base = base_of(c);
  args.softmax_scale = data.softmax_scale;
  args.q_latent = q_latent.view();
  args.q_pe = q_pe.view();
  int64_t latent_shape[3] = {data.num_tokens, c.num_q_heads, c.kv_lora_rank},
          pe_shape[3] = {data.num_tokens, c.num_q_heads, c.rope};
  if (c.fused) {  // both parts in one array: [q_latent | q_pe]
    args.q_latent = args.q_pe = joint.view();
    args.q_latent.shape = latent_shape;
    args.q_pe.shape = pe_shape;
    args.q_pe.byte_offset = latent_size * dtype_bytes(c.dtype);
  }
  args.cache = step.cache().view();
  args.out = out.view();
  const bool with_lse = (features_of(c, rank) & (uint64_t{1} << ANYATTN_FEATURE_LSE)) != 0;
  if (with_lse) args.lse = lse.view();
  args.scratch = session.scratch();
  Tensor k_scale;
  args.k_scale = scale_view(c, &k_scale);
  session.hot("forward_mqa", [&](anyattn_error* error) {
    return session.subject().backend.forward_mqa(session.impl(), session.metadata(), &args, error);
  });
  for (const Tensor* tensor : {&q_latent, &q_pe, &joint, &out, &lse}) tensor->check();
  step.batch().check();
  step.cache().check_unchanged("forward_mqa");
  return {out.read(), with_lse ? lse.read() : std::vector<float>{}};
}

// Rows of one chunk out of the cache: they must be the stored values, rounded once to the query's dtype.
void gather(Session& session, LatentStep& step, const Case& c, const MlaData& data, const ChunkPlan& plan) {
  Block row_start = block_of("row_start_loc", plan.row_start_loc), start = block_of("context_start", plan.context_start);
  Tensor kv_c("gathered kv_c", c.dtype, plan.row_start_loc.back(), {c.kv_lora_rank}, c.fused ? 8 : 0);
  Tensor k_pe("gathered k_pe", c.dtype, plan.row_start_loc.back(), {c.rope});
  anyattn_context_chunk chunk{};
  chunk.struct_size = ANYATTN_CONTEXT_CHUNK_SIZE;
  chunk.num_reqs = static_cast<uint32_t>(c.lens.size());
  chunk.num_rows = static_cast<uint32_t>(plan.row_start_loc.back());
  chunk.max_rows = static_cast<uint32_t>(c.context_chunk);
  chunk.row_start_loc = row_start.lent_as<int32_t>();
  chunk.context_start = start.lent_as<int32_t>();
  anyattn_context_gather_args args{};
  args.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
  args.cache = step.cache().view();
  args.kv_c = kv_c.view();
  args.k_pe = k_pe.view();
  Tensor k_scale;
  args.k_scale = scale_view(c, &k_scale);
  session.hot("context_gather", [&](anyattn_error* error) {
    return session.subject().backend.context_gather(session.impl(), session.metadata(), &chunk, &args, error);
  });
  kv_c.check();
  k_pe.check();
  step.cache().check_unchanged("context_gather");
  const auto row_size = static_cast<size_t>(c.kv_lora_rank) + static_cast<size_t>(c.rope);
  std::vector<float> wanted;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const auto first = data.gathered.begin() + (data.key_start[r] + plan.context_start[r]) * static_cast<int64_t>(row_size);
    wanted.insert(wanted.end(), first,
                  first + (plan.row_start_loc[r + 1] - plan.row_start_loc[r]) * static_cast<int64_t>(row_size));
  }
  const auto latent_size = static_cast<size_t>(c.kv_lora_rank);
  if (kv_c.read() != columns(wanted, row_size, 0, latent_size))
    throw Failure("context_gather: kv_c is not what the cache holds");
  if (k_pe.read() != columns(wanted, row_size, latent_size, row_size - latent_size))
    throw Failure("context_gather: k_pe is not what the cache holds");
}

// Every row against the expanded keys of one chunk, or, where `plan` is null, the new tokens among themselves.
Outputs mha(Session& session, const Case& c, const MlaData& data, const ChunkPlan* plan) {
  const int64_t depth = c.nope + c.rope, heads = c.num_q_heads;
  std::vector<int32_t> key_starts = plan ? plan->row_start_loc : data.query_start_loc;
  std::vector<float> keys, values;
  uint32_t max_query_len = 1, max_key_len = 1;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    const int64_t first = data.key_start[r] + (plan ? plan->context_start[r] : c.lens[r].key_len - c.lens[r].query_len);
    const int64_t count = key_starts[r + 1] - key_starts[r];
    const auto k = data.expanded_k.begin() + first * heads * depth;
    const auto v = data.expanded_v.begin() + first * heads * c.v_head_dim;
    keys.insert(keys.end(), k, k + count * heads * depth);
    values.insert(values.end(), v, v + count * heads * c.v_head_dim);
    max_query_len = std::max(max_query_len, static_cast<uint32_t>(c.lens[r].query_len));
    max_key_len = std::max(max_key_len, static_cast<uint32_t>(count));
  }
  Block query_start = block_of("query_start_loc", data.query_start_loc), key_start = block_of("key_start_loc", key_starts);
  Tensor q("q", c.dtype, data.num_tokens, {heads, depth}), k("k", c.dtype, key_starts.back(), {heads, depth});
  Tensor v("v", c.dtype, key_starts.back(), {heads, c.v_head_dim}, c.fused ? 8 : 0);
  Tensor out("out", c.dtype, data.num_tokens, {heads, c.v_head_dim}),
      lse("lse", ANYATTN_DTYPE_FLOAT32, data.num_tokens, {heads});
  q.write(data.q);
  k.write(keys);
  v.write(values);
  anyattn_mha_args args{};
  args.struct_size = ANYATTN_MHA_ARGS_SIZE;
  args.lse_base = base_of(c);
  args.softmax_scale = data.softmax_scale;
  args.num_reqs = static_cast<uint32_t>(c.lens.size());
  args.causal = plan ? 0 : 1;
  args.max_query_len = max_query_len;
  args.max_key_len = max_key_len;
  args.query_start_loc = query_start.lent_as<int32_t>();
  args.key_start_loc = key_start.lent_as<int32_t>();
  args.q = q.view();
  args.k = k.view();
  args.v = v.view();
  args.out = out.view();
  args.lse = lse.view();
  args.scratch = session.scratch();
  session.subject().host->reseed(c.seeds[0]);
  session.hot("forward_mha",
              [&](anyattn_error* error) { return session.subject().backend.forward_mha(session.impl(), &args, error); });
  for (const Tensor* tensor : {&q, &k, &v, &out, &lse}) tensor->check();
  return {out.read(), lse.read()};
}

void check_relations(Session& session, const Case& c, const MlaData& data, const Outputs& plain) {
  const auto rows = static_cast<size_t>(data.num_tokens), heads = static_cast<size_t>(c.num_q_heads);
  const auto out_row = heads * static_cast<size_t>(c.kv_lora_rank);
  if (c.poisons) {
    for (Poison poison : {Poison::kInfinity, Poison::kHuge, Poison::kZero}) {
      want_same_bits(decode(session, c, data, 0, poison), 0, plain, 0, rows, out_row, heads, "other values in unowned slots");
    }
  }
  if (!c.padded && !c.invariant) return;
  // Requests alone (invariant), or the batch without its requests of no keys (padded).
  for (size_t r = 0; r < c.lens.size(); ++r) {
    Case part = c;
    if (!c.causal.empty() && c.invariant) part.causal = {c.causal[r]};
    part.lens = c.invariant ? std::vector<RequestLens>{c.lens[r]} : c.lens;
    std::erase_if(part.lens, [](const RequestLens& lens) { return lens.key_len == 0; });
    if (part.lens.empty()) continue;
    MlaData part_data = data;
    part_data.key_start = c.invariant ? std::vector<int64_t>{data.key_start[r]} : data.key_start;
    part_data.query_start_loc = {0};
    for (const RequestLens& lens : part.lens)
      part_data.query_start_loc.push_back(part_data.query_start_loc.back() + lens.query_len);
    part_data.num_tokens = part_data.query_start_loc.back();
    const auto first = static_cast<size_t>(c.invariant ? data.query_start_loc[r] : 0);
    const auto q_row = data.q.size() / rows;
    part_data.q.assign(data.q.begin() + static_cast<ptrdiff_t>(first * q_row),
                       data.q.begin() + static_cast<ptrdiff_t>((first + static_cast<size_t>(part_data.num_tokens)) * q_row));
    if (c.invariant) part.seeds[0] += 1000 + r;  // other splits of the work
    want_same_bits(decode(session, part, part_data), 0, plain, first, static_cast<size_t>(part_data.num_tokens), out_row, heads,
                   c.invariant ? text("request %zu alone", r) : std::string("without padded requests"));
    if (!c.invariant) return;
  }
}

}  // namespace

void run_mla_decode(const Subject& subject, const Case& c, CaseResult* result) {
  if (c.random > 0) return run_replay(subject, c, result);
  const MlaData data = make_mla_data(c);
  if (c.cp_world_size == 0) {
    Session session(subject, c, 0);
    const Outputs got = decode(session, c, data);
    judge(got, mla_decode_reference(c, data, 0), base_of(c), c.dtype, "", result);
    return check_relations(session, c, data, got);
  }
  std::vector<Reference> references;
  std::vector<Outputs> parts;
  std::unique_ptr<Session> last;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(c.cp_world_size); ++rank) {
    last = std::make_unique<Session>(subject, c, rank);
    parts.push_back(decode(*last, c, data, rank));
    references.push_back(mla_decode_reference(c, data, rank));
    judge(parts.back(), references.back(), base_of(c), c.dtype, text("rank %u: ", rank), result);
  }
  judge(merge_outputs(*last, parts, c.num_q_heads, c.kv_lora_rank, c.dtype, base_of(c)),
        merge_parts(references, static_cast<size_t>(c.kv_lora_rank), c.dtype), base_of(c), c.dtype, "merged ranks: ", result);
}

void run_mla_prefill(const Subject& subject, const Case& c, CaseResult* result) {
  const MlaData data = make_mla_data(c);
  Session session(subject, c, 0);
  LatentStep step(session, c, data, 0, Poison::kNan);
  std::vector<Outputs> parts;
  std::vector<Reference> references;
  for (const ChunkPlan& plan : plan_chunks(c)) {
    gather(session, step, c, data, plan);
    parts.push_back(mha(session, c, data, &plan));
    references.push_back(mla_part_reference(c, data, &plan));
    judge(parts.back(), references.back(), base_of(c), c.dtype, text("context chunk %zu: ", parts.size()), result);
  }
  parts.push_back(mha(session, c, data, nullptr));
  references.push_back(mla_part_reference(c, data, nullptr));
  judge(parts.back(), references.back(), base_of(c), c.dtype, "new tokens: ", result);
  const Outputs merged = merge_outputs(session, parts, c.num_q_heads, c.v_head_dim, c.dtype, base_of(c));
  judge(merged, merge_parts(references, static_cast<size_t>(c.v_head_dim), c.dtype), base_of(c), c.dtype, "merged: ", result);
  if (!c.golden.empty() && c.dtype == ANYATTN_DTYPE_FLOAT32) want_figures(merged, c.golden, base_of(c));
}

}  // namespace anyattn::conformance
