// SPDX-License-Identifier: Apache-2.0
#include "llama/model.h"

#include <cmath>
#include <stdexcept>

namespace anyattn::tools::llama {
namespace {

constexpr float kRmsEpsilon = 1e-5f;
constexpr double kRopeBase = 10000.0;

// out[r] = <matrix[r], x>, matrix [out.size(), x.size()].
void matvec(std::span<const float> matrix, std::span<const float> x, std::span<float> out) {
  const float* row = matrix.data();
  for (float& value : out) {
    float sum = 0;
    for (const float element : x) sum += *row++ * element;
    value = sum;
  }
}

void rms_norm(std::span<const float> x, std::span<const float> weight, std::span<float> out) {
  float squares = 0;
  for (const float value : x) squares += value * value;
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(x.size()) + kRmsEpsilon);
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * inverse * weight[i];
}

// Turns the pairs (2i, 2i + 1) of every head by position * base^(-2i / head_size). The angle is formed in double: at position 511
// a float angle is off by up to 3e-5.
void rotate(std::span<float> heads, int position, int head_size) {
  for (size_t i = 0; i < heads.size(); i += 2) {
    const double angle = position * std::pow(kRopeBase, -static_cast<double>(i % head_size) / head_size);
    const float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    const float even = heads[i], odd = heads[i + 1];
    heads[i] = even * c - odd * s;
    heads[i + 1] = even * s + odd * c;
  }
}

void add(std::span<float> to, std::span<const float> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

std::span<float> row(std::vector<float>& rows, int index, int width) {
  return {rows.data() + static_cast<size_t>(index) * width, static_cast<size_t>(width)};
}

// The matrix or vector of `layer` in an array that holds one for each layer.
std::span<const float> of_layer(std::span<const float> all, int layer, int num_layers) {
  const size_t size = all.size() / num_layers;
  return all.subspan(layer * size, size);
}

}  // namespace

Model::Model(const Checkpoint& checkpoint, Attention& attention, int max_tokens)
    : shape_(checkpoint.shape()), weights_(checkpoint.weights()), attention_(attention), max_tokens_(max_tokens) {
  const auto rows = [max_tokens](int width) { return std::vector<float>(static_cast<size_t>(max_tokens) * width); };
  residual_ = rows(shape_.dim);
  q_ = rows(shape_.dim);
  k_ = rows(shape_.kv_dim());
  v_ = rows(shape_.kv_dim());
  attended_ = rows(shape_.dim);
  logits_ = rows(shape_.vocab_size);
  normed_.resize(shape_.dim);
  projected_.resize(shape_.dim);
  gate_.resize(shape_.hidden_dim);
  up_.resize(shape_.hidden_dim);
}

std::span<const float> Model::forward(std::span<const int> tokens, int position) {
  const int num_tokens = static_cast<int>(tokens.size());
  if (num_tokens < 1 || num_tokens > max_tokens_ || position + num_tokens > shape_.max_seq_len) {
    throw std::out_of_range("llama: more tokens than the model was made for");
  }
  for (int t = 0; t < num_tokens; ++t) {
    const auto embedding = weights_.token_embedding.subspan(static_cast<size_t>(tokens[t]) * shape_.dim, shape_.dim);
    std::copy(embedding.begin(), embedding.end(), row(residual_, t, shape_.dim).begin());
  }
  attention_.begin_step(position, num_tokens);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    attention_block(layer, num_tokens, position);
    feed_forward_block(layer, num_tokens);
  }
  for (int t = 0; t < num_tokens; ++t) {
    rms_norm(row(residual_, t, shape_.dim), weights_.final_norm, normed_);
    matvec(weights_.classifier, normed_, row(logits_, t, shape_.vocab_size));
  }
  return std::span<const float>(logits_).first(static_cast<size_t>(num_tokens) * shape_.vocab_size);
}

void Model::attention_block(int layer, int num_tokens, int position) {
  const int layers = shape_.num_layers, dim = shape_.dim, kv_dim = shape_.kv_dim();
  for (int t = 0; t < num_tokens; ++t) {
    rms_norm(row(residual_, t, dim), of_layer(weights_.attention_norm, layer, layers), normed_);
    matvec(of_layer(weights_.wq, layer, layers), normed_, row(q_, t, dim));
    matvec(of_layer(weights_.wk, layer, layers), normed_, row(k_, t, kv_dim));
    matvec(of_layer(weights_.wv, layer, layers), normed_, row(v_, t, kv_dim));
    rotate(row(q_, t, dim), position + t, shape_.head_size());
    rotate(row(k_, t, kv_dim), position + t, shape_.head_size());
  }
  const size_t q_size = static_cast<size_t>(num_tokens) * dim, kv_size = static_cast<size_t>(num_tokens) * kv_dim;
  attention_.attend(layer, std::span(q_).first(q_size), std::span(k_).first(kv_size), std::span(v_).first(kv_size),
                    std::span(attended_).first(q_size));
  for (int t = 0; t < num_tokens; ++t) {
    matvec(of_layer(weights_.wo, layer, layers), row(attended_, t, dim), projected_);
    add(row(residual_, t, dim), projected_);
  }
}

void Model::feed_forward_block(int layer, int num_tokens) {
  const int layers = shape_.num_layers;
  for (int t = 0; t < num_tokens; ++t) {
    const std::span<float> residual = row(residual_, t, shape_.dim);
    rms_norm(residual, of_layer(weights_.ffn_norm, layer, layers), normed_);
    matvec(of_layer(weights_.w1, layer, layers), normed_, gate_);
    matvec(of_layer(weights_.w3, layer, layers), normed_, up_);
    for (size_t i = 0; i < gate_.size(); ++i) gate_[i] = gate_[i] / (1.0f + std::exp(-gate_[i])) * up_[i];
    matvec(of_layer(weights_.w2, layer, layers), gate_, projected_);
    add(residual, projected_);
  }
}

}  // namespace anyattn::tools::llama
