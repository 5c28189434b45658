// SPDX-License-Identifier: Apache-2.0
// One kind of layers at work: its group, the inputs that are made up for it, and the recomputation of single rows.
// Included by run; plain_layers and mla_layers are the two kinds there are.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyattn/conformance/cache_format.h"
#include "anyattn/conformance/reference.h"
#include "anyattn/kv_pool.h"
#include "serving/attention_timer.h"
#include "serving/device_buffer.h"
#include "serving/draw.h"
#include "serving/model_kinds.h"
#include "serving/step_batch.h"

namespace anyattn::tools {

struct LayerOptions {
  const Place* place = nullptr;
  std::string device;  // for the selection: "cpu", "cuda:0"
  anyattn_limits limits{};
  uint64_t seed = 0;
  bool graphs = false;  // steps run as replays of captured graphs where the group's level and the step's size allow
};

// What one layer has to do for one request's rows of a step.
struct Work {
  double flops = 0;
  double bytes = 0;
};

// How far a recomputed row was from its bound.
struct RowCheck {
  double error_over_bound = 0;
  std::string failure;  // empty, or one sentence
};

class LayerKind {
 public:
  // Makes the group; throws Failure with every candidate's reasons where nobody takes the problem.
  static std::unique_ptr<LayerKind> make(const KindSpec& spec, const LayerOptions& options);
  virtual ~LayerKind() = default;

  const KindSpec& spec() const { return spec_; }
  const anyattn_group_info& info() const { return info_; }
  std::string backends() const;  // "CPU_ATTN", or both where prefill and decode differ

  // The pool's group that holds this kind's blocks.
  void attach(const anyattn_kv_pool* pool, uint32_t pool_group);
  // Once a step, timed.
  void update(const StepBatch& batch, AttentionTimer& timer);
  // Whether the step runs as one replay of all layers: then draw is called for each layer and replay once; else update, and draw
  // and attend for each layer. The default never does.
  virtual bool takes_as_replay(StepBatch& /*batch*/) { return false; }
  virtual void replay(StepBatch& /*batch*/, AttentionTimer& /*timer*/) {}
  virtual size_t num_graphs() const { return 0; }  // captured so far
  // A layer's inputs, then its attention; what is attention is timed.
  virtual void draw(const StepBatch& batch, uint32_t layer) = 0;
  virtual void attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) = 0;
  // Recomputes one token of the layer that attend was last called for (of any layer after a replay), all heads, from what its
  // keys and values must be.
  virtual RowCheck check(const StepBatch& batch, uint32_t layer, uint32_t token) = 0;
  virtual Work work(const StepRow& row) const = 0;

 protected:
  LayerKind(const KindSpec& spec, const LayerOptions& options, Group group);

  const Place& place() const { return *options_.place; }
  uint64_t row_key(uint64_t what, uint32_t layer, int32_t token_id, uint32_t position) const {
    return mix({options_.seed, 3, spec_.index, what, layer, static_cast<uint32_t>(token_id), position});
  }
  // Draws one row of `count` values of `dtype` for each token, into `buffer`, and uploads it.
  void draw_rows(const StepBatch& batch, uint32_t first_token, uint32_t num_tokens, uint64_t what, uint32_t layer,
                 float amplitude, size_t count, const DeviceBuffer& buffer) const;
  // Values [first, first + count) of the same row as float32, rounded to the query's dtype and, where `stored` is given, as a
  // reader of the cache gets them: then whole pieces.
  struct Stored {
    conformance::RowKind kind;
    size_t size;           // of the pieces that the cache stores on their own: a head's
    int kv_lora_rank = 0;  // values of the piece that are latent
  };
  void redraw_row(uint64_t what, uint32_t layer, int32_t token_id, uint32_t position, float amplitude, size_t first,
                  size_t count, const Stored* stored, float* out) const;
  uint32_t pool_group() const { return pool_group_; }
  uint32_t dtype() const { return spec_.problem.q_dtype; }
  size_t dtype_bytes() const { return conformance::dtype_bytes(dtype()); }
  const conformance::CacheFormat& cache_format() const { return cache_format_; }

  const KindSpec& spec_;
  LayerOptions options_;
  Group group_;
  anyattn_group_info info_;
  std::vector<anyattn_cache> caches_;  // [layers]

 private:
  const conformance::CacheFormat& cache_format_;
  uint32_t pool_group_ = 0;
};

// metadata_mode of runtime.h.
enum class MetadataMode : uint32_t { kNormal = 0, kGraphCapture = 2 };

// The group of a kind's layers; throws RuntimeError with every candidate's reasons where nobody takes the problem.
Group make_group(const KindSpec& spec, const LayerOptions& options, const anyattn_limits& limits, MetadataMode mode);

// Between float32 and `dtype` as memory holds it.
void store_values(uint32_t dtype, const float* from, size_t count, void* to);
void load_values(uint32_t dtype, const void* from, size_t count, float* to);
// In place, as memory of that dtype holds them.
void round_values(uint32_t dtype, float* values, size_t count);

// Uniform queries of this amplitude give scores of standard deviation 2 over keys uniform in [-1, 1): softmaxes that prefer
// some keys, as real ones do.
float query_amplitude(double softmax_scale, uint32_t head_size);

// Reads the keys and values of kv heads [first, first + count) alone.
using KeysOfHeads = std::function<conformance::KeyReader(uint32_t first, uint32_t count)>;

// attend_row with the heads dealt to the runtime's threads: same numbers, one Reference of one row.
conformance::Reference reference_row(const Runtime& runtime, const conformance::HeadShape& shape,
                                     const conformance::RowRules& rules, int64_t position, int64_t num_keys, const float* q,
                                     const KeysOfHeads& keys, uint32_t q_dtype);

// The verdict on one row of `values` (of out_dtype) against its reference.
RowCheck judge_row(const conformance::Reference& reference, const void* values, uint32_t out_dtype, const std::string& who);

}  // namespace anyattn::tools
