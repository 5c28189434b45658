// SPDX-License-Identifier: Apache-2.0
// The whole path with a real backend: YAML file, plugin, pool, update, cache, forward, and the numbers at the end compared with
// plain double loops. Kernels have their own tests; here the core must hand them the right things.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include "anyattn/kv_pool.h"
#include "heap_count.h"
#include "library_steps.h"
#include "runtime_fixture.h"

using anyattn::DeviceMemory;
using anyattn::Group;
using anyattn::Runtime;
using anyattn::Tensor;

namespace {

constexpr uint32_t kFloat = ANYATTN_DTYPE_FLOAT32;
constexpr double kTolerance = 2e-5;  // float32 sums of at most 100 keys of size about 1, against double

Runtime cpu_runtime() {
  Runtime::Options options;
  options.config_path = std::string(ANYATTN_BINARY_DIR) + "/config/default.yaml";
  options.log_level = "error";
  options.num_threads = 2;
  return Runtime(options);
}

// Device memory of floats drawn from a seed.
class Floats {
 public:
  Floats(const Runtime& runtime, size_t count, unsigned seed = 0) : memory_(runtime, {}, count * 4), count_(count) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (size_t i = 0; i < count; ++i) data()[i] = seed == 0 ? NAN : uniform(generator);
  }
  float* data() const { return static_cast<float*>(memory_.get()); }
  size_t size() const { return count_; }

 private:
  DeviceMemory memory_;
  size_t count_;
};

// softmax(scale * q k) v over keys [0, num_keys), one row; keys and values by index.
template <class Key, class Value>
std::vector<double> attend(const float* q, int64_t num_keys, int64_t width, int64_t width_v, double scale, Key key, Value value,
                           double* lse = nullptr) {
  std::vector<double> scores(static_cast<size_t>(num_keys));
  double top = -INFINITY;
  for (int64_t j = 0; j < num_keys; ++j) {
    double score = 0;
    for (int64_t d = 0; d < width; ++d) score += static_cast<double>(q[d]) * static_cast<double>(key(j, d));
    scores[static_cast<size_t>(j)] = score * scale;
    top = std::max(top, score * scale);
  }
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(width_v));
  for (int64_t j = 0; j < num_keys; ++j) {
    const double weight = std::exp(scores[static_cast<size_t>(j)] - top);
    sum += weight;
    for (int64_t d = 0; d < width_v; ++d) out[static_cast<size_t>(d)] += weight * static_cast<double>(value(j, d));
  }
  for (double& number : out) number /= sum;
  if (lse) *lse = top + std::log(sum);
  return out;
}

