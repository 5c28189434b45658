// SPDX-License-Identifier: Apache-2.0
// CPU_MLA against the double reference: decode over latent rows, gather, expanded prefill.
#include <cmath>
#include <sstream>

#include "anyattn/conformance/reference.h"
#include "doctest/doctest.h"
#include "small_host.h"
#include "test_memory.h"

using namespace anyattn::cpu_test;
namespace conf = anyattn::conformance;

namespace {

struct MlaCase {
  uint64_t seed = 1;
  uint32_t num_q_heads = 5, rank = 64, rope = 16, nope = 32, v_head_dim = 24, block_size = 16;
  uint32_t dtype = ANYATTN_DTYPE_FLOAT32, kv_dtype = ANYATTN_DTYPE_FLOAT32;
  uint32_t cp_world = 1, cp_rank = 0;
  uint32_t lse_base = ANYATTN_LSE_NATURAL;
  std::vector<std::pair<int32_t, int32_t>> requests;  // query length, sequence (or key) length
  bool causal = true;                                 // of forward_mha
  uint32_t num_workers = 1;
  std::string isa = "auto";

  std::string describe() const {
    std::ostringstream text;
    text << "seed " << seed << " isa " << isa << " workers " << num_workers << " heads " << num_q_heads << " sizes " << rank
         << "+" << rope << ", " << nope << "+" << rope << "/" << v_head_dim << " block " << block_size << " dtypes "
         << conf::dtype_name(dtype) << "," << conf::dtype_name(kv_dtype) << " cp " << cp_world << "," << cp_rank
         << (causal ? "" : " not causal") << " requests";
    for (const auto& [query, keys] : requests) text << " " << query << ":" << keys;
    return text.str();
  }
};

// A backend made ready for the case.
class MlaRun {
 public:
  explicit MlaRun(const MlaCase& test) : test_(test), host_(test.num_workers, test.isa), backend_(host_.backend("CPU_MLA")) {
    features_ = (uint64_t{1} << ANYATTN_FEATURE_MLA) | (uint64_t{1} << ANYATTN_FEATURE_LSE);
    if (test.cp_world > 1) features_ |= uint64_t{1} << ANYATTN_FEATURE_CP_DECODE;
    problem_.struct_size = ANYATTN_PROBLEM_SIZE;
    problem_.num_feature_words = 1;
    problem_.features = &features_;
    problem_.num_q_heads = test.num_q_heads;
    problem_.num_kv_heads = 1;
    problem_.head_size = test.rank + test.rope;
    problem_.head_size_v = test.rank;
    problem_.q_dtype = problem_.out_dtype = test.dtype;
    problem_.block_size = test.block_size;
    problem_.kv_cache_dtype = conf::dtype_name(test.kv_dtype).data();
    problem_.kv_lora_rank = test.rank;
    problem_.qk_nope_head_dim = test.nope;
    problem_.qk_rope_head_dim = test.rope;
    problem_.v_head_dim = test.v_head_dim;
    problem_.cp_world_size = test.cp_world;
    problem_.cp_rank = test.cp_rank;
    problem_.cp_interleave = 1;
    query_start_.push_back(0);
    key_start_.push_back(0);
    limits_ = {ANYATTN_LIMITS_SIZE, static_cast<uint32_t>(test.requests.size()), 1, 1, 1, 1};
    for (const auto& [query, keys] : test.requests) {
      query_start_.push_back(query_start_.back() + query);
      key_start_.push_back(key_start_.back() + static_cast<int32_t>(conf::shard_length(keys, test.cp_world, test.cp_rank, 1)));
      seq_lens_.push_back(keys);
      limits_.max_query_len = std::max(limits_.max_query_len, static_cast<uint32_t>(query));
      limits_.max_seq_len = std::max(limits_.max_seq_len, static_cast<uint32_t>(keys));
    }
    limits_.max_num_tokens = static_cast<uint32_t>(query_start_.back());
    limits_.max_blocks_per_req = (limits_.max_seq_len + test.block_size - 1) / test.block_size;

    ReasonList reasons;
    anyattn_support_report report{};
    report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
    REQUIRE(backend_.supports(host_.get(), &cpu_device(), &problem_, reasons.sink(), &report, nullptr) == ANYATTN_OK);
    REQUIRE_MESSAGE(report.supported == 1, reasons.all());
    REQUIRE(backend_.kv_cache_spec(host_.get(), &cpu_device(), &problem_, &Specs::accept, &specs_, nullptr) == ANYATTN_OK);
    anyattn_impl* impl = nullptr;
    REQUIRE(backend_.impl_create(host_.get(), &cpu_device(), &problem_, &specs_.at(0), &impl, nullptr) == ANYATTN_OK);
    impl_ = std::make_unique<Owned<anyattn_impl>>(impl, backend_.impl_destroy);
    anyattn_memory memory{};
    memory.struct_size = ANYATTN_MEMORY_SIZE;
    REQUIRE(backend_.memory(impl, &limits_, &memory, nullptr) == ANYATTN_OK);
    scratch_ = std::make_unique<Guarded>(memory.scratch_bytes);
    persistent_ = std::make_unique<Guarded>(memory.persistent_bytes, 0);
    anyattn_metadata* metadata = nullptr;
    REQUIRE(backend_.metadata_create(impl, &limits_, ANYATTN_METADATA_NORMAL, persistent_->data(), nullptr, &metadata,
                                     nullptr) == ANYATTN_OK);
    metadata_ = std::make_unique<Owned<anyattn_metadata>>(metadata, backend_.metadata_destroy);
    cache_ = std::make_unique<PagedCache>(&specs_.at(0), key_start_, limits_.max_blocks_per_req, test.seed, __builtin_nanf(""),
                                          test.kv_dtype);
  }

