// SPDX-License-Identifier: Apache-2.0
#include "attn_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "anyattn/conformance/reference.h"

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

int64_t sum_of_queries(const AttnCase& test) {
  int64_t total = 0;
  for (const Request& r : test.requests) total += r.query_len;
  return total;
}

int64_t sum_of_keys(const AttnCase& test) {
  int64_t total = 0;
  for (const Request& r : test.requests)
    total += conf::shard_length(r.seq_len, test.cp_world, test.cp_rank, test.cp_interleave);
  return total;
}

std::vector<float> drawn_slopes(const AttnCase& test) {
  std::vector<float> drawn = conf::draw(test.seed + 77, test.num_q_heads);
  for (float& s : drawn) s = std::abs(s) * 0.2f;
  return drawn;
}

}  // namespace

AttnRun::AttnRun(const AttnCase& given)
    : test(given),
      host(test.num_workers, test.isa),
      backend(host.backend("CPU_ATTN")),
      problem(problem_of(test, test.features, dtype_text)),
      rows(sum_of_queries(test) + test.padding_rows),
      keys(sum_of_keys(test)),
      q({rows, test.num_q_heads, test.head_size}, test.q_dtype),
      k({keys, test.num_kv_heads, test.head_size}, test.q_dtype),
      v({keys, test.num_kv_heads, test.head_size_v}, test.q_dtype),
      out({rows, test.num_q_heads, test.head_size_v}, test.out_dtype),
      lse({rows, test.num_q_heads}, ANYATTN_DTYPE_FLOAT32),
      sinks(TestTensor::of(conf::draw(test.seed + 78, test.num_q_heads))),
      slopes(TestTensor::of(drawn_slopes(test))) {
  query_start = key_start = range_start = {0};
  const auto num_reqs = static_cast<uint32_t>(test.requests.size());
  limits = {ANYATTN_LIMITS_SIZE, std::max(num_reqs, 1u), 1, 1, 1, 1};
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
  limits.max_num_tokens = static_cast<uint32_t>(std::max<int64_t>(rows, 1));
  limits.max_blocks_per_req = test.ragged ? 0 : (limits.max_seq_len + test.block_size - 1) / test.block_size;
  q.fill(test.seed * 3, test.amplitude);
  k.fill(test.seed * 3 + 1, test.amplitude);
  v.fill(test.seed * 3 + 2, 1);
  for (int64_t t = query_start.back(); t < rows; ++t) q.poison_row(t);

  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_reqs = num_reqs;
  batch.num_tokens = static_cast<uint32_t>(rows);
  batch.max_query_len = limits.max_query_len;
  batch.max_seq_len = limits.max_seq_len;
  batch.query_start_loc = query_start.data();
  batch.seq_lens = seq_lens.data();
  batch.key_start_loc = test.ragged ? key_start.data() : nullptr;
  if (test.has(ANYATTN_FEATURE_PER_REQUEST_CAUSAL)) batch.causal = causal.data();
  if (test.has(ANYATTN_FEATURE_MM_PREFIX))
    batch.mm_prefix_start_loc = range_start.data(), batch.mm_prefix_ranges = ranges.data();
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.lse_base = test.lse_base;
  args.softmax_scale = test.softmax_scale;
  args.q = q.get();
  if (test.ragged) args.k = k.get(), args.v = v.get();
  if (test.has(ANYATTN_FEATURE_SINKS)) args.sinks = sinks.get();
  args.alibi_slopes = slopes.get();
  args.out = out.get();
  if (test.has(ANYATTN_FEATURE_LSE)) args.lse = lse.get();
}

AttnRun::~AttnRun() {
  backend.metadata_destroy(metadata);
  backend.impl_destroy(impl);
}

bool AttnRun::ok(int32_t status, const char* step) {
  if (status == ANYATTN_OK) return true;
  result.failure = std::string(step) + ": status " + std::to_string(status) + ": " + text.text;
  return false;
}

