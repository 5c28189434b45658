// SPDX-License-Identifier: Apache-2.0
// Layers with keys and values of their own: full, sliding and chunked. Included by layer_kind.
#pragma once

#include "serving/layer_kind.h"

namespace anyattn::tools {

class PlainLayers final : public LayerKind {
 public:
  PlainLayers(const KindSpec& spec, const LayerOptions& options, Group group);

  void draw(const StepBatch& batch, uint32_t layer) override;
  void attend(const StepBatch& batch, uint32_t layer, AttentionTimer& timer) override;
  RowCheck check(const StepBatch& batch, uint32_t layer, uint32_t token) override;
  Work work(const StepRow& row) const override;

 private:
  void forward(uint32_t layer, uint32_t part, uint32_t first_token, uint32_t num_tokens);

  size_t q_row_, k_row_, v_row_, out_row_;  // values a token
  float q_amplitude_;
  DeviceBuffer q_, k_, v_, out_;
  DeviceBuffer sinks_, slopes_;  // [num_q_heads] f32, where the problem has them
};

}  // namespace anyattn::tools