  void ok(int32_t status) { REQUIRE_MESSAGE(status == ANYATTN_OK, text_.text << "\n  " << test_.describe()); }

  // Stores random latents and makes the step's metadata.
  void store_and_update() {
    const int64_t keys = key_start_.back();
    TestTensor kv_c({keys, test_.rank}, test_.dtype), k_pe({keys, test_.rope}, test_.dtype);
    kv_c.fill(test_.seed * 5, 1);
    k_pe.fill(test_.seed * 5 + 1, 1);
    TestTensor slots = TestTensor::of(cache_->slots());
    anyattn_kv_cache_update_args args{};
    args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    args.kv_c = kv_c.get();
    args.k_pe = k_pe.get();
    args.slot_mapping = slots.get();
    args.cache = cache_->get();
    ok(backend_.kv_cache_update(impl_->object, &args, text_.get()));
    const std::vector<float> c = kv_c.floats(), pe = k_pe.floats();
    for (int64_t key = 0; key < keys; ++key) {
      for (uint32_t i = 0; i < test_.rank; ++i)
        latents_.push_back(conf::rounded(test_.kv_dtype, c[static_cast<size_t>(key) * test_.rank + i]));
      for (uint32_t i = 0; i < test_.rope; ++i)
        latents_.push_back(conf::rounded(test_.kv_dtype, pe[static_cast<size_t>(key) * test_.rope + i]));
    }
    const anyattn_batch step = batch();
    ok(backend_.metadata_update(metadata_->object, &step, nullptr, text_.get()));
  }