bool AttnRun::prepare() {
  ReasonList reasons;
  anyattn_support_report report{};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  if (!ok(backend.supports(host.get(), &cpu_device(), &problem, reasons.sink(), &report, text.get()), "supports")) return false;
  if (!report.supported) return result.failure = "refused: " + reasons.all(), false;
  if (!test.ragged &&
      !ok(backend.kv_cache_spec(host.get(), &cpu_device(), &problem, &Specs::accept, &specs, text.get()), "kv_cache_spec"))
    return false;
  const anyattn_kv_cache_spec* spec = test.ragged ? nullptr : &specs.at(test.spec);
  if (!ok(backend.impl_create(host.get(), &cpu_device(), &problem, spec, &impl, text.get()), "impl_create")) return false;
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  if (!ok(backend.memory(impl, &limits, &memory, text.get()), "memory")) return false;
  scratch = std::make_unique<Guarded>(memory.scratch_bytes);
  persistent = std::make_unique<Guarded>(memory.persistent_bytes, 0);
  uint32_t level = 99;
  if (!ok(backend.warmup(impl, &limits, nullptr, scratch->data(), &level, text.get()), "warmup")) return false;
  if (!ok(backend.metadata_create(impl, &limits, ANYATTN_METADATA_NORMAL, persistent->data(), nullptr, &metadata, text.get()),
          "metadata_create"))
    return false;
  cache = std::make_unique<PagedCache>(spec, key_start, limits.max_blocks_per_req, test.seed, test.poison, test.kv_dtype);
  if (!test.ragged) {
    batch.block_table = cache->table();
    batch.block_table_stride = cache->table_stride();
    args.cache = cache->get();
  }
  args.scratch = scratch->data();
  return true;
}

bool AttnRun::store() {
  if (test.ragged || keys == 0) return true;
  std::vector<int64_t> all = cache->slots();
  all.push_back(-1);
  TestTensor k_padded = k.with_row(), v_padded = v.with_row();
  TestTensor slots = TestTensor::of(all);
  anyattn_kv_cache_update_args call{};
  call.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  call.k = k_padded.get();
  call.v = v_padded.get();
  call.slot_mapping = slots.get();
  call.cache = cache->get();
  return ok(backend.kv_cache_update(impl, &call, text.get()), "kv_cache_update");
}

bool AttnRun::update() { return ok(backend.metadata_update(metadata, &batch, nullptr, text.get()), "metadata_update"); }

bool AttnRun::forward() {
  out.poison();
  lse.poison();
  if (!ok(backend.forward(impl, metadata, &args, text.get()), "forward")) return false;
  result.out = out.floats();
  if (test.has(ANYATTN_FEATURE_LSE)) result.lse = lse.floats();
  for (const std::string& broken :
       {scratch->broken("scratch"), persistent->broken("persistent"), out.broken("out"), lse.broken("lse")})
    if (!broken.empty()) return result.failure = broken, false;
  return true;
}

void AttnRun::compare() {
  conf::Reference reference;
  const conf::HeadShape shape{static_cast<int>(test.num_q_heads), static_cast<int>(test.num_kv_heads),
                              static_cast<int>(test.head_size), static_cast<int>(test.head_size_v)};
  const uint32_t stored = test.ragged ? test.q_dtype : test.kv_dtype;
  const std::vector<float> q_values = q.floats(), sink_values = sinks.floats(), slope_values = slopes.floats();
  std::vector<float> k_values = k.floats(), v_values = v.floats();
  for (float& x : k_values) x = conf::rounded(stored, x);
  for (float& x : v_values) x = conf::rounded(stored, x);
  const size_t k_row = size_t{test.num_kv_heads} * test.head_size, v_row = size_t{test.num_kv_heads} * test.head_size_v;
  for (size_t r = 0; r < test.requests.size(); ++r) {
    std::vector<conf::MmRange> mm;
    const conf::RowRules rules = rules_of(test, test.requests[r], slope_values, sink_values, mm);
    const auto first = static_cast<size_t>(key_start[r]);
    const conf::KeyReader reader{[&, first](int64_t key, float* into) {
                                   std::copy_n(&k_values[(first + static_cast<size_t>(key)) * k_row], k_row, into);
                                 },
                                 [&, first](int64_t key, float* into) {
                                   std::copy_n(&v_values[(first + static_cast<size_t>(key)) * v_row], v_row, into);
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
  if (!of_out.ok()) {
    result.failure = of_out.failure;
    return;
  }
  if (result.lse.empty()) return;
  std::vector<float> natural = result.lse;
  if (test.lse_base == ANYATTN_LSE_BASE2)
    for (float& x : natural) x = static_cast<float>(x * 0.69314718055994530942);
  const conf::Comparison of_lse = conf::compare(natural, reference.exact_lse, bound.lse, "lse");
  result.ratio = std::max(result.ratio, of_lse.ratio);
  result.failure = of_lse.failure;
}

AttnResult run_case(const AttnCase& test) {
  AttnRun run(test);
  if (run.prepare() && run.store() && run.update() && run.forward()) run.compare();
  return run.result;
}

}  // namespace anyattn::cpu_test
