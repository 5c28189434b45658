// SPDX-License-Identifier: Apache-2.0
#include "attn_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "anyattn/conformance/reference.h"
#include "test_memory.h"

namespace anyattn::cpu_test {

namespace conf = anyattn::conformance;

std::string AttnCase::describe() const {
  std::ostringstream text;
  text << "seed " << seed << " isa " << isa << " workers " << num_workers << " heads " << num_q_heads << "/" << num_kv_heads
       << " size " << head_size << "/" << head_size_v << " block " << block_size << " dtypes " << conf::dtype_name(q_dtype)
       << "," << conf::dtype_name(kv_dtype) << "," << conf::dtype_name(out_dtype) << " features " << std::hex << features
       << std::dec << " window " << window_left << "," << window_right << " cp " << cp_world << "," << cp_rank << ","
       << cp_interleave << (ragged ? " ragged" : "") << " spec " << spec << " base " << lse_base << " padding " << padding_rows
       << " requests";
  for (const Request& r : requests) text << " " << r.query_len << ":" << r.seq_len << (r.causal ? "" : "n");
  return text.str();
}

anyattn_problem problem_of(const AttnCase& test, const uint64_t& features, const char*& dtype_text) {
  dtype_text = conf::dtype_name(test.kv_dtype).data();
  anyattn_problem problem{};
  problem.struct_size = ANYATTN_PROBLEM_SIZE;
  problem.num_feature_words = 1;
  problem.features = &features;
  problem.key_source = test.ragged ? ANYATTN_KEYS_RAGGED : ANYATTN_KEYS_PAGED;
  problem.num_q_heads = test.num_q_heads;
  problem.num_kv_heads = test.num_kv_heads;
  problem.head_size = test.head_size;
  problem.head_size_v = test.head_size_v;
  problem.q_dtype = test.q_dtype;
  problem.out_dtype = test.out_dtype;
  problem.block_size = test.ragged ? 0 : test.block_size;
  problem.kv_cache_dtype = test.ragged ? nullptr : dtype_text;
  problem.window_left = test.window_left;
  problem.window_right = test.window_right;
  problem.logits_soft_cap = test.soft_cap;
  problem.cp_world_size = test.cp_world;
  problem.cp_rank = test.cp_rank;
  problem.cp_interleave = test.cp_interleave;
  return problem;
}

namespace {

conf::RowRules rules_of(const AttnCase& test, const Request& request, const std::vector<float>& slopes,
                        const std::vector<float>& sinks, std::vector<conf::MmRange>& ranges) {
  conf::RowRules rules;
  rules.softmax_scale = test.softmax_scale;
  rules.causal = test.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) ? request.causal : !test.has(ANYATTN_FEATURE_NON_CAUSAL);
  if (test.has(ANYATTN_FEATURE_WINDOW)) rules.window_left = test.window_left, rules.window_right = test.window_right;
  if (test.has(ANYATTN_FEATURE_SOFT_CAP)) rules.soft_cap = test.soft_cap;
  if (test.has(ANYATTN_FEATURE_ALIBI)) rules.alibi = conf::Alibi::kLinear;
  if (test.has(ANYATTN_FEATURE_ALIBI_SQRT)) rules.alibi = conf::Alibi::kSqrt;
  if (test.has(ANYATTN_FEATURE_ALIBI_SYMMETRIC)) rules.alibi = conf::Alibi::kSymmetric;
  rules.alibi_slopes = slopes;
  if (test.has(ANYATTN_FEATURE_SINKS)) rules.sinks = sinks;
  if (test.has(ANYATTN_FEATURE_MM_PREFIX)) {
    for (const auto& [first, last] : request.ranges) ranges.push_back({first, last});
    rules.mm_ranges = ranges;
  }
  rules.cp_world_size = test.cp_world;
  rules.cp_rank = test.cp_rank;
  rules.cp_interleave = test.cp_interleave;
  return rules;
}

struct Check {
  AttnResult& result;
  ErrorText text;
  bool operator()(int32_t status, const char* what) {
    if (status == ANYATTN_OK) return true;
    result.failure = std::string(what) + ": status " + std::to_string(status) + ": " + text.text;
    return false;
  }
};

}  // namespace