  void check_mqa() {
    const int64_t rows = query_start_.back();
    const uint32_t size = test_.rank + test_.rope;
    // Latent and rope parts lie side by side, as an engine that projects both at once leaves them.
    TestTensor q({rows, test_.num_q_heads, size}, test_.dtype);
    q.fill(test_.seed * 5 + 2, 1);
    anyattn_mqa_args args{};
    args.struct_size = ANYATTN_MQA_ARGS_SIZE;
    args.lse_base = test_.lse_base;
    args.softmax_scale = kDecodeScale;
    int64_t latent_shape[3] = {rows, test_.num_q_heads, test_.rank}, rope_shape[3] = {rows, test_.num_q_heads, test_.rope};
    args.q_latent = args.q_pe = q.get();
    args.q_latent.shape = latent_shape;
    args.q_pe.shape = rope_shape;
    args.q_pe.byte_offset = test_.rank * conf::dtype_bytes(test_.dtype);
    TestTensor out({rows, test_.num_q_heads, test_.rank}, test_.dtype), lse({rows, test_.num_q_heads}, ANYATTN_DTYPE_FLOAT32);
    out.poison();
    lse.poison();
    args.cache = cache_->get();
    args.out = out.get();
    args.lse = lse.get();
    args.scratch = scratch_->data();
    ok(backend_.forward_mqa(impl_->object, metadata_->object, &args, text_.get()));
    conf::RowRules rules;
    rules.softmax_scale = args.softmax_scale;
    rules.cp_world_size = test_.cp_world;
    rules.cp_rank = test_.cp_rank;
    compare({static_cast<int>(test_.num_q_heads), 1, static_cast<int>(size), static_cast<int>(test_.rank)}, rules, q.floats(),
            latents_, latents_, size, out.floats(), lse.floats());
  }

  // Decode of the batch through a table that is followed by entries naming no block, then every row by a call of its own.
  void check_rows_alone() {
    std::vector<int32_t> table(cache_->table(), cache_->table() + seq_lens_.size() * cache_->table_stride());
    table.resize(table.size() + 64, 1 << 30);
    anyattn_batch batch = this->batch();
    batch.block_table = table.data();
    const uint32_t size = test_.rank + test_.rope, heads = test_.num_q_heads;
    TestTensor q({query_start_.back(), heads, size}, test_.dtype);
    q.fill(test_.seed * 5 + 2, 1);
    const std::vector<float> together = decode(batch, q.get());
    for (size_t r = 0; r < seq_lens_.size(); ++r) {
      const int32_t query = query_start_[r + 1] - query_start_[r];
      for (int32_t i = 0; i < query; ++i) {
        const int32_t start[2] = {0, 1}, keys = seq_lens_[r] - query + 1 + i, row = query_start_[r] + i;
        batch.num_reqs = batch.num_tokens = batch.max_query_len = 1;
        batch.query_start_loc = start;
        batch.seq_lens = &keys;
        batch.block_table = table.data() + r * cache_->table_stride();
        anyattn_tensor one = q.get();
        one.byte_offset = static_cast<uint64_t>(row * one.strides[0]) * conf::dtype_bytes(test_.dtype);
        int64_t shape[3] = {1, heads, size};
        one.shape = shape;
        const std::vector<float> alone = decode(batch, one);
        const auto at = together.begin() + row * static_cast<int64_t>(alone.size());
        const std::vector<double> expected(at, at + static_cast<std::ptrdiff_t>(alone.size()));
        // Each way stays within the bound of the exact result, so they are at most twice as far apart.
        const conf::Comparison same = conf::compare(alone, expected, 2 * bound_.out, "out");
        CHECK_MESSAGE(same.ok(), "row " << row << ": " << same.failure << "\n  " << test_.describe());
      }
    }
  }

