// SPDX-License-Identifier: Apache-2.0
#include "run_merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "failure.h"

namespace anyattn::conformance {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct MergeShape {
  int64_t rows, heads, head_size;
  uint32_t dtype;
};

double per_natural(uint32_t base) { return base == ANYATTN_LSE_BASE2 ? std::numbers::log2e : 1.0; }

// One merge. bases[i] is the base of part i; `in_place`: the result goes over part 0. Parts hold lse in their own base.
Outputs merge(Session& session, const std::vector<Outputs>& parts, const std::vector<uint32_t>& bases, const MergeShape& shape,
              uint32_t out_base, bool in_place) {
  std::vector<Tensor> outs, lses;
  std::vector<anyattn_state> states;
  outs.reserve(parts.size());
  lses.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    outs.emplace_back("state.out", shape.dtype, shape.rows, std::vector<int64_t>{shape.heads, shape.head_size});
    lses.emplace_back("state.lse", ANYATTN_DTYPE_FLOAT32, shape.rows, std::vector<int64_t>{shape.heads});
    outs[i].write(parts[i].out);
    lses[i].write(parts[i].lse);
    states.push_back({.struct_size = ANYATTN_STATE_SIZE, .lse_base = bases[i], .out = outs[i].view(), .lse = lses[i].view()});
  }
  Tensor out("merged out", shape.dtype, shape.rows, {shape.heads, shape.head_size});
  Tensor lse("merged lse", ANYATTN_DTYPE_FLOAT32, shape.rows, {shape.heads});
  anyattn_merge_args args{};
  args.struct_size = ANYATTN_MERGE_ARGS_SIZE;
  args.lse_base = out_base;
  args.num_states = static_cast<uint32_t>(states.size());
  args.state_stride = sizeof(anyattn_state);
  args.states = states.data();
  args.out = in_place ? outs[0].view() : out.view();
  args.lse = in_place ? lses[0].view() : lse.view();
  session.subject().host->reseed(states.size());
  session.hot("merge_states",
              [&](anyattn_error* error) { return session.subject().backend.merge_states(session.impl(), &args, error); });
  for (const Tensor& tensor : outs) tensor.check();
  for (const Tensor& tensor : lses) tensor.check();
  out.check();
  lse.check();
  return in_place ? Outputs{outs[0].read(), lses[0].read()} : Outputs{out.read(), lse.read()};
}

// The same in float32, bases turned into natural ones first.
void merge_naive(const std::vector<Outputs>& parts, const std::vector<uint32_t>& bases, const MergeShape& shape,
                 Reference* into) {
  const auto pairs = static_cast<size_t>(shape.rows * shape.heads);
  const auto width = static_cast<size_t>(shape.head_size);
  into->naive.assign(pairs * width, 0.0);
  into->naive_lse.assign(pairs, -static_cast<double>(kInfinity));
  for (size_t j = 0; j < pairs; ++j) {
    std::vector<float> lse;
    for (size_t i = 0; i < parts.size(); ++i) {
      const float value = parts[i].lse[j] * (bases[i] == ANYATTN_LSE_BASE2 ? std::numbers::ln2_v<float> : 1.0f);
      lse.push_back(value == kInfinity ? -kInfinity : value);
    }
    const float top = *std::max_element(lse.begin(), lse.end());
    if (top == -kInfinity) continue;
    float sum = 0.0f;
    std::vector<float> out(width, 0.0f);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (lse[i] == -kInfinity) continue;
      const float weight = std::exp(lse[i] - top);
      sum += weight;
      for (size_t d = 0; d < width; ++d) out[d] += weight * parts[i].out[j * width + d];
    }
    for (size_t d = 0; d < width; ++d) into->naive[j * width + d] = out[d] / sum;
    into->naive_lse[j] = top + std::log(sum);
  }
}

// What merging the stored parts gives: exact in double, naive in float32.
Reference merged_reference(const std::vector<Outputs>& parts, const std::vector<uint32_t>& bases, const MergeShape& shape) {
  std::vector<std::vector<double>> outs, lses;
  std::vector<State> states;
  Reference reference;
  for (size_t i = 0; i < parts.size(); ++i) {
    outs.emplace_back(parts[i].out.begin(), parts[i].out.end());
    lses.emplace_back();
    for (float value : parts[i].lse) lses.back().push_back(static_cast<double>(value) / per_natural(bases[i]));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    states.push_back({outs[i], lses[i]});
    for (size_t j = 0; j < lses[i].size(); ++j) {
      if (!std::isfinite(lses[i][j])) continue;
      reference.max_score = std::max(reference.max_score, std::fabs(lses[i][j]));
      for (int64_t d = 0; d < shape.head_size; ++d) {
        reference.max_value = std::max(reference.max_value,
                                       std::fabs(outs[i][j * static_cast<size_t>(shape.head_size) + static_cast<size_t>(d)]));
      }
    }
  }
  merge_exact(states, static_cast<size_t>(shape.head_size), &reference.exact, &reference.exact_lse);
  merge_naive(parts, bases, shape, &reference);
  return reference;
}

