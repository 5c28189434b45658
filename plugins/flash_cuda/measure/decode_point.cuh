// SPDX-License-Identifier: Apache-2.0
// One problem and batch of decode on the device: its tensors and tables, its calls, its comparison with float32. Included by decode.cu.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_common/measure_graph.cuh"
#include "params.h"

namespace anyattn::measure {

using namespace anyattn::flash;

struct Shape {
  int heads = 32, kv_heads = 8, head_size = 128, page = 64;
  bool head_major = true;
  int window_left = -1, window_right = -1, causality = kCausal;
  float soft_cap = 0;
  bool sinks = false;
  int unowned_rows = 0;
  int out_dtype = kBF16;
  int scales = 0;  // of 8-bit codes: 0, 1 or kv_heads of them
  bool invariant = false;
  std::vector<int> lens, queries;
};

struct Plane {  // [page][k, v][...]
  int page, kv_heads, head_size;
  bool head_major;
  __host__ __device__ int64_t block() const { return 2ll * page * kv_heads * head_size; }
  __host__ __device__ int64_t token() const { return head_major ? head_size : kv_heads * head_size; }
  __host__ __device__ int64_t head() const { return head_major ? static_cast<int64_t>(page) * head_size : head_size; }
  __host__ __device__ int64_t at(int block_id, int slot, int h, int which) const {
    return block_id * block() + which * (block() / 2) + slot * token() + h * head();
  }
};

template <class T>
__global__ void poison(T* cache, Plane plane, const int* table, int width,
                       const int* lens) {  // slots past a request's end: NaN
  const int req = blockIdx.x, page_index = lens[req] / plane.page;
  if (lens[req] % plane.page == 0) return;
  for (int slot = lens[req] % plane.page; slot < plane.page; ++slot)
    for (int i = threadIdx.x; i < plane.kv_heads * plane.head_size * 2; i += blockDim.x) {
      const int h = i / plane.head_size % plane.kv_heads, d = i % plane.head_size, which = i / plane.head_size / plane.kv_heads;
      cache[plane.at(table[req * width + page_index], slot, h, which) + d] = static_cast<T>(NAN);
    }
}

// One block a row and head: float32 over the stored inputs.
template <class T, class Code>
__global__ void reference(const T* q, const Code* cache, Plane plane, const int* table, int heads, int row, int head, int begin,
                          int end, float soft_cap, const float* sinks, float k_scale, float v_scale, float* scores, float* out,
                          float* lse) {
  __shared__ float sums[256];
  const int kv = head / (heads / plane.kv_heads), d_count = plane.head_size;
  const auto reduce = [&](float mine, bool top) {
    sums[threadIdx.x] = mine;
    __syncthreads();
    float all = sums[0];
    for (int i = 1; i < 256; ++i) all = top ? fmaxf(all, sums[i]) : all + sums[i];
    __syncthreads();
    return all;
  };
  float top = sinks ? sinks[head] : -INFINITY;
  for (int key = begin + static_cast<int>(threadIdx.x); key < end; key += 256) {
    float s = 0;
    const Code* k = cache + plane.at(table[key / plane.page], key % plane.page, kv, 0);
    for (int d = 0; d < d_count; ++d)
      s += static_cast<float>(q[(static_cast<int64_t>(row) * heads + head) * d_count + d]) * static_cast<float>(k[d]);
    s *= k_scale * rsqrtf(static_cast<float>(d_count));
    if (soft_cap != 0) s = soft_cap * tanhf(s / soft_cap);
    scores[key] = s;
    top = fmaxf(top, s);
  }
  top = reduce(top, true);
  float sum = 0;
  for (int key = begin + static_cast<int>(threadIdx.x); key < end; key += 256) sum += scores[key] = expf(scores[key] - top);
  sum = reduce(sum, false);
  if (sinks) sum += expf(sinks[head] - top);
  if (threadIdx.x == 0) *lse = sum > 0 ? top + logf(sum) : -INFINITY;
  if (threadIdx.x < d_count) {
    float o = 0;
    for (int key = begin; key < end; ++key)
      o += scores[key] * static_cast<float>(cache[plane.at(table[key / plane.page], key % plane.page, kv, 1) + threadIdx.x]);
    out[threadIdx.x] = sum > 0 ? v_scale * o / sum : 0;
  }
}

inline Device facts;
inline const Family* family = &kSm90Decode;

inline float element(const std::vector<char>& from, uint64_t i, int dtype) {
  if (dtype == kF32) return reinterpret_cast<const float*>(from.data())[i];
  if (dtype == kF16) return static_cast<float>(reinterpret_cast<const __half*>(from.data())[i]);
  return static_cast<float>(reinterpret_cast<const __nv_bfloat16*>(from.data())[i]);
}

// One problem and batch; `rotation` disjoint tables.
template <class T, class Code = T>
class Point {
 public:
  Point(const Shape& s, uint64_t seed, bool timed) : s_(s), plane_{s.page, s.kv_heads, s.head_size, s.head_major} {
    if (s_.queries.empty()) s_.queries.assign(s_.lens.size(), 1);
    reqs_ = static_cast<int>(s_.lens.size());
    longest_ = *std::max_element(s_.lens.begin(), s_.lens.end());
    width_ = std::max(1, (longest_ + s.page - 1) / s.page);
    uint64_t pages_each = 0, bytes = 0;
    for (int n : s_.lens) pages_each += (n + s.page - 1) / s.page, bytes += 2ull * sizeof(Code) * n * s.kv_heads * s.head_size;
    starts_.assign(1, 0);
    for (int n : s_.queries) starts_.push_back(starts_.back() + n);
    rows_ = starts_.back() + s.unowned_rows;
    const uint64_t row_elements = static_cast<uint64_t>(s.heads) * s.head_size;
    bytes_ = bytes + 4ull * rows_ * row_elements;
    rotation_ = timed ? static_cast<int>(std::min<uint64_t>(128, (256ull << 20) / bytes + 1)) : 1;
    pages_ = pages_each * rotation_;
    cache_ = device<Code>(std::max<uint64_t>(1, pages_) * plane_.block());
    q_ = device<T>(rows_ * row_elements);
    out_ = device<char>(rows_ * row_elements * out_bytes());
    std::vector<float> scales(2 * std::max(1, s.scales));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.5f + 0.125f * static_cast<float>(i % 7);
    scales_host_ = scales;
    scales_ = device(scales);
    lse_ = device<float>(static_cast<uint64_t>(rows_) * s.heads);
    draw<<<4096, 256>>>(cache_, pages_ * plane_.block(), seed << 40);
    draw<<<1024, 256>>>(q_, rows_ * row_elements, seed << 40 | 7);
    sinks_ = device<float>(s.heads);
    draw<<<1, 256>>>(sinks_, s.heads, seed << 40 | 9);
    std::vector<int> ids(pages_);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
    std::vector<int> tables(static_cast<size_t>(rotation_) * reqs_ * width_, -1);
    size_t next = 0;
    for (int r = 0; r < rotation_; ++r)
      for (int b = 0; b < reqs_; ++b)
        for (int i = 0; i < (s_.lens[b] + s.page - 1) / s.page; ++i)
          tables[(static_cast<size_t>(r) * reqs_ + b) * width_ + i] = ids[next++];
    tables_ = device(tables);
    starts_device_ = device(starts_);
    lens_device_ = device(s_.lens);
    for (int r = 0; r < rotation_; ++r)
      poison<<<reqs_, 256>>>(cache_, plane_, tables_ + static_cast<size_t>(r) * reqs_ * width_, width_, lens_device_);

    lane_.problem = {sizeof(T) == 2 && std::is_same_v<T, __half> ? kF16 : kBF16,
                     0,
                     0,
                     s.head_size,
                     s.head_size,
                     s.heads,
                     s.kv_heads,
                     s.page,
                     s.head_major,
                     s.causality,
                     s.window_left,
                     s.window_right,
                     kAlibiNone,
                     s.sinks,
                     s.soft_cap,
                     s.invariant,
                     1};
    lane_.problem.kv_dtype = sizeof(Code) == 1 ? kE4M3 : lane_.problem.dtype;
    lane_.problem.out_dtype = s.out_dtype;
    lane_.device = facts;
    lane_.limits = {reqs_, rows_, *std::max_element(s_.queries.begin(), s_.queries.end()), longest_, width_};
    lane_.min_query = 0;
    lane_.max_query = lane_.limits.max_query_len;
    if (family->longest_query(facts, lane_.problem) == 0) std::fprintf(stderr, "not taken\n"), std::exit(1);
    memory_ = family->memory(lane_);
    scratch_ = device<char>(memory_.scratch_bytes, 0xff);
    each_ = (memory_.persistent_bytes + 255) / 256 * 256;
    persistent_ = device<char>(each_ * rotation_);
    kept_ = device<Batch>(rotation_);
    family->prepare(lane_);
    update();
  }
  ~Point() {
    CHECK(cudaDeviceSynchronize());
    for (void* p : {static_cast<void*>(cache_), static_cast<void*>(q_), static_cast<void*>(out_), static_cast<void*>(lse_),
                    static_cast<void*>(sinks_), static_cast<void*>(tables_), static_cast<void*>(starts_device_),
                    static_cast<void*>(lens_device_), static_cast<void*>(persistent_), static_cast<void*>(scratch_),
                    static_cast<void*>(kept_), static_cast<void*>(scales_)})
      CHECK(cudaFree(p));
  }