  void check_gather() {
    // Every second key from position 1 on is not taken: the middle of each request, in the query's dtype.
    std::vector<int32_t> row_start(1, 0), context_start;
    for (const int32_t keys : seq_lens_) {
      context_start.push_back(std::min(keys, 3));
      row_start.push_back(row_start.back() + std::max(0, keys - 5));
    }
    const int64_t rows = row_start.back();
    TestTensor kv_c({rows, test_.rank}, test_.dtype), k_pe({rows, test_.rope}, test_.dtype);
    anyattn_context_chunk chunk{ANYATTN_CONTEXT_CHUNK_SIZE, limits_.max_num_reqs, static_cast<uint32_t>(rows),
                                limits_.max_seq_len,        row_start.data(),     context_start.data()};
    anyattn_context_gather_args args{};
    args.struct_size = ANYATTN_CONTEXT_GATHER_ARGS_SIZE;
    args.cache = cache_->get();
    args.kv_c = kv_c.get();
    args.k_pe = k_pe.get();
    ok(backend_.context_gather(impl_->object, metadata_->object, &chunk, &args, text_.get()));
    const std::vector<float> c = kv_c.floats(), pe = k_pe.floats();
    const size_t size = test_.rank + test_.rope;
    size_t wrong = 0;
    for (size_t r = 0; r < seq_lens_.size(); ++r) {
      for (int32_t row = row_start[r]; row < row_start[r + 1]; ++row) {
        const float* stored = &latents_[static_cast<size_t>(key_start_[r] + context_start[r] + row - row_start[r]) * size];
        for (size_t i = 0; i < size; ++i) {
          const float got = i < test_.rank ? c[static_cast<size_t>(row) * test_.rank + i]
                                           : pe[static_cast<size_t>(row) * test_.rope + i - test_.rank];
          wrong += got != conf::rounded(test_.dtype, stored[i]);
        }
      }
    }
    CHECK(wrong == 0);
    context_start[0] = 1 << 30;
    CHECK(backend_.context_gather(impl_->object, metadata_->object, &chunk, &args, text_.get()) == ANYATTN_INVALID_ARGUMENT);
  }

  void check_mha() {
    const int64_t rows = query_start_.back(), keys = key_start_.back();
    const uint32_t size = test_.nope + test_.rope;
    TestTensor q({rows, test_.num_q_heads, size}, test_.dtype), k({keys, test_.num_q_heads, size}, test_.dtype);
    TestTensor v({keys, test_.num_q_heads, test_.v_head_dim}, test_.dtype);
    q.fill(test_.seed * 5 + 2, 1);
    k.fill(test_.seed * 5 + 3, 1);
    v.fill(test_.seed * 5 + 4, 1);
    TestTensor out({rows, test_.num_q_heads, test_.v_head_dim}, test_.dtype),
        lse({rows, test_.num_q_heads}, ANYATTN_DTYPE_FLOAT32);
    out.poison();
    lse.poison();
    anyattn_mha_args args{};
    args.struct_size = ANYATTN_MHA_ARGS_SIZE;
    args.lse_base = test_.lse_base;
    args.softmax_scale = 0.1;
    args.num_reqs = limits_.max_num_reqs;
    args.causal = test_.causal;
    args.max_query_len = limits_.max_query_len;
    args.max_key_len = limits_.max_seq_len;
    args.query_start_loc = query_start_.data();
    args.key_start_loc = key_start_.data();
    args.q = q.get();
    args.k = k.get();
    args.v = v.get();
    args.out = out.get();
    args.lse = lse.get();
    args.scratch = scratch_->data();
    ok(backend_.forward_mha(impl_->object, &args, text_.get()));
    conf::RowRules rules;
    rules.softmax_scale = args.softmax_scale;
    rules.causal = test_.causal;
    const auto heads = static_cast<int>(test_.num_q_heads);
    compare({heads, heads, static_cast<int>(size), static_cast<int>(test_.v_head_dim)}, rules, q.floats(), k.floats(),
            v.floats(), size_t{test_.num_q_heads} * test_.v_head_dim, out.floats(), lse.floats());
  }

 private:
  anyattn_batch batch() const {
    anyattn_batch batch{};
    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = limits_.max_num_reqs;
    batch.num_tokens = limits_.max_num_tokens;
    batch.max_query_len = limits_.max_query_len;
    batch.max_seq_len = limits_.max_seq_len;
    batch.query_start_loc = query_start_.data();
    batch.seq_lens = seq_lens_.data();
    batch.block_table = cache_->table();
    batch.block_table_stride = cache_->table_stride();
    return batch;
  }

