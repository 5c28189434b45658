// SPDX-License-Identifier: Apache-2.0
#include "bench/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/runtime.h"
#include "serving/model_kinds.h"

namespace anyattn::tools::bench {
namespace {

constexpr uint32_t kChunk = 512;  // rows of a chunked prefill

struct Heads {
  std::string text;
  Problem problem;
  double softmax_scale;
};

// "32/8/128" or "32/8/192/128".
Heads heads_of(const std::string& text) {
  std::vector<uint32_t> numbers;
  const char *at = text.data(), *end = at + text.size();
  for (; at <= end; ++at) {
    uint32_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number == 0 || (stop != end && *stop != '/')) break;
    numbers.push_back(number);
    at = stop;
  }
  if (at <= end || numbers.size() < 3 || numbers.size() > 4) {
    throw Failure(kExitUsage, fmt::format("--heads {}: wanted: query heads/kv heads/head size, as 32/8/128, and the values' "
                                          "head size behind it where it differs",
                                          text));
  }
  Heads heads{text, {}, 1.0 / std::sqrt(static_cast<double>(numbers[2]))};
  anyattn_problem& fields = heads.problem.fields;
  fields.num_q_heads = numbers[0];
  fields.num_kv_heads = numbers[1];
  fields.head_size = numbers[2];
  fields.head_size_v = numbers.back() == numbers[2] || numbers.size() == 3 ? numbers[2] : numbers[3];
  fields.window_left = fields.window_right = -1;
  heads.problem.kv_cache_dtype("auto");
  return heads;
}

std::vector<Heads> all_heads(const BenchOptions& options) {
  std::vector<Heads> all;
  for (const std::string& text : options.heads) all.push_back(heads_of(text));
  if (!options.model.empty()) {
    const ModelKinds model = load_model_kinds({options.model, options.models_file, ANYATTN_DTYPE_NONE, "", 0, 1});
    for (const auto& kind : model.kinds)
      all.push_back({model.id + " " + kind->label, Problem(kind->problem), kind->softmax_scale});
  }
  if (all.empty()) all.push_back(heads_of("32/8/128"));
  return all;
}

Problem on_formats(Problem problem, const BenchOptions& options, const std::string& dtype, const std::string& kv_cache_dtype) {
  problem.fields.block_size = options.block_size;
  problem.fields.q_dtype = dtype_of(dtype, problem.fields.q_dtype ? problem.fields.q_dtype : ANYATTN_DTYPE_BFLOAT16);
  problem.fields.out_dtype = problem.fields.q_dtype;
  if (!kv_cache_dtype.empty()) problem.kv_cache_dtype(kv_cache_dtype);
  return problem;
}

uint64_t visible_to(const Problem& problem, uint32_t position) {
  uint64_t keys = uint64_t{position} + 1;
  if (problem.has(ANYATTN_FEATURE_WINDOW) && problem.fields.window_left >= 0)
    keys = std::min(keys, static_cast<uint64_t>(problem.fields.window_left) + 1);
  if (problem.has(ANYATTN_FEATURE_CHUNKED_LOCAL)) keys = std::min<uint64_t>(keys, position % problem.fields.chunk_size + 1);
  return keys;
}

template <class T>
std::vector<T> or_default(const std::vector<T>& given, const std::vector<T>& fallback) {
  return given.empty() ? fallback : given;
}

// The batches of one problem.
std::vector<Point> points_of(const BenchOptions& options, const Heads& heads, const Problem& problem) {
  std::vector<Point> points;
  const auto add = [&](const char* phase, uint32_t num_reqs, uint32_t query_len, uint32_t seq_len) {
    for (const std::string& place : or_default<std::string>(options.caches, {"cold"})) {
      // New keys are written just before: only decode meets a cache that has gone cold.
      const bool cold = place == "cold" && query_len < seq_len;
      if (place == "cold" && !cold && options.caches.size() > 1) continue;
      points.push_back({heads.text, problem, heads.softmax_scale, phase, num_reqs, query_len, seq_len, cold, options.shuffled});
    }
  };
  const std::vector<uint32_t> batches = or_default<uint32_t>(options.batches, {1});
  for (const std::string& phase : or_default<std::string>(options.phases, {"decode", "prefill"})) {
    // A chunk of MLA is three calls and the engine's expansion between them.
    if (phase == "chunk" && problem.has(ANYATTN_FEATURE_MLA)) continue;
    const std::vector<uint32_t> lengths = phase == "prefill" ? or_default<uint32_t>(options.prompts, {512, 2048})
                                                             : or_default<uint32_t>(options.contexts, {512, 2048, 8192, 32768});
    for (const uint32_t num_reqs : batches) {
      for (const uint32_t length : lengths) {
        const uint32_t rows = phase == "decode" ? 1 : phase == "prefill" ? length : std::min(kChunk, (length + 1) / 2);
        add(phase.c_str(), num_reqs, rows, length);
      }
    }
  }
  return points;
}

}  // namespace

double Point::flops() const {
  double keys = 0;
  for (uint32_t p = seq_len - query_len; p < seq_len; ++p) keys += static_cast<double>(visible_to(problem, p));
  const anyattn_problem& fields = problem.fields;
  // MLA decodes on latents and prefills on what they expand to.
  const bool expanded = problem.has(ANYATTN_FEATURE_MLA) && phase == "prefill";
  const uint32_t widths =
      expanded ? fields.qk_nope_head_dim + fields.qk_rope_head_dim + fields.v_head_dim : fields.head_size + fields.head_size_v;
  return num_reqs * keys * fields.num_q_heads * 2.0 * widths;
}

double Point::visible_keys() const {
  const uint32_t first = seq_len - query_len;
  const double before = static_cast<double>(first) + 1 - static_cast<double>(visible_to(problem, first));
  return num_reqs * (seq_len - before);
}

std::vector<Point> make_grid(const BenchOptions& options) {
  std::vector<Point> grid;
  for (const Heads& heads : all_heads(options)) {
    for (const std::string& dtype : or_default<std::string>(options.dtypes, {""})) {
      for (const std::string& format : or_default<std::string>(options.kv_cache_dtypes, {""})) {
        Problem problem = on_formats(heads.problem, options, dtype, format);
        for (int invariant = 0; invariant <= (options.batch_invariant ? 1 : 0); ++invariant) {
          if (invariant) problem.set(ANYATTN_FEATURE_BATCH_INVARIANT);
          const std::vector<Point> points = points_of(options, heads, problem);
          grid.insert(grid.end(), points.begin(), points.end());
        }
      }
    }
  }
  if (grid.empty()) throw Failure(kExitUsage, "--phases chunk: MLA has no such row; allowed with it: decode, prefill");
  return grid;
}

std::vector<uint32_t> thread_counts(const BenchOptions& options) {
  std::vector<uint32_t> counts;
  for (const std::string& text : or_default<std::string>(options.threads, {"1", "all"})) {
    uint32_t count = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    const bool number = error == std::errc{} && stop == text.data() + text.size() && count > 0 && count <= 1024;
    if (!number && text != "all") throw Failure(kExitUsage, fmt::format("--threads {}: allowed: 1 to 1024, all", text));
    if (std::find(counts.begin(), counts.end(), count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

}  // namespace anyattn::tools::bench