  void update() {
    for (int r = 0; r < rotation_; ++r) {
      Update u{};
      u.batch = {starts_device_, lens_device_, tables_ + static_cast<size_t>(r) * reqs_ * width_, nullptr, nullptr, width_,
                 reqs_,          rows_};
      u.kept = kept_ + r;
      u.persistent = persistent_ + each_ * r;
      family->update(lane_, u, nullptr);
    }
    CHECK(cudaDeviceSynchronize());
  }

  void call(int r, cudaStream_t stream, bool lse = false) {
    Forward f{};
    f.kept = kept_ + r;
    f.persistent = persistent_ + each_ * r;
    f.scratch = scratch_;
    f.counter_set = counter_set;
    const int64_t row = static_cast<int64_t>(s_.heads) * s_.head_size * 2;
    f.q = {reinterpret_cast<char*>(q_), row, s_.head_size * 2};
    f.out = {out_, row / 2 * out_bytes(), s_.head_size * out_bytes()};
    constexpr int64_t kSize = sizeof(Code);
    f.k = {reinterpret_cast<char*>(cache_), plane_.token() * kSize, plane_.head() * kSize};
    f.v = {reinterpret_cast<char*>(cache_) + plane_.block() / 2 * kSize, plane_.token() * kSize, plane_.head() * kSize};
    f.block_bytes = plane_.block() * kSize;
    if (s_.scales > 0) {
      f.k_scale = scales_;
      f.v_scale = scales_ + s_.scales;
      f.scales_per_head = s_.scales > 1;
    }
    f.num_blocks = pages_;
    if (lse) f.lse = lse_;
    f.lse_token_stride = s_.heads;
    f.lse_head_stride = 1;
    f.lse_factor = 1;
    if (s_.sinks) f.sinks = sinks_;
    f.softmax_scale = 1 / std::sqrt(static_cast<float>(s_.head_size));
    family->forward(lane_, f, stream);
  }
  int counter_set = 0;
  int rotation() const { return rotation_; }
  uint64_t bytes() const { return bytes_; }
  int out_bytes() const { return s_.out_dtype == kF32 ? 4 : 2; }
  float scale(int which, int kv_head) const {
    return s_.scales == 0 ? 1 : scales_host_[which * s_.scales + (s_.scales > 1 ? kv_head : 0)];
  }

