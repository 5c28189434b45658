// SPDX-License-Identifier: Apache-2.0
// W_UK or W_UV of one MLA layer: from the shared latent to one head's rows, and back for absorbed queries.
// Included by mla_layers and its tests. Drawn from a seed; knows no tensor and no device.
//
// Each head's matrix [rank, width] has kDiagonals non-zero diagonals: out[p] = sum_s w[s][p] * latent[(offset[s] + p) mod rank].
// A dense one would cost 33 MFLOP a token for DeepSeek-V3 and hide the attention it feeds; attention cannot tell the two apart.
#pragma once

#include <cstdint>
#include <vector>

namespace anyattn::tools {

class UpProjection {
 public:
  static constexpr uint32_t kDiagonals = 4;

  // width <= rank.
  UpProjection(uint64_t key, uint32_t num_heads, uint32_t rank, uint32_t width);

  // out[i * out_stride + p] for heads first + i, i < count, from one latent row [rank]; `padded` is scratch of rank + width values.
  void expand(const float* latent, float* padded, uint32_t first, uint32_t count, float* out, uint32_t out_stride) const;
  // latent[h * rank + l] = sum_p q[h * q_stride + p] * W_h[l][p]: so that absorbed . kv_c = q . expand(kv_c).
  void absorb(const float* q, uint32_t q_stride, float* padded, float* latent) const;

 private:
  uint32_t num_heads_, rank_, width_;
  std::vector<uint32_t> offsets_;  // [heads, kDiagonals]
  std::vector<float> weights_;     // [heads, kDiagonals, width]
};

}  // namespace anyattn::tools
