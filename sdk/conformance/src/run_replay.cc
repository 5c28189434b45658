// SPDX-License-Identifier: Apache-2.0
#include "run_replay.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "batch.h"
#include "case_data.h"
#include "failure.h"
#include "outputs.h"
#include "plain_call.h"

namespace anyattn::conformance {
namespace {

// Everything a captured call points at, sized by the limits and at addresses that stay.
class Arena {
 public:
  Arena(Session& session, const Case& c)
      : session_(session),
        c_(c),
        limits_(session.limits()),
        stride_(int64_t{limits_.max_blocks_per_req} + 1),
        cache_memory_(uint64_t{limits_.max_num_reqs} * limits_.max_blocks_per_req, session.layout().spec()->block_bytes, {}),
        starts_("query_start_loc", (limits_.max_num_reqs + 1) * sizeof(int32_t), Fill::kZero),
        seq_lens_("seq_lens", limits_.max_num_reqs * sizeof(int32_t), Fill::kZero),
        table_("block_table", static_cast<size_t>(stride_) * limits_.max_num_reqs * sizeof(int32_t), Fill::kZero),
        q_("q", c.dtype, limits_.max_num_tokens, {c.num_q_heads, c.head_size}),
        out_("out", out_dtype_of(c), limits_.max_num_tokens, {c.num_q_heads, width()}),
        lse_("lse", ANYATTN_DTYPE_FLOAT32, limits_.max_num_tokens, {c.num_q_heads}) {
    cache_ = {.struct_size = ANYATTN_CACHE_SIZE,
              .reserved = 0,
              .base = cache_memory_.lent(),
              .block_stride_bytes = cache_memory_.stride(),
              .num_blocks = cache_memory_.num_blocks(),
              .spec = session.layout().spec()};
  }

  int64_t width() const { return c_.head_size_v ? c_.head_size_v : c_.head_size; }

  // Writes the batch: other lengths, and blocks in another order each time.
  void fill(const Case& batch, const PlainData& data, uint64_t seed) {
    for (int64_t id : cache_memory_.used()) std::memset(cache_memory_.block(id), 0xff, cache_memory_.stride());
    std::vector<int64_t> ids(cache_memory_.num_blocks());
    std::iota(ids.begin(), ids.end(), int64_t{0});
    SplitMix64 generator(seed);
    for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[generator.below(i)]);
    std::fill_n(table_.as<int32_t>(), table_.size() / sizeof(int32_t), kForbiddenBlock);
    const auto block_size = static_cast<int64_t>(session_.block_size());
    size_t taken = 0;
    int32_t longest_query = 1, longest = 1;
    starts_.as<int32_t>()[0] = 0;
    for (size_t r = 0; r < batch.lens.size(); ++r) {
      starts_.as<int32_t>()[r + 1] = data.query_start_loc[r + 1];
      seq_lens_.as<int32_t>()[r] = batch.lens[r].key_len;
      longest_query = std::max(longest_query, batch.lens[r].query_len);
      longest = std::max(longest, batch.lens[r].key_len);
      for (int64_t key = 0; key < batch.lens[r].key_len; ++key) {
        if (key % block_size == 0)
          table_.as<int32_t>()[static_cast<int64_t>(r) * stride_ + key / block_size] = static_cast<int32_t>(ids[taken++]);
        store_key(data, data.key_row(r, key), ids[taken - 1], key % block_size);
      }
    }
    std::vector<float> rows(data.q);
    rows.resize(static_cast<size_t>(limits_.max_num_tokens) * static_cast<size_t>(c_.num_q_heads * c_.head_size),
                std::numeric_limits<float>::quiet_NaN());
    q_.write(rows);
    num_tokens_ = data.num_tokens;
    view_ = {};
    view_.struct_size = ANYATTN_BATCH_SIZE;
    view_.num_reqs = static_cast<uint32_t>(batch.lens.size());
    view_.num_tokens = static_cast<uint32_t>(num_tokens_);
    view_.max_query_len = static_cast<uint32_t>(longest_query);
    view_.max_seq_len = static_cast<uint32_t>(longest);
    view_.query_start_loc = starts_.lent_as<int32_t>();
    view_.seq_lens = seq_lens_.lent_as<int32_t>();
    view_.block_table = table_.lent_as<int32_t>();
    view_.block_table_stride = stride_;
    view_.shared_prefix_len = static_cast<uint32_t>(batch.shared_prefix);
  }

  const anyattn_batch& batch() const { return view_; }