  // metadata_update and forward_mqa with the latent and rope parts side by side in `q`.
  std::vector<float> decode(const anyattn_batch& batch, const anyattn_tensor& q) {
    ok(backend_.metadata_update(metadata_->object, &batch, nullptr, text_.get()));
    const int64_t rows = batch.num_tokens, heads = test_.num_q_heads;
    TestTensor out({rows, heads, test_.rank}, test_.dtype), lse({rows, heads}, ANYATTN_DTYPE_FLOAT32);
    out.poison();
    int64_t latent_shape[3] = {rows, heads, test_.rank}, rope_shape[3] = {rows, heads, test_.rope};
    anyattn_mqa_args args{};
    args.struct_size = ANYATTN_MQA_ARGS_SIZE;
    args.lse_base = test_.lse_base;
    args.softmax_scale = kDecodeScale;
    args.q_latent = args.q_pe = q;
    args.q_latent.shape = latent_shape;
    args.q_pe.shape = rope_shape;
    args.q_pe.byte_offset += test_.rank * conf::dtype_bytes(test_.dtype);
    args.cache = cache_->get();
    args.out = out.get();
    args.lse = lse.get();
    args.scratch = scratch_->data();
    ok(backend_.forward_mqa(impl_->object, metadata_->object, &args, text_.get()));
    return out.floats();
  }

  void compare(const conf::HeadShape& shape, const conf::RowRules& rules, const std::vector<float>& q,
               const std::vector<float>& k, const std::vector<float>& v, size_t v_stride, const std::vector<float>& out,
               std::vector<float> lse) {
    conf::Reference reference;
    const size_t k_row = static_cast<size_t>(shape.num_kv_heads) * static_cast<size_t>(shape.head_size);
    const size_t v_row = static_cast<size_t>(shape.num_kv_heads) * static_cast<size_t>(shape.head_size_v);
    for (size_t r = 0; r < seq_lens_.size(); ++r) {
      const auto first = static_cast<size_t>(key_start_[r]);
      const conf::KeyReader reader{
          [&, first](int64_t key, float* into) { std::copy_n(&k[(first + static_cast<size_t>(key)) * k_row], k_row, into); },
          [&, first](int64_t key, float* into) {
            std::copy_n(&v[(first + static_cast<size_t>(key)) * v_stride], v_row, into);
          }};
      const int32_t query = query_start_[r + 1] - query_start_[r];
      for (int32_t i = 0; i < query; ++i)
        conf::attend_row(
            shape, rules, seq_lens_[r] - query + i, key_start_[r + 1] - key_start_[r],
            &q[static_cast<size_t>(query_start_[r] + i) * static_cast<size_t>(shape.num_q_heads * shape.head_size)], reader,
            test_.dtype, &reference);
    }
    bound_ = conf::bound_of(reference, test_.dtype);
    const conf::Comparison of_out = conf::compare(out, reference.exact, bound_.out, "out");
    CHECK_MESSAGE(of_out.ok(), of_out.failure << "\n  " << test_.describe());
    if (test_.lse_base == ANYATTN_LSE_BASE2)
      for (float& x : lse) x = static_cast<float>(x * std::log(2.0));
    const conf::Comparison of_lse = conf::compare(lse, reference.exact_lse, bound_.lse, "lse");
    CHECK_MESSAGE(of_lse.ok(), of_lse.failure << "\n  " << test_.describe());
    CHECK(scratch_->broken("scratch").empty());
    CHECK(persistent_->broken("persistent").empty());
  }

  static constexpr double kDecodeScale = 0.04;

