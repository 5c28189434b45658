// SPDX-License-Identifier: Apache-2.0
#include "run_plain.h"

#include <algorithm>
#include <memory>

#include "failure.h"
#include "plain_call.h"
#include "random_batch.h"
#include "run_merge.h"
#include "run_replay.h"

namespace anyattn::conformance {
namespace {

Outputs call(Session& session, const Case& c, const PlainData& data, uint32_t rank = 0, Poison poison = Poison::kNan,
             bool loose = false) {
  return PlainCall(session, c, data, rank, poison, loose).run();
}

size_t out_row(const PlainData& data) {
  return static_cast<size_t>(data.shape.num_q_heads) * static_cast<size_t>(data.shape.head_size_v);
}

// Bitwise relations between several ways through one backend.
void check_relations(const Subject& subject, Session& session, const Case& c, const PlainData& data, const Outputs& plain) {
  const size_t out_size = out_row(data), lse_size = static_cast<size_t>(c.num_q_heads);
  const auto rows = static_cast<size_t>(data.num_tokens);
  if (c.poisons) {
    for (const auto& [poison, name] : {std::pair(Poison::kInfinity, "inf"), {Poison::kHuge, "1e30"}, {Poison::kZero, "0"}}) {
      want_same_bits(call(session, c, data, 0, poison), 0, plain, 0, rows, out_size, lse_size,
                     std::string(name) + " instead of NaN in unowned slots");
    }
  }
  for (int i = 0; c.again && i < 2; ++i)
    want_same_bits(call(session, c, data), 0, plain, 0, rows, out_size, lse_size, "the same call again");
  if (c.retable) {
    Case direct = c;
    direct.retable = false;
    want_same_bits(call(session, direct, data), 0, plain, 0, rows, out_size, lse_size,
                   "metadata_update instead of update_block_table");
  }
  if (c.surplus > 0) {
    Case exact = c;
    exact.surplus = 0;
    exact.table.clear();
    Session other(subject, exact, 0);
    want_same_bits(call(other, exact, data), 0, plain, 0, rows, out_size, lse_size, "without surplus blocks");
  }
  if (c.padded) {
    Case tight = c;
    std::erase_if(tight.lens, [](const RequestLens& lens) { return lens.key_len == 0; });
    const PlainData tight_data = make_plain_data(tight, subject.model_file);
    Session other(subject, tight, 0);
    want_same_bits(call(other, tight, tight_data), 0, plain, 0, static_cast<size_t>(tight_data.num_tokens), out_size, lse_size,
                   "without padded requests");
  }
}

// Each request alone gives the bits it has in company, and so does the first one at each place of the batch.
void check_invariance(Session& session, const Case& c, const PlainData& data, const Outputs& plain) {
  const size_t out_size = out_row(data), lse_size = static_cast<size_t>(c.num_q_heads);
  const size_t q_size = static_cast<size_t>(c.num_q_heads) * static_cast<size_t>(c.head_size);
  const auto subset = [&](const std::vector<size_t>& order) {
    Case part = c;
    part.lens.clear();
    PlainData part_data = data;
    part_data.q.clear();
    part_data.own_start.clear();
    part_data.query_start_loc = {0};
    for (size_t r : order) {
      part.lens.push_back(c.lens[r]);
      part_data.own_start.push_back(data.own_start[r]);
      const auto at = data.q.begin() + static_cast<int64_t>(q_size) * data.query_start_loc[r];
      part_data.q.insert(part_data.q.end(), at, at + static_cast<int64_t>(q_size) * c.lens[r].query_len);
      part_data.query_start_loc.push_back(part_data.query_start_loc.back() + c.lens[r].query_len);
    }
    part_data.num_tokens = part_data.query_start_loc.back();
    part.seeds[0] += 1000 + order.size();  // other splits of the work
    const Outputs got = call(session, part, part_data);
    size_t row = 0;
    for (size_t r : order) {
      const auto count = static_cast<size_t>(c.lens[r].query_len);
      want_same_bits(got, row, plain, static_cast<size_t>(data.query_start_loc[r]), count, out_size, lse_size,
                     text("request %zu in a batch of %zu", r, order.size()));
      row += count;
    }
  };
  std::vector<size_t> others;
  for (size_t r = 0; r < c.lens.size(); ++r) {
    subset({r});
    if (r > 0) others.push_back(r);
  }
  for (size_t place = 1; place < c.lens.size(); ++place) {  // the first request at each other place
    std::vector<size_t> order = others;
    order.insert(order.begin() + static_cast<ptrdiff_t>(place), 0);
    subset(order);
  }
}

void run_shards(const Subject& subject, const Case& c, CaseResult* result) {
  const PlainData data = make_plain_data(c, subject.model_file);
  std::vector<Reference> references;
  std::vector<Outputs> parts;
  std::unique_ptr<Session> last;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(c.cp_world_size); ++rank) {
    last = std::make_unique<Session>(subject, c, rank);
    parts.push_back(call(*last, c, data, rank));
    references.push_back(plain_reference(c, data, rank));
    judge(parts.back(), references.back(), base_of(c), c.dtype, text("rank %u: ", rank), result);
  }
  const auto width = static_cast<size_t>(data.shape.head_size_v);
  const Reference whole = merge_parts(references, width, c.dtype);
  const Outputs merged = merge_outputs(*last, parts, c.num_q_heads, data.shape.head_size_v, c.dtype, base_of(c));
  judge(merged, whole, base_of(c), c.dtype, "merged ranks: ", result);
  if (!c.golden.empty() && c.dtype == ANYATTN_DTYPE_FLOAT32) want_figures(merged, c.golden, base_of(c));
}

void run_random(const Subject& subject, const Case& c, CaseResult* result) {
  if (c.mode == ANYATTN_METADATA_GRAPH_CAPTURE) return run_replay(subject, c, result);
  SplitMix64 generator(c.seeds[0]);
  Session session(subject, c, 0);
  for (int i = 0; i < c.random; ++i) {
    const Case batch = random_batch(c, i, &generator);
    const PlainData data = make_plain_data(batch, subject.model_file);
    try {
      judge(call(session, batch, data, 0, Poison::kNan, i % 2 == 1), plain_reference(batch, data, 0), base_of(c),
            out_dtype_of(c), "", result);
    } catch (const Failure& failure) {
      result->c = batch;
      result->c.name = c.name;
      throw Failure(text("batch %d of %d: ", i, c.random) + failure.what());
    }
  }
}

}  // namespace

void run_plain(const Subject& subject, const Case& c, CaseResult* result) {
  if (c.random > 0) return run_random(subject, c, result);
  if (c.cp_world_size > 0) return run_shards(subject, c, result);
  const PlainData data = make_plain_data(c, subject.model_file);
  Session session(subject, c, 0);
  const Outputs got = call(session, c, data);
  judge(got, plain_reference(c, data, 0), base_of(c), out_dtype_of(c), "", result);
  if (!c.golden.empty() && c.dtype == ANYATTN_DTYPE_FLOAT32) want_figures(got, c.golden, base_of(c));
  check_relations(subject, session, c, data, got);
  if (c.invariant) check_invariance(session, c, data, got);
}

}  // namespace anyattn::conformance