  // The capture's own call; rows are those of the limits, whatever batch comes later.
  int32_t forward(void* scratch, void* stream, const PlainData& data, anyattn_error* error) {
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.lse_base = base_of(c_);
    args.softmax_scale = data.softmax_scale;
    args.q = q_.view();
    args.out = out_.view();
    if (wants_lse(c_)) args.lse = lse_.view();
    args.cache = &cache_;
    args.scratch = scratch;
    args.stream = stream;
    return session_.subject().backend.forward(session_.impl(), session_.metadata(), &args, error);
  }

  void poison() {
    const auto rows = static_cast<size_t>(limits_.max_num_tokens) * static_cast<size_t>(c_.num_q_heads);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    out_.write(std::vector<float>(rows * static_cast<size_t>(width()), nan));
    lse_.write(std::vector<float>(rows, nan));
  }

  Outputs read() const {
    Outputs got{out_.read(), wants_lse(c_) ? lse_.read() : std::vector<float>{}};
    const auto rows = static_cast<size_t>(num_tokens_) * static_cast<size_t>(c_.num_q_heads);
    got.out.resize(rows * static_cast<size_t>(width()));
    if (!got.lse.empty()) got.lse.resize(rows);
    return got;
  }

 private:
  void store_key(const PlainData& data, int64_t row, int64_t block, int64_t slot) {
    std::byte* base = cache_memory_.block(block);
    const auto put = [&](uint32_t role, const std::vector<float>& from, int64_t size) {
      for (int64_t head = 0; head < c_.num_kv_heads; ++head) {
        for (int64_t d = 0; d < size; ++d) {
          store_element(c_.dtype, base + session_.layout().offset(role, slot, head, d),
                        from[static_cast<size_t>((row * c_.num_kv_heads + head) * size + d)]);
        }
      }
    };
    put(ANYATTN_PLANE_K, data.k, c_.head_size);
    put(ANYATTN_PLANE_V, data.v, width());
  }

  Session& session_;
  const Case& c_;
  const anyattn_limits& limits_;
  int64_t stride_;
  CacheMemory cache_memory_;
  anyattn_cache cache_{};
  Block starts_, seq_lens_, table_;
  Tensor q_, out_, lse_;
  anyattn_batch view_{};
  int64_t num_tokens_ = 0;
};

// A stream and what was captured on it.
class Capture {
 public:
  explicit Capture(const Device& device) : device_(device) {
    ErrorText error;
    error.expect_ok(device_.table().stream_create(device_.ordinal(), &stream_, error.get()), "stream_create");
  }
  ~Capture() {
    if (graph_) device_.table().graph_destroy(device_.ordinal(), graph_);
    device_.table().stream_destroy(device_.ordinal(), stream_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  void* stream() const { return stream_; }
  template <class Call>
  void record(Call&& call) {
    const auto& table = device_.table();
    ErrorText error, of_call;
    error.expect_ok(table.graph_capture_begin(device_.ordinal(), stream_, error.get()), "graph_capture_begin");
    const int32_t status = call(of_call.get());
    const int32_t end = table.graph_capture_end(device_.ordinal(), stream_, &graph_, error.get());
    of_call.expect_ok(status, "forward under capture");
    error.expect_ok(end, "graph_capture_end");
  }
  void replay() const {
    ErrorText error;
    error.expect_ok(device_.table().graph_launch(device_.ordinal(), graph_, stream_, error.get()), "graph_launch");
    error.expect_ok(device_.table().stream_synchronize(device_.ordinal(), stream_, error.get()), "the replay");
  }

 private:
  const Device& device_;
  void* stream_ = nullptr;
  void* graph_ = nullptr;
};

}  // namespace

void run_replay(const Subject& subject, const Case& c, const std::function<Case()>& next, CaseResult* result) {
  if (!subject.device || !subject.device->table().graph_capture_begin) throw NotOffered("the device captures no graphs");
  Session session(subject, c, 0);
  Arena arena(session, c);
  Capture capture(*subject.device);
  for (int i = 0; i < c.random; ++i) {
    const Case batch = next();
    const PlainData data = make_plain_data(batch, subject.model_file);
    arena.fill(batch, data, 7 + static_cast<uint64_t>(i));
    session.update(arena.batch());
    void* scratch = session.scratch();
    arena.poison();
    upload_all();
    subject.device->wait();
    if (i == 0) capture.record([&](anyattn_error* error) { return arena.forward(scratch, capture.stream(), data, error); });
    capture.replay();
    download_all();
    try {
      judge(arena.read(), plain_reference(batch, data, 0), base_of(c), out_dtype_of(c), "", result);
    } catch (const Failure& failure) {
      throw Failure(text("replay %d of %d, %s: ", i, c.random, case_text(batch).c_str()) + failure.what());
    }
  }
}

}  // namespace anyattn::conformance
