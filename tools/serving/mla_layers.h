// SPDX-License-Identifier: Apache-2.0
// Layers over a shared latent: decode absorbed (forward_mqa), prefill expanded and merged over context chunks (forward_mha).
// Included by layer_kind. Does the engine's part of MLA: projections, chunk plan, merging. Steps that only decode run as replays
// of captured graphs; launches of a prefill follow from its step.
#pragma once

#include <deque>

#include "serving/layer_kind.h"
#include "serving/step_graphs.h"
#include "serving/up_projection.h"

namespace anyattn::tools {

class MlaLayers final : public LayerKind {
 public:
  MlaLayers(const KindSpec& spec, const LayerOptions& options, Group group);

  bool takes_as_replay(StepBatch& batch) override;
  void replay(StepBatch& batch, AttentionTimer& timer) override;
  size_t num_graphs() const override { return graphs_ ? graphs_->size() : 0; }
  void draw(const StepBatch& batch, uint32_t layer) override;
  void attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) override;
  RowCheck check(const StepBatch& batch, uint32_t layer, uint32_t token) override;
  Work work(const StepRow& row) const override;

 private:
  // What a row of the new tokens is drawn as; both stand in the cache.
  static constexpr uint64_t kLatentRow = 4;
  static constexpr uint64_t kRopeRow = 5;

  // The chunk plan of this step's prefill part.
  struct ContextPlan {
    uint32_t num_chunks = 0;
    std::vector<uint32_t> rows, max_rows;  // [num_chunks]
    DeviceBuffer row_start_loc;            // [num_chunks, num_reqs + 1] i32
    DeviceBuffer context_start;            // [num_chunks, num_reqs] i32
  };
  // One partial result of the prefill rows.
  struct Part {
    DeviceBuffer out;  // [prefill tokens, num_q_heads, v_head_dim]
    DeviceBuffer lse;  // [prefill tokens, num_q_heads] f32
  };
  // A layer's new tokens, and its decode.
  struct Rows {
    DeviceBuffer kv_c, k_pe;                  // [tokens, rank], [tokens, rope]
    DeviceBuffer q_latent, q_pe, latent_out;  // [tokens, heads, rank | rope | rank]
  };
  struct Layer {
    UpProjection keys;    // W_UK
    UpProjection values;  // W_UV
  };

  void make_graphs();
  void reserve_decode(Rows& rows, size_t tokens) const;
  Rows& rows(uint32_t layer) { return replayed_ ? rows_of_layer_[layer] : shared_rows_; }
  void absorb_queries(const StepBatch& batch, uint32_t layer);
  void plan_context(const StepBatch& batch);
  void store(Group& group, const StepBatch& batch, uint32_t layer, uint32_t num_tokens);
  void decode(Group& group, uint32_t layer, uint32_t num_tokens);
  void prefill(const StepBatch& batch, uint32_t layer, AttentionTimer& timer);
  void gather(const StepBatch& batch, uint32_t layer, uint32_t chunk);
  void expand(uint32_t layer, const DeviceBuffer& kv_c, size_t first_row, const DeviceBuffer& k_pe, uint32_t num_rows);
  void attend_expanded(const StepBatch& batch, uint32_t num_keys, const int32_t* key_start_loc, uint32_t max_keys, bool causal,
                       size_t part);
  void merge(const StepBatch& batch);
  RowCheck check_decode(const StepBatch& batch, uint32_t layer, uint32_t token);
  RowCheck check_prefill(const StepBatch& batch, uint32_t layer, uint32_t token);
  void redraw_latent(const StepRow& row, uint32_t layer, uint32_t position, bool stored, float* kv_c, float* k_pe) const;
  KeysOfHeads expanded_keys(const StepRow& row, uint32_t layer, uint32_t first_position, bool stored) const;
  void load_row(const DeviceBuffer& buffer, size_t row, size_t count, float* out) const;

  uint32_t heads_, rank_, nope_, rope_, width_v_;
  uint32_t workspace_rows_;
  float q_amplitude_;
  std::vector<Layer> layers_;
  Rows shared_rows_;                          // of the layer that is at work
  DeviceBuffer q_nope_;                       // decode, host only: [tokens, heads, nope]
  DeviceBuffer q_;                            // prefill: [tokens, heads, nope + rope]
  DeviceBuffer context_kv_c_, context_k_pe_;  // one chunk as gathered
  DeviceBuffer k_, v_;                        // expanded: [rows, heads, nope + rope | v]
  std::unique_ptr<StepGraphs> graphs_;        // of decode steps; null: none
  std::vector<Rows> rows_of_layer_;           // [layers], where there are graphs
  bool replayed_ = false;                     // this step
  ContextPlan plan_;
  std::deque<Part> parts_;
};

}  // namespace anyattn::tools