std::vector<uint32_t> listed_bases(const Session& session) {
  std::vector<uint32_t> bases;
  for (uint32_t base : {ANYATTN_LSE_NATURAL, ANYATTN_LSE_BASE2}) {
    if (session.report().lse_bases & base) bases.push_back(base);
  }
  return bases;
}

void check_merge(Session& session, const std::vector<Outputs>& parts, const MergeShape& shape, const std::string& who,
                 CaseResult* result) {
  const auto bases = listed_bases(session);
  for (uint32_t out_base : bases) {
    std::vector<uint32_t> part_bases;
    std::vector<Outputs> stored = parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      part_bases.push_back(bases[i % bases.size()]);  // parts in different bases where there are two
      for (float& value : stored[i].lse) value = static_cast<float>(value * per_natural(part_bases[i]));
    }
    const Reference reference = merged_reference(stored, part_bases, shape);
    for (bool in_place : {false, true}) {
      judge(merge(session, stored, part_bases, shape, out_base, in_place), reference, out_base, shape.dtype,
            who + (in_place ? ", in place: " : ": "), result);
    }
  }
}

struct KnownMerge {
  std::vector<float> outs, lses;
  float out, lse;  // natural
};

const KnownMerge kKnown[] = {
    {{2, 6}, {0, 0}, 4, 0.693147180f},
    {{2, 6}, {0, 1.098612289f}, 5, 1.386294361f},
    {{2, kNan}, {1.5f, -kInfinity}, 2, 1.5f},
    {{kNan, 2}, {-kInfinity, 1.5f}, 2, 1.5f},
    {{2, kNan}, {1.5f, kInfinity}, 2, 1.5f},  // +inf reads as -inf
    {{0, 0}, {-kInfinity, -kInfinity}, 0, -kInfinity},
    {{kNan, kNan}, {-kInfinity, -kInfinity}, 0, -kInfinity},
    {{1, 3}, {88.8f, -88.8f}, 1, 88.8f},
    {{1, 3}, {10000, 10000}, 2, 10000.693147f},
    {{1, 3, kNan}, {0, 0, -kInfinity}, 2, 0.693147180f},
    {{kNan, 3, kNan}, {-kInfinity, 0.5f, -kInfinity}, 3, 0.5f},
    {{kNan, kNan, kNan}, {-kInfinity, -kInfinity, -kInfinity}, 0, -kInfinity},
    {{7}, {0.25f}, 7, 0.25f},
    {{kNan, 2}, {kNan, 1.5f}, kNan, kNan},  // of scores that are NaN
    {{2, 5, kNan}, {1.5f, -kInfinity, kNan}, kNan, kNan},
};

void check_known(Session& session, const Case& c, CaseResult* result) {
  for (const KnownMerge& known : kKnown) {
    const MergeShape shape{1, c.num_q_heads, c.head_size, c.dtype};
    std::vector<Outputs> parts;
    std::string who = "known merge of";
    for (size_t i = 0; i < known.outs.size(); ++i) {
      parts.push_back({std::vector<float>(static_cast<size_t>(shape.heads * shape.head_size), known.outs[i]),
                       std::vector<float>(static_cast<size_t>(shape.heads), known.lses[i])});
      who += text(" (%g, %g)", static_cast<double>(known.outs[i]), static_cast<double>(known.lses[i]));
    }
    check_merge(session, parts, shape, who, result);
  }
}

// Parts of which a quarter, at the same places for all of them, hold nothing, and more hold nothing alone.
std::vector<Outputs> random_parts(const Case& c, const MergeShape& shape) {
  SplitMix64 generator(c.seeds[0]);
  const auto pairs = static_cast<size_t>(shape.rows * shape.heads);
  const auto width = static_cast<size_t>(shape.head_size);
  std::vector<Outputs> parts(static_cast<size_t>(c.num_states));
  for (Outputs& part : parts) {
    part.out.resize(pairs * width);
    part.lse.resize(pairs);
    for (float& value : part.out) value = rounded(c.dtype, generator.value());
    for (size_t j = 0; j < pairs; ++j) {
      const bool empty = j % 4 == 1 || generator.below(5) == 0;
      part.lse[j] = empty ? -kInfinity : 20.0f * generator.value();
      if (empty) std::fill_n(part.out.begin() + static_cast<ptrdiff_t>(j * width), width, generator.below(2) ? kNan : 0.0f);
    }
  }
  return parts;
}

}  // namespace

Outputs merge_outputs(Session& session, const std::vector<Outputs>& parts, int64_t heads, int64_t head_size, uint32_t dtype,
                      uint32_t base) {
  const auto rows = static_cast<int64_t>(parts.at(0).lse.size()) / heads;
  return merge(session, parts, std::vector<uint32_t>(parts.size(), base), {rows, heads, head_size, dtype}, base, false);
}

void run_merge(const Subject& subject, const Case& c, CaseResult* result) {
  Session session(subject, c, 0);
  check_known(session, c, result);
  const MergeShape shape{c.lens.empty() ? 1 : c.lens[0].query_len, c.num_q_heads, c.head_size, c.dtype};
  check_merge(session, random_parts(c, shape), shape, text("merge of %d parts", c.num_states), result);
}

}  // namespace anyattn::conformance