  MlaCase test_;
  conf::Bound bound_;  // of the last comparison
  SmallHost host_;
  const anyattn_backend& backend_;
  uint64_t features_ = 0;
  anyattn_problem problem_{};
  anyattn_limits limits_{};
  std::vector<int32_t> query_start_, key_start_, seq_lens_;
  Specs specs_;
  std::unique_ptr<Owned<anyattn_impl>> impl_;
  std::unique_ptr<Guarded> scratch_, persistent_;
  std::unique_ptr<Owned<anyattn_metadata>> metadata_;
  std::unique_ptr<PagedCache> cache_;
  std::vector<float> latents_;
  ErrorText text_;
};

MlaCase random_mla(uint64_t seed) {
  conf::SplitMix64 dice(seed);
  const auto one_of = [&](auto... values) {
    const std::vector all{values...};
    return all[dice.below(all.size())];
  };
  const std::vector<std::string> isas = runnable_isas();
  MlaCase test;
  test.seed = seed;
  test.isa = isas[seed % isas.size()];
  test.num_q_heads = one_of(1u, 4u, 5u, 8u, 12u, 16u, 20u);
  test.block_size = one_of(1u, 16u, 24u, 64u);
  test.dtype = one_of(ANYATTN_DTYPE_FLOAT32, ANYATTN_DTYPE_FLOAT16, ANYATTN_DTYPE_BFLOAT16);
  test.kv_dtype = one_of(test.dtype, test.dtype, ANYATTN_DTYPE_BFLOAT16, ANYATTN_DTYPE_FLOAT32);
  test.num_workers = one_of(1u, 3u, 4u);
  test.lse_base = one_of(ANYATTN_LSE_NATURAL, ANYATTN_LSE_BASE2);
  test.requests.clear();
  for (uint64_t r = 0; r < 1 + dice.below(4); ++r) {
    const auto query = static_cast<int32_t>(1 + dice.below(6));
    test.requests.push_back({query, query + static_cast<int32_t>(dice.below(dice.below(4) == 0 ? 1500 : 100))});
  }
  if (dice.below(5) == 0) test.requests.push_back({1, 0});
  return test;
}

}  // namespace

TEST_CASE("mla_decode_stays_within_the_bound_for_odd_head_counts_and_many_tokens") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    MlaCase test = random_mla(seed);
    if (seed % 4 == 0) test.cp_world = 3, test.cp_rank = static_cast<uint32_t>(seed / 4 % 3);
    MlaRun run(test);
    run.store_and_update();
    run.check_mqa();
  }
}

TEST_CASE("mla_decode_of_many_tokens_equals_single_row_calls") {
  MlaCase test;
  test.num_q_heads = 8;
  test.rank = 512;
  test.rope = 64;
  test.requests = {{3, 5}, {3, 33}, {3, 64}, {3, 65}};
  MlaRun run(test);
  run.store_and_update();
  run.check_mqa();
  run.check_rows_alone();
}

TEST_CASE("mla_decode_takes_the_sizes_of_released_models") {
  for (const std::string& isa : runnable_isas()) {
    for (const auto& [heads, rank] : {std::pair{128u, 512u}, {16u, 512u}, {1u, 512u}, {40u, 256u}}) {
      MlaCase test;
      test.isa = isa;
      test.num_q_heads = heads;
      test.rank = rank;
      test.rope = 64;
      test.num_workers = 2;
      test.dtype = test.kv_dtype = ANYATTN_DTYPE_BFLOAT16;
      test.requests = {{1, 333}, {3, 65}};
      MlaRun run(test);
      run.store_and_update();
      run.check_mqa();
    }
  }
}

TEST_CASE("mla_context_gather_gives_stored_rows_and_refuses_rows_that_are_not_there") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MlaRun run(random_mla(seed));
    run.store_and_update();
    run.check_gather();
  }
}

TEST_CASE("mla_expanded_prefill_stays_within_the_bound") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    MlaCase test = random_mla(seed);
    test.causal = seed % 3 != 0;
    test.requests = {{70, 75}, {1, 40}, {9, 9}, {3, 0}};
    MlaRun(test).check_mha();
  }
  for (const auto& [nope, v] : {std::pair{128u, 128u}, {192u, 256u}}) {
    MlaCase test;
    test.rope = 64;
    test.nope = nope;
    test.v_head_dim = v;
    test.num_q_heads = 3;
    test.dtype = ANYATTN_DTYPE_BFLOAT16;
    test.requests = {{66, 200}};
    MlaRun(test).check_mha();
  }
}