double worst(const float* got, const std::vector<double>& wanted) {
  double error = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - wanted[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error;
}

// A pool of one group with one layer.
struct Pool {
  anyattn_kv_pool* pool = nullptr;
  anyattn_cache cache{};
  Pool(const Runtime& runtime, const Group& group) {
    anyattn_kv_group_options one{};
    one.struct_size = ANYATTN_KV_GROUP_OPTIONS_SIZE;
    one.num_layers = 1;
    one.window_left = -1;
    one.spec = group.info().spec;
    anyattn_kv_pool_options options{};
    options.struct_size = ANYATTN_KV_POOL_OPTIONS_SIZE;
    options.num_groups = 1;
    options.group_stride = sizeof one;
    options.device_kind = ANYATTN_DEVICE_CPU;
    options.max_num_reqs = 4;
    options.max_seq_len = 128;
    options.groups = &one;
    options.num_blocks = 64;
    anyattn::check(anyattn_kv_pool_create, runtime.get(), static_cast<const anyattn_kv_pool_options*>(&options), &pool);
    cache.struct_size = ANYATTN_CACHE_SIZE;
    anyattn::check(anyattn_kv_pool_layer_cache, static_cast<const anyattn_kv_pool*>(pool), 0u, 0u, &cache);
  }
  ~Pool() { anyattn_kv_pool_destroy(pool); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void add(uint64_t request, uint32_t num_tokens) {
    uint32_t cached = 0;
    const std::vector<int32_t> ids(num_tokens, 1);
    anyattn::check(anyattn_kv_pool_begin, pool, request, static_cast<const int32_t*>(ids.data()), num_tokens, request, &cached);
    anyattn::check(anyattn_kv_pool_reserve, pool, request, num_tokens);
  }
  std::vector<int64_t> slots(uint64_t request, uint32_t num_tokens) const {
    std::vector<int64_t> out(num_tokens);
    anyattn::check(anyattn_kv_pool_slot_mapping, static_cast<const anyattn_kv_pool*>(pool), 0u, request, 0u, num_tokens,
                   out.data());
    return out;
  }
};

// An aligned copy: tensors want 16 bytes.
struct Slots {
  DeviceMemory memory;
  Tensor tensor;
  Slots(const Runtime& runtime, const std::vector<int64_t>& slots)
      : memory(runtime, {}, slots.size() * 8), tensor(memory.get(), ANYATTN_DTYPE_INT64, {static_cast<int64_t>(slots.size())}) {
    std::copy(slots.begin(), slots.end(), static_cast<int64_t*>(memory.get()));
  }
};

}  // namespace

TEST_CASE("whole_path_attends_over_paged_keys") {
  const Runtime runtime = cpu_runtime();
  anyattn::Problem problem = fake::small_problem();
  problem.fields.head_size = problem.fields.head_size_v = 32;
  problem.fields.block_size = 16;
  Group::Options options = fake::group_options(problem.view());
  options.backend = "CPU_ATTN";
  Group group(runtime, options);
  REQUIRE(group.info().backend == std::string("CPU_ATTN"));
  Pool pool(runtime, group);

  // Three requests: one row against 37 keys, a whole prompt of 5, three rows at the end of 100.
  const std::vector<int32_t> seq_lens = {37, 5, 100};
  const std::vector<int32_t> query_start_loc = {0, 1, 6, 9};
  std::vector<Floats> keys;
  std::vector<Floats> values;
  std::vector<int32_t> table(3 * 8, -1);
  for (uint32_t r = 0; r < 3; ++r) {
    const auto tokens = static_cast<uint32_t>(seq_lens[r]);
    pool.add(r, tokens);
    keys.emplace_back(runtime, tokens * 2 * 32, 10 + r);
    values.emplace_back(runtime, tokens * 2 * 32, 20 + r);
    const Slots slots(runtime, pool.slots(r, tokens));
    const Tensor k(keys[r].data(), kFloat, {tokens, 2, 32});
    const Tensor v(values[r].data(), kFloat, {tokens, 2, 32});
    anyattn_kv_cache_update_args update{};
    update.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    update.k = k;
    update.v = v;
    update.slot_mapping = slots.tensor;
    update.cache = &pool.cache;
    group.kv_cache_update(update);
  }
  const uint64_t requests[] = {0, 1, 2};
  anyattn::check(anyattn_kv_pool_block_table, static_cast<const anyattn_kv_pool*>(pool.pool), 0u,
                 static_cast<const uint64_t*>(requests), 3u, table.data(), int64_t{8});

  anyattn_batch batch{};
  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_reqs = 3;
  batch.num_tokens = 9;
  batch.max_query_len = 5;
  batch.max_seq_len = 100;
  batch.query_start_loc = batch.query_start_loc_host = query_start_loc.data();
  batch.seq_lens = batch.seq_lens_host = seq_lens.data();
  batch.block_table = table.data();
  batch.block_table_stride = 8;
  const Floats q(runtime, 9 * 8 * 32, 3);
  const Floats out(runtime, 9 * 8 * 32);
  const Tensor q_tensor(q.data(), kFloat, {9, 8, 32});
  const Tensor out_tensor(out.data(), kFloat, {9, 8, 32});
  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.softmax_scale = 0.17;
  args.q = q_tensor;
  args.out = out_tensor;
  args.cache = &pool.cache;
  group.update(ANYATTN_PHASE_BOTH, batch);
  group.forward(ANYATTN_PHASE_BOTH, args);

  double error = 0;
  for (size_t r = 0; r < 3; ++r) {
    const int32_t rows = query_start_loc[r + 1] - query_start_loc[r];
    for (int32_t i = 0; i < rows; ++i) {
      for (int64_t head = 0; head < 8; ++head) {
        const int64_t kv_head = head / 4;
        const size_t at = (static_cast<size_t>(query_start_loc[r] + i) * 8 + static_cast<size_t>(head)) * 32;
        const auto element = [&](const Floats& floats) {
          return [&floats, kv_head](int64_t j, int64_t d) { return floats.data()[(j * 2 + kv_head) * 32 + d]; };
        };
        const auto wanted =
            attend(q.data() + at, seq_lens[r] - rows + i + 1, 32, 32, 0.17, element(keys[r]), element(values[r]));
        error = std::max(error, worst(out.data() + at, wanted));
      }
    }
  }
  CHECK(error < kTolerance);
}

TEST_CASE("whole_path_runs_mla_decode_and_chunked_prefill") {
  constexpr int64_t kHeads = 4, kLora = 512, kRope = 64, kNope = 128, kWidth = kNope + kRope, kV = 128;
  const Runtime runtime = cpu_runtime();
  anyattn::Problem problem;
  problem.set(ANYATTN_FEATURE_MLA).set(ANYATTN_FEATURE_LSE).kv_cache_dtype("auto");
  problem.fields.num_q_heads = kHeads;
  problem.fields.num_kv_heads = 1;
  problem.fields.kv_lora_rank = problem.fields.head_size_v = kLora;
  problem.fields.qk_rope_head_dim = kRope;
  problem.fields.head_size = kLora + kRope;
  problem.fields.qk_nope_head_dim = kNope;
  problem.fields.v_head_dim = kV;
  problem.fields.q_dtype = problem.fields.out_dtype = kFloat;
  Group group(runtime, fake::group_options(problem.view(), "mla"));
  REQUIRE(group.info().backend == std::string("CPU_MLA"));
  REQUIRE(group.info().needs_split == 1);
  Pool pool(runtime, group);
  constexpr uint32_t kTokens = 40;
  pool.add(7, kTokens);
  const Floats latent(runtime, kTokens * kLora, 31);
  const Floats rope(runtime, kTokens * kRope, 32);
  const Slots slots(runtime, pool.slots(7, kTokens));
  const Tensor kv_c(latent.data(), kFloat, {kTokens, kLora});
  const Tensor k_pe(rope.data(), kFloat, {kTokens, kRope});
  anyattn_kv_cache_update_args update{};
  update.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
  update.kv_c = kv_c;
  update.k_pe = k_pe;
  update.slot_mapping = slots.tensor;
  update.cache = &pool.cache;
  group.kv_cache_update(update);

  const uint64_t request = 7;
  std::vector<int32_t> table(128, -1);
  anyattn::check(anyattn_kv_pool_block_table, static_cast<const anyattn_kv_pool*>(pool.pool), 0u, &request, 1u, table.data(),
                 int64_t{128});
  const std::vector<int32_t> one_row = {0, 1};
  const std::vector<int32_t> seq_lens = {kTokens};
  anyattn_batch batch{};
  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_reqs = batch.num_tokens = batch.max_query_len = 1;
  batch.max_seq_len = kTokens;
  batch.query_start_loc = batch.query_start_loc_host = one_row.data();
  batch.seq_lens = batch.seq_lens_host = seq_lens.data();
  batch.block_table = table.data();
  batch.block_table_stride = 128;

  SUBCASE("decode") {
    group.update(ANYATTN_PHASE_DECODE, batch);
    const Floats q_latent(runtime, kHeads * kLora, 33);
    const Floats q_pe(runtime, kHeads * kRope, 34);
    const Floats out(runtime, kHeads * kLora);
    const Tensor q_latent_tensor(q_latent.data(), kFloat, {1, kHeads, kLora});
    const Tensor q_pe_tensor(q_pe.data(), kFloat, {1, kHeads, kRope});
    const Tensor out_tensor(out.data(), kFloat, {1, kHeads, kLora});
    anyattn_mqa_args args{};
    args.struct_size = ANYATTN_MQA_ARGS_SIZE;
    args.softmax_scale = 0.05;
    args.q_latent = q_latent_tensor;
    args.q_pe = q_pe_tensor;
    args.out = out_tensor;
    args.cache = &pool.cache;
    group.forward_mqa(args);
    double error = 0;
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<float> q(q_latent.data() + head * kLora, q_latent.data() + (head + 1) * kLora);
      q.insert(q.end(), q_pe.data() + head * kRope, q_pe.data() + (head + 1) * kRope);
      const auto key = [&](int64_t j, int64_t d) {
        return d < kLora ? latent.data()[j * kLora + d] : rope.data()[j * kRope + d - kLora];
      };
      error =
          std::max(error, worst(out.data() + head * kLora, attend(q.data(), kTokens, kLora + kRope, kLora, 0.05, key, key)));
    }
    CHECK(error < kTolerance);
  }

  SUBCASE("gather") {
    group.update(ANYATTN_PHASE_PREFILL, batch);
    const std::vector<int32_t> row_start_loc = {0, 24};
    const std::vector<int32_t> context_start = {8};
    anyattn_context_chunk chunk{ANYATTN_CONTEXT_CHUNK_SIZE, 1, 24, 24, row_start_loc.data(), context_start.data()};
    const Floats rows(runtime, 24 * kLora);
    const Floats rope_rows(runtime, 24 * kRope);
    const Tensor rows_tensor(rows.data(), kFloat, {24, kLora});
    const Tensor rope_rows_tensor(rope_rows.data(), kFloat, {24, kRope});
    anyattn_context_gather_args args{};
    args.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
    args.cache = &pool.cache;
    args.kv_c = rows_tensor;
    args.k_pe = rope_rows_tensor;
    group.context_gather(chunk, args);
    CHECK(std::equal(rows.data(), rows.data() + rows.size(), latent.data() + 8 * kLora));
    CHECK(std::equal(rope_rows.data(), rope_rows.data() + rope_rows.size(), rope.data() + 8 * kRope));
  }

  SUBCASE("prefill in two chunks of keys merges to the whole") {
    constexpr int64_t kRows = 3, kKeys = 30, kFirst = 11;
    const Floats q(runtime, kRows * kHeads * kWidth, 35);
    const Floats k(runtime, kKeys * kHeads * kWidth, 36);
    const Floats v(runtime, kKeys * kHeads * kV, 37);
    const Tensor q_tensor(q.data(), kFloat, {kRows, kHeads, kWidth});
    const Tensor k_tensor(k.data(), kFloat, {kKeys, kHeads, kWidth});
    const Tensor v_tensor(v.data(), kFloat, {kKeys, kHeads, kV});
    const Floats out(runtime, 3 * kRows * kHeads * kV);
    const Floats lse(runtime, 3 * 16);
    const auto out_part = [&](int64_t i) { return Tensor(out.data() + i * kRows * kHeads * kV, kFloat, {kRows, kHeads, kV}); };
    const auto lse_part = [&](int64_t i) { return Tensor(lse.data() + i * 16, kFloat, {kRows, kHeads}); };
    const Tensor outs[] = {out_part(0), out_part(1), out_part(2)};
    const Tensor lses[] = {lse_part(0), lse_part(1), lse_part(2)};
    const std::vector<int32_t> rows = {0, kRows};
    anyattn_state states[2] = {};
    for (int part = 0; part < 2; ++part) {
      const int64_t count = part == 0 ? kFirst : kKeys - kFirst;
      const std::vector<int32_t> key_rows = {0, static_cast<int32_t>(count)};
      const Tensor part_k = k_tensor.rows(part == 0 ? 0 : kFirst, count);
      const Tensor part_v = v_tensor.rows(part == 0 ? 0 : kFirst, count);
      anyattn_mha_args args{};
      args.struct_size = ANYATTN_MHA_ARGS_SIZE;
      args.lse_base = ANYATTN_LSE_NATURAL;
      args.softmax_scale = 0.07;
      args.num_reqs = 1;
      args.causal = part == 1 ? 1 : 0;  // the later chunk holds the rows' own keys
      args.max_query_len = kRows;
      args.max_key_len = static_cast<uint32_t>(count);
      args.query_start_loc = rows.data();
      args.key_start_loc = key_rows.data();
      args.q = q_tensor;
      args.k = part_k;
      args.v = part_v;
      args.out = outs[part];
      args.lse = lses[part];
      group.forward_mha(args);
      states[part] = {ANYATTN_STATE_SIZE, ANYATTN_LSE_NATURAL, outs[part], lses[part]};
    }
    anyattn_merge_args merge{};
    merge.struct_size = ANYATTN_MERGE_ARGS_SIZE;
    merge.lse_base = ANYATTN_LSE_NATURAL;
    merge.num_states = 2;
    merge.state_stride = sizeof states[0];
    merge.states = states;
    merge.out = outs[2];
    merge.lse = lses[2];
    group.merge_states(merge);
    double error = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto key = [&](int64_t j, int64_t d) { return k.data()[(j * kHeads + head) * kWidth + d]; };
        const auto value = [&](int64_t j, int64_t d) { return v.data()[(j * kHeads + head) * kV + d]; };
        double wanted_lse = 0;
        const auto wanted =
            attend(q.data() + (i * kHeads + head) * kWidth, kKeys - kRows + i + 1, kWidth, kV, 0.07, key, value, &wanted_lse);
        error = std::max(error, worst(out.data() + ((2 * kRows + i) * kHeads + head) * kV, wanted));
        error = std::max(error, worst(lse.data() + 2 * 16 + i * kHeads + head, {wanted_lse}));
      }
    }
    CHECK(error < kTolerance);
  }
}

TEST_CASE("steps_of_the_cpu_backend_allocate_nothing") {
  const Runtime runtime = cpu_runtime();
  fake::LibrarySteps steps(runtime, "CPU_ATTN");
  for (uint64_t i = 0; i < 30; ++i) REQUIRE(steps.step(i) == ANYATTN_OK);

  const uint64_t before = heap::allocations();
  int32_t status = ANYATTN_OK;
  for (uint64_t i = 30; i < 1030; ++i) status |= steps.step(i);
  const uint64_t after = heap::allocations();

  CHECK(status == ANYATTN_OK);
  CHECK(after - before == 0);
}
