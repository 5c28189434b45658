// SPDX-License-Identifier: Apache-2.0
// A reload while an engine holds captured graphs: the calls in them stay the old plugin's, on the device without hardware.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "anyattn/backend.h"
#include "anyattn/streams.hpp"
#include "temp_dir.h"

namespace {

namespace fs = std::filesystem;

constexpr anyattn::Device kPretended{ANYATTN_DEVICE_CUDA, 0};
constexpr int kHeads = 2, kDim = 64, kBlocks = 2;

// A folder with the pretended device's plugin. It is replaced as an installer does it, by another content of the same code.
class Folder {
 public:
  Folder() {
    fs::create_directories(dir_.folder() / "plugins");
    install("");
    std::ofstream(config()) << "version: 1\nplugins: {search: [plugins]}\nprobe: {cache: verdicts}\n";
  }
  std::string config() const { return (dir_.folder() / "config.yaml").string(); }
  void install(const std::string& salt) const {
    const fs::path scratch = dir_.folder() / "incoming";
    fs::copy_file(fs::path(ANYATTN_PRETEND_DIR) / "anyattn_pretend.so", scratch);
    std::ofstream(scratch, std::ios::app | std::ios::binary) << salt;
    fs::rename(scratch, dir_.folder() / "plugins" / "anyattn_pretend.so");
  }

 private:
  anyattn::testing::TempDir dir_;
};

// One decode row in a graph. Every value of the cache is the same, so that is what a replay writes.
class CapturedRow {
 public:
  explicit CapturedRow(const anyattn::Runtime& runtime)
      : group_(runtime, options()),
        stream_(runtime, kPretended),
        q_(runtime, kPretended, kRowBytes),
        out_(runtime, kPretended, kRowBytes),
        pages_(runtime, kPretended, kBlocks * group_.info().spec->block_bytes) {
    cache_ = {ANYATTN_CACHE_SIZE, 0, pages_.get(), group_.info().spec->block_bytes, kBlocks, group_.info().spec};
    std::fill_n(static_cast<float*>(q_.get()), kHeads * kDim, 0.5f);
    update();
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.softmax_scale = 1;
    const anyattn::Tensor q(q_.get(), ANYATTN_DTYPE_FLOAT32, {1, kHeads, kDim}, kPretended.kind);
    const anyattn::Tensor out(out_.get(), ANYATTN_DTYPE_FLOAT32, {1, kHeads, kDim}, kPretended.kind);
    args.q = q;
    args.out = out;
    args.cache = &cache_;
    args.stream = stream_.get();
    group_.forward(ANYATTN_PHASE_BOTH, args);  // lends the stream its scratch, which no capture may
    graph_ = anyattn::DeviceGraph(runtime, kPretended, stream_.get(), [&] { group_.forward(ANYATTN_PHASE_BOTH, args); });
  }

  float replay(float value) {
    std::fill_n(static_cast<float*>(pages_.get()), pages_.bytes() / sizeof(float), value);
    float* out = static_cast<float*>(out_.get());
    std::fill_n(out, kHeads * kDim, -1.0f);
    update();
    graph_.launch(stream_.get());
    return std::all_of(out, out + kHeads * kDim, [&](float one) { return one == out[0]; }) ? out[0] : -2;
  }

 private:
  static constexpr uint64_t kRowBytes = kHeads * kDim * sizeof(float);

  static anyattn::Group::Options options() {
    static const anyattn::Problem problem = [] {
      anyattn::Problem made;
      made.fields.num_q_heads = made.fields.num_kv_heads = kHeads;
      made.fields.head_size = made.fields.head_size_v = kDim;
      made.fields.q_dtype = made.fields.out_dtype = ANYATTN_DTYPE_FLOAT32;
      made.kv_cache_dtype("auto");
      return made;
    }();
    anyattn::Group::Options options;
    options.problem = problem.view();
    options.limits = {ANYATTN_LIMITS_SIZE, 1, 1, 1, 16, 0};
    options.device = "cuda:0";
    options.backend = "QUEUED_ATTN";
    options.metadata_mode = ANYATTN_METADATA_GRAPH_CAPTURE;
    return options;
  }

  void update() {
    static const int32_t starts[] = {0, 1}, lens[] = {3}, table[] = {1};
    anyattn_batch batch{};
    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = batch.num_tokens = batch.max_query_len = 1;
    batch.max_seq_len = 3;
    batch.query_start_loc = batch.query_start_loc_host = starts;
    batch.seq_lens = batch.seq_lens_host = lens;
    batch.block_table = table;
    batch.block_table_stride = 1;
    group_.update(ANYATTN_PHASE_BOTH, batch, stream_.get());
  }

  anyattn::Group group_;
  anyattn::DeviceStream stream_;
  anyattn::DeviceMemory q_, out_, pages_;
  anyattn_cache cache_{};
  anyattn::DeviceGraph graph_;
};

int draining(const anyattn::Runtime& runtime) {
  const nlohmann::json list = nlohmann::json::parse(runtime.list());
  return static_cast<int>(std::count_if(list["plugins"].begin(), list["plugins"].end(),
                                        [](const nlohmann::json& plugin) { return plugin["state"] == "draining"; }));
}

TEST_CASE("graphs_captured_before_a_reload_replay_beside_those_of_the_new_plugin") {
  const Folder folder;
  const anyattn::Runtime runtime({folder.config(), "", "error", 1});
  runtime.resolve_device("cuda:0");
  std::optional<CapturedRow> old(std::in_place, runtime);
  CHECK(old->replay(1) == 1);
  CHECK(draining(runtime) == 0);

  folder.install("another content");
  runtime.reload();
  CapturedRow young(runtime);

  CHECK(draining(runtime) == 1);
  CHECK(old->replay(2) == 2);
  CHECK(young.replay(3) == 3);
  CHECK(old->replay(4) == 4);
  old.reset();
  CHECK(young.replay(5) == 5);
  CHECK(draining(runtime) == 1);  // the device's provider is of that file too, and stays the first one
}

}  // namespace