AttnResult run_case(const AttnCase& test, bool compare) {
  AttnResult result;
  Check ok{result, {}};
  SmallHost host(test.num_workers, test.isa);
  const anyattn_backend& backend = host.backend("CPU_ATTN");
  const char* dtype_text = nullptr;
  const anyattn_problem problem = problem_of(test, test.features, dtype_text);

  ReasonList reasons;
  anyattn_support_report report{};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  if (!ok(backend.supports(host.get(), &cpu_device(), &problem, reasons.sink(), &report, ok.text.get()), "supports"))
    return result;
  if (!report.supported) return result.failure = "refused: " + reasons.all(), result;

  // Data: requests in order; keys of this rank only.
  const size_t num_reqs = test.requests.size();
  std::vector<int32_t> query_start(1, 0), seq_lens, key_start(1, 0);
  std::vector<uint8_t> causal;
  std::vector<int32_t> range_start(1, 0), ranges;
  anyattn_limits limits{ANYATTN_LIMITS_SIZE, static_cast<uint32_t>(std::max<size_t>(num_reqs, 1)), 1, 1, 1, 1};
  for (const Request& r : test.requests) {
    query_start.push_back(query_start.back() + r.query_len);
    seq_lens.push_back(r.seq_len);
    key_start.push_back(key_start.back() +
                        static_cast<int32_t>(conf::shard_length(r.seq_len, test.cp_world, test.cp_rank, test.cp_interleave)));
    causal.push_back(r.causal);
    for (const auto& [first, last] : r.ranges) ranges.push_back(first), ranges.push_back(last);
    range_start.push_back(static_cast<int32_t>(ranges.size() / 2));
    limits.max_query_len = std::max<uint32_t>(limits.max_query_len, static_cast<uint32_t>(r.query_len));
    limits.max_seq_len = std::max<uint32_t>(limits.max_seq_len, static_cast<uint32_t>(r.seq_len));
  }
  const int64_t rows = query_start.back() + test.padding_rows, keys = key_start.back();
  limits.max_num_tokens = static_cast<uint32_t>(std::max<int64_t>(rows, 1));
  limits.max_blocks_per_req = test.ragged ? 0 : (limits.max_seq_len + test.block_size - 1) / test.block_size;
  TestTensor q({rows, test.num_q_heads, test.head_size}, test.q_dtype);
  TestTensor k({keys, test.num_kv_heads, test.head_size}, test.q_dtype);
  TestTensor v({keys, test.num_kv_heads, test.head_size_v}, test.q_dtype);
  q.fill(test.seed * 3, test.amplitude);
  k.fill(test.seed * 3 + 1, test.amplitude);
  v.fill(test.seed * 3 + 2, 1);
  for (int64_t t = query_start.back(); t < rows; ++t) q.poison_row(t);
  const std::vector<float> slopes = [&] {
    std::vector<float> drawn = conf::draw(test.seed + 77, test.num_q_heads);
    for (float& s : drawn) s = std::abs(s) * 0.2f;
    return drawn;
  }();
  const std::vector<float> sinks = conf::draw(test.seed + 78, test.num_q_heads);

  // Impl, cache, metadata.
  Specs specs;
  if (!test.ragged &&
      !ok(backend.kv_cache_spec(host.get(), &cpu_device(), &problem, &Specs::accept, &specs, ok.text.get()), "kv_cache_spec"))
    return result;
  const anyattn_kv_cache_spec* spec = test.ragged ? nullptr : &specs.at(test.spec);
  anyattn_impl* impl = nullptr;
  if (!ok(backend.impl_create(host.get(), &cpu_device(), &problem, spec, &impl, ok.text.get()), "impl_create")) return result;
  const Owned<anyattn_impl> impl_owner{impl, backend.impl_destroy};
  PagedCache cache(spec, key_start, limits.max_blocks_per_req, test.seed, test.poison, test.kv_dtype);
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  if (!ok(backend.memory(impl, &limits, &memory, ok.text.get()), "memory")) return result;
  Guarded scratch(memory.scratch_bytes), persistent(memory.persistent_bytes, 0);
  uint32_t level = 99;
  if (!ok(backend.warmup(impl, &limits, nullptr, scratch.data(), &level, ok.text.get()), "warmup")) return result;
  anyattn_metadata* metadata = nullptr;
  if (!ok(backend.metadata_create(impl, &limits, ANYATTN_METADATA_NORMAL, persistent.data(), nullptr, &metadata, ok.text.get()),
          "metadata_create"))
    return result;
  const Owned<anyattn_metadata> metadata_owner{metadata, backend.metadata_destroy};

  // One step.
  if (!test.ragged && keys > 0) {
    std::vector<int64_t> slots = cache.slots();
    slots.push_back(-1);  // one row more than there are keys: skipped
    TestTensor k_padded = k.with_row(), v_padded = v.with_row();
    TestTensor slot_tensor = TestTensor::of(slots);
    anyattn_kv_cache_update_args update{};
    update.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    update.k = k_padded.get();
    update.v = v_padded.get();
    update.slot_mapping = slot_tensor.get();
    update.cache = cache.get();
    if (!ok(backend.kv_cache_update(impl, &update, ok.text.get()), "kv_cache_update")) return result;
  }
  anyattn_batch batch{};
  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_reqs = static_cast<uint32_t>(num_reqs);
  batch.num_tokens = static_cast<uint32_t>(rows);
  batch.max_query_len = limits.max_query_len;
  batch.max_seq_len = limits.max_seq_len;
  batch.query_start_loc = query_start.data();
  batch.seq_lens = seq_lens.data();
  batch.block_table = test.ragged ? nullptr : cache.table();
  batch.block_table_stride = cache.table_stride();
  batch.key_start_loc = test.ragged ? key_start.data() : nullptr;
  if (test.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL)) batch.causal = causal.data();
  if (test.has(ANYATTN_FEATURE_MM_PREFIX))
    batch.mm_prefix_start_loc = range_start.data(), batch.mm_prefix_ranges = ranges.data();
  if (!ok(backend.metadata_update(metadata, &batch, nullptr, ok.text.get()), "metadata_update")) return result;

  TestTensor out({rows, test.num_q_heads, test.head_size_v}, test.out_dtype);
  TestTensor lse({rows, test.num_q_heads}, ANYATTN_DTYPE_FLOAT32);
  out.poison();
  lse.poison();
  TestTensor sink_tensor = TestTensor::of(sinks), slope_tensor = TestTensor::of(slopes);
  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.lse_base = test.lse_base;
  args.softmax_scale = test.softmax_scale;
  args.q = q.get();
  if (test.ragged) args.k = k.get(), args.v = v.get();
  if (test.has(ANYATTN_FEATURE_SINKS)) args.sinks = sink_tensor.get();
  args.alibi_slopes = slope_tensor.get();
  args.cache = test.ragged ? nullptr : cache.get();
  args.out = out.get();
  if (test.has(ANYATTN_FEATURE_LSE)) args.lse = lse.get();
  args.scratch = scratch.data();
  if (!ok(backend.forward(impl, metadata, &args, ok.text.get()), "forward")) return result;
  result.out = out.floats();
  if (test.has(ANYATTN_FEATURE_LSE)) result.lse = lse.floats();
  for (const std::string& broken :
       {scratch.broken("scratch"), persistent.broken("persistent"), out.broken("out"), lse.broken("lse")})
    if (!broken.empty()) return result.failure = broken, result;
  if (!compare) return result;

  // The reference over what is stored: keys rounded to the cache's dtype.
  conf::Reference reference;
  const conf::HeadShape shape{static_cast<int>(test.num_q_heads), static_cast<int>(test.num_kv_heads),
                              static_cast<int>(test.head_size), static_cast<int>(test.head_size_v)};
  const uint32_t stored = test.ragged ? test.q_dtype : test.kv_dtype;
  const std::vector<float> q_values = q.floats();
  std::vector<float> k_values = k.floats(), v_values = v.floats();
  for (float& x : k_values) x = conf::rounded(stored, x);
  for (float& x : v_values) x = conf::rounded(stored, x);
  const size_t k_row = size_t{test.num_kv_heads} * test.head_size, v_row = size_t{test.num_kv_heads} * test.head_size_v;
  for (size_t r = 0; r < num_reqs; ++r) {
    std::vector<conf::MmRange> mm;
    const conf::RowRules rules = rules_of(test, test.requests[r], slopes, sinks, mm);
    const conf::KeyReader reader{
        [&](int64_t key, float* into) { std::copy_n(&k_values[static_cast<size_t>(key_start[r] + key) * k_row], k_row, into); },
        [&](int64_t key, float* into) {
          std::copy_n(&v_values[static_cast<size_t>(key_start[r] + key) * v_row], v_row, into);
        }};
    for (int32_t i = 0; i < test.requests[r].query_len; ++i)
      conf::attend_row(shape, rules, seq_lens[r] - test.requests[r].query_len + i, key_start[r + 1] - key_start[r],
                       &q_values[static_cast<size_t>(query_start[r] + i) * test.num_q_heads * test.head_size], reader,
                       test.q_dtype, &reference);
  }
  for (uint32_t i = 0; i < test.padding_rows; ++i) conf::append_empty_row(shape, &reference);
  const conf::Bound bound = conf::bound_of(reference, test.out_dtype);
  const conf::Comparison of_out = conf::compare(result.out, reference.exact, bound.out, "out");
  result.ratio = of_out.ratio;
  if (!of_out.ok()) return result.failure = of_out.failure, result;
  if (!result.lse.empty()) {
    std::vector<float> natural = result.lse;
    if (test.lse_base == ANYATTN_LSE_BASE2)
      for (float& x : natural) x = static_cast<float>(x * 0.69314718055994530942);
    const conf::Comparison of_lse = conf::compare(natural, reference.exact_lse, bound.lse, "lse");
    result.ratio = std::max(result.ratio, of_lse.ratio);
    if (!of_lse.ok()) result.failure = of_lse.failure;
  }
  return result;
}

}  // namespace anyattn::cpu_test