  // Relative error of `rows` rows x `count` heads against float32, 1e9 where something is not written or finite that should be.
  double check(cudaStream_t stream, int rows, int count) {
    const uint64_t elements = static_cast<uint64_t>(rows_) * s_.heads * s_.head_size;
    CHECK(cudaMemset(out_, 0xff, elements * out_bytes()));
    CHECK(cudaMemset(lse_, 0xff, static_cast<uint64_t>(rows_) * s_.heads * 4));
    call(0, stream, true);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<char> got(elements * out_bytes());
    std::vector<float> got_lse(static_cast<size_t>(rows_) * s_.heads);
    CHECK(cudaMemcpy(got.data(), out_, got.size(), cudaMemcpyDeviceToHost));
    if (before_.empty()) before_ = got;
    if (before_ != got) return std::fprintf(stderr, "another answer than before\n"), 1e9;
    CHECK(cudaMemcpy(got_lse.data(), lse_, got_lse.size() * 4, cudaMemcpyDeviceToHost));
    float *scores = device<float>(longest_ + 1), *out = device<float>(s_.head_size + 1);
    double off = 0, norm = 0, lse_off = 0;
    for (uint64_t i = 0; i < elements; ++i)
      if (!std::isfinite(element(got, i, s_.out_dtype)))
        return std::fprintf(stderr, "element %llu not finite\n", (unsigned long long)i), 1e9;
    for (int i = 0; i < std::min(rows, rows_); ++i) {
      const int row = rows >= rows_ ? i : static_cast<int>(static_cast<int64_t>(rows_ - 1) * i / (rows - 1));
      const int req = static_cast<int>(std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin()) - 1;
      int begin = 0, end = 0;
      if (req < reqs_) {
        const int position = s_.lens[req] - s_.queries[req] + row - starts_[req];
        end = s_.causality == kCausal ? position + 1 : s_.lens[req];
        if (s_.window_left >= 0) begin = std::max(0, position - s_.window_left);
        if (s_.window_right >= 0 && s_.causality != kCausal) end = std::min(end, position + s_.window_right + 1);
        end = std::max(begin, end);
      }
      for (int h = 0; h < std::min(count, s_.heads); ++h) {
        const int head = count >= s_.heads ? h : (s_.heads - 1) * h / std::max(1, count - 1);
        std::vector<float> wanted(s_.head_size + 1);
        if (req < reqs_) {
          const int kv_head = head / (s_.heads / s_.kv_heads);
          reference<<<1, 256>>>(q_, cache_, plane_, tables_ + req * width_, s_.heads, row, head, begin, end, s_.soft_cap,
                                s_.sinks ? sinks_ : nullptr, scale(0, kv_head), scale(1, kv_head), scores, out,
                                out + s_.head_size);
          CHECK(cudaMemcpy(wanted.data(), out, (s_.head_size + 1) * 4, cudaMemcpyDeviceToHost));
        } else {
          wanted[s_.head_size] = -INFINITY;
        }
        for (int d = 0; d < s_.head_size; ++d) {
          const double g = element(got, (static_cast<size_t>(row) * s_.heads + head) * s_.head_size + d, s_.out_dtype);
          off += (g - wanted[d]) * (g - wanted[d]);
          norm += wanted[d] * wanted[d];
        }
        const float l = got_lse[static_cast<size_t>(row) * s_.heads + head];
        if (l != wanted[s_.head_size]) lse_off = std::max(lse_off, static_cast<double>(std::abs(l - wanted[s_.head_size])));
        if (std::isnan(l)) lse_off = 1e9;
      }
    }
    CHECK(cudaFree(scores));
    CHECK(cudaFree(out));
    if (!(lse_off < 2e-3)) return std::fprintf(stderr, "lse off by %g\n", lse_off), 1e9;
    return norm > 0 ? std::sqrt(off / norm) : off;
  }

 private:
  Shape s_;
  Plane plane_;
  int reqs_, longest_, width_, rows_, rotation_;
  uint64_t bytes_, pages_, each_;
  Code* cache_;
  T* q_;
  char* out_;
  float *lse_, *sinks_, *scales_;
  std::vector<float> scales_host_;
  std::vector<char> before_;  // out of the first check
  int *tables_, *starts_device_, *lens_device_;
  std::vector<int> starts_;
  Lane lane_{};
  Memory memory_{};
  char *scratch_, *persistent_;
  Batch* kept_;
};

}  // namespace anyattn::measure
