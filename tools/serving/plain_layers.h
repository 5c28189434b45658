// SPDX-License-Identifier: Apache-2.0
// Layers with keys and values of their own: full, sliding and chunked. Included by layer_kind.
#pragma once

#include "serving/layer_kind.h"
#include "serving/step_graphs.h"

namespace anyattn::tools {

class PlainLayers final : public LayerKind {
 public:
  PlainLayers(const KindSpec& spec, const LayerOptions& options, Group group);

  bool takes_as_replay(StepBatch& batch) override;
  void replay(StepBatch& batch, AttentionTimer& timer) override;
  size_t num_graphs() const override;
  void draw(const StepBatch& batch, uint32_t layer) override;
  void attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) override;
  RowCheck check(const StepBatch& batch, uint32_t layer, uint32_t token) override;
  Work work(const StepRow& row) const override;

 private:
  // A layer's new rows: [tokens, heads, size].
  struct Rows {
    DeviceBuffer q, k, v, out;
  };
  Rows make_rows(size_t tokens) const;
  void make_graphs();
  const Rows& rows(uint32_t layer) const { return taken_by_ ? rows_of_layer_[layer] : shared_rows_; }
  void store(Group& group, const StepBatch& batch, uint32_t layer, uint32_t num_tokens);
  void forward(Group& group, uint32_t layer, uint32_t part, uint32_t first_token, uint32_t num_tokens);

  size_t q_row_, k_row_, v_row_, out_row_;  // values a token
  float q_amplitude_;
  Rows shared_rows_;                                 // of the layer that is at work
  DeviceBuffer sinks_, slopes_;                      // [num_q_heads] f32, where the problem has them
  std::vector<std::unique_ptr<StepGraphs>> graphs_;  // the first that takes a step has it
  std::vector<Rows> rows_of_layer_;                  // [layers], where there are graphs
  StepGraphs* taken_by_ = nullptr;                   // this step; null: call by call
};

}  // namespace anyattn::tools
