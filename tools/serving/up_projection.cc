// SPDX-License-Identifier: Apache-2.0
#include "serving/up_projection.h"

#include <algorithm>

#include "anyattn/conformance/vector_widths.h"
#include "serving/draw.h"

namespace anyattn::tools {

// Uniform weights of variance 1 / kDiagonals keep the variance of what they are applied to.
constexpr float kAmplitude = 0.8660254f;  // sqrt(3 / 4)

UpProjection::UpProjection(uint64_t key, uint32_t num_heads, uint32_t rank, uint32_t width)
    : num_heads_(num_heads), rank_(rank), width_(width), weights_(size_t{num_heads} * kDiagonals * width) {
  offsets_.reserve(size_t{num_heads} * kDiagonals);
  for (uint32_t i = 0; i < num_heads * kDiagonals; ++i) offsets_.push_back(static_cast<uint32_t>(mix({key, i}) % rank));
  draw_uniform(mix({key}), kAmplitude, weights_.size(), weights_.data());
}

ANYATTN_VECTOR_WIDTHS void UpProjection::expand(const float* latent, float* padded, uint32_t first, uint32_t count, float* out,
                                                uint32_t out_stride) const {
  std::copy_n(latent, rank_, padded);
  std::copy_n(latent, width_, padded + rank_);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t h = first + i;
    const float* w = weights_.data() + h * kDiagonals * width_;
    const uint32_t* offset = offsets_.data() + h * kDiagonals;
    const float *x0 = padded + offset[0], *x1 = padded + offset[1], *x2 = padded + offset[2], *x3 = padded + offset[3];
    float* row = out + size_t{i} * out_stride;
    for (uint32_t p = 0; p < width_; ++p) {
      row[p] = w[p] * x0[p] + w[width_ + p] * x1[p] + w[2 * width_ + p] * x2[p] + w[3 * width_ + p] * x3[p];
    }
  }
}

void UpProjection::absorb(const float* q, uint32_t q_stride, float* padded, float* latent) const {
  for (uint32_t h = 0; h < num_heads_; ++h) {
    std::fill_n(padded, rank_ + width_, 0.0f);
    for (uint32_t s = 0; s < kDiagonals; ++s) {
      const float* w = weights_.data() + (size_t{h} * kDiagonals + s) * width_;
      float* x = padded + offsets_[size_t{h} * kDiagonals + s];
      for (uint32_t p = 0; p < width_; ++p) x[p] += w[p] * q[size_t{h} * q_stride + p];
    }
    for (uint32_t p = 0; p < width_; ++p) padded[p] += padded[rank_ + p];
    std::copy_n(padded, rank_, latent + size_t{h} * rank_);
  }
}

}  // namespace anyattn::tools
