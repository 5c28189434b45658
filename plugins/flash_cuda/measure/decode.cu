// SPDX-License-Identifier: Apache-2.0
// Checks the decode family of sm_90 against float32, then times it: graphs over cold page tables. No part of the build:
//   nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a -I plugins -I plugins/flash_cuda -I sdk/cpp/include -I sdk/include
//     plugins/flash_cuda/measure/decode.cu plugins/flash_cuda/sm90/decode.cu UNITS.cu -o decode
//   ./decode check | smallest | few | all | ragged | sizes, then a page size or 0, then fp8    (UNITS.cu: one for each line of decode_instances.txt)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <anyattn/error.hpp>

#include "cuda_common/mbarrier.cuh"
#include "cuda_common/measure.cuh"
#include "params.h"

namespace {

using namespace anyattn::flash;
using namespace anyattn::measure;

template <class T>
__global__ void draw(T* to, uint64_t count, uint64_t seed) {  // N(0, 1)
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    to[i] = static_cast<T>(normal(seed + 2 * i, seed + 2 * i + 1));
  }
}

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

// 8192 x 8192 matrix-vector product: what stands between two calls of a model.
__global__ void neighbour(const uint4* weights, const float* x, float* y) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
#pragma unroll 8
  for (int i = lane; i < 1024; i += 32) {
    const uint4 w = __ldcs(weights + row * 1024 + i);
    const float4 low = reinterpret_cast<const float4*>(x)[2 * i], high = reinterpret_cast<const float4*>(x)[2 * i + 1];
    sum += __uint_as_float(w.x << 16) * low.x + __uint_as_float(w.x & 0xffff0000u) * low.y;
    sum += __uint_as_float(w.y << 16) * low.z + __uint_as_float(w.y & 0xffff0000u) * low.w;
    sum += __uint_as_float(w.z << 16) * high.x + __uint_as_float(w.z & 0xffff0000u) * high.y;
    sum += __uint_as_float(w.w << 16) * high.z + __uint_as_float(w.w & 0xffff0000u) * high.w;
  }
  for (int m = 16; m; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (lane == 0) y[row] = sum;
}

// The rate at which memory can be read: bulk copies of 16 KiB, six on their way for a block.
__global__ void read_all(const char* from, int64_t count, uint32_t* sink) {
  extern __shared__ __align__(128) char ring[];
  __shared__ anyattn::cuda::Mbarrier landed[6];
  if (threadIdx.x == 0)
    for (auto& barrier : landed) barrier.init(1);
  anyattn::cuda::fence_mbarrier_init();
  __syncthreads();
  const auto issue = [&](int64_t chunk, int place) {
    if (threadIdx.x != 0 || chunk >= count) return;
    landed[place].expect(16384);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16384, [%2];" ::"r"(
                     anyattn::cuda::shared_address(ring + place * 16384)),
                 "l"(from + chunk * 16384), "r"(anyattn::cuda::shared_address(&landed[place]))
                 : "memory");
  };
  for (int place = 0; place < 6; ++place) issue(blockIdx.x + place * static_cast<int64_t>(gridDim.x), place);
  uint32_t sum = 0, parity = 0;
  int place = 0;
  for (int64_t chunk = blockIdx.x; chunk < count; chunk += gridDim.x) {
    landed[place].wait(parity);
    sum ^= *reinterpret_cast<volatile uint32_t*>(ring + place * 16384 + threadIdx.x * 4);
    __syncthreads();
    issue(chunk + 6 * static_cast<int64_t>(gridDim.x), place);
    if (++place == 6) place = 0, parity ^= 1;
  }
  if (sum == 12345) *sink = sum;
}

template <class T>
T* device(uint64_t count) {
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::max<uint64_t>(count * sizeof(T), 256)));
  return static_cast<T*>(memory);
}
template <class T>
T* device(const std::vector<T>& values) {
  T* const to = device<T>(values.size());
  CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

Device facts;

float element(const std::vector<char>& from, uint64_t i, int dtype) {
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
    if (kSm90Decode.longest_query(facts, lane_.problem) == 0) std::fprintf(stderr, "not taken\n"), std::exit(1);
    memory_ = kSm90Decode.memory(lane_);
    scratch_ = device<char>(memory_.scratch_bytes);
    CHECK(cudaMemset(scratch_, 0xff, memory_.scratch_bytes));
    each_ = (memory_.persistent_bytes + 255) / 256 * 256;
    persistent_ = device<char>(each_ * rotation_);
    CHECK(cudaMemset(persistent_, 0, each_ * rotation_));
    kept_ = device<Batch>(rotation_);
    kSm90Decode.prepare(lane_);
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
      kSm90Decode.update(lane_, u, nullptr);
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
    kSm90Decode.forward(lane_, f, stream);
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

template <class F>
double graph_us(cudaStream_t stream, int calls, F&& record) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  record();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0ull));
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<double> times;
  double spent = 0;
  for (int i = 0; i < 30 && (i < 5 || spent < 40); ++i) {
    CHECK(cudaEventRecord(from, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(to, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    times.push_back(1e3 * ms / calls);
    spent += ms;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return median(times);
}

template <class T, class Code = T>
bool check_one(const char* name, const Shape& s, cudaStream_t stream) {
  Point<T, Code> point(s, 11, false);
  bool good = true;
  double worst = 0;
  for (int again = 0; again < 3; ++again) {  // tickets are back at zero; the last without a set of counters
    point.counter_set = again == 2 ? -1 : again;
    const double off = point.check(stream, again == 0 ? 64 : 0, 8);  // the same bits again
    worst = std::max(worst, off);
    good = good && off < 5e-3;
  }
  std::printf("check %-28s %.1e %s\n", name, worst, good ? "ok" : "WRONG");
  std::fflush(stdout);
  return good;
}

int checks(cudaStream_t stream) {
  int wrong = 0;
  const auto one = [&](const char* name, Shape s) { wrong += !check_one<__nv_bfloat16>(name, s, stream); };
  for (int page : {16, 32, 48, 64, 128, 256})
    one(("page " + std::to_string(page)).c_str(), {.page = page, .lens = {1, 15, 16, 17, 100, 500, 1000, 2049}});
  for (int n : {1, 16, 31, 128, 500, 4097}) one(("one of " + std::to_string(n)).c_str(), {.lens = {n}});
  one("NHD", {.page = 32, .head_major = false, .lens = {77, 513, 3}});
  one("empty request", {.unowned_rows = 3, .lens = {5, 0, 300}, .queries = {1, 1, 1}});
  one("speculative 4", {.lens = {100, 700, 4}, .queries = {4, 3, 4}});
  one("speculative 9, items", {.lens = {1000, 65}, .queries = {9, 5}});
  one("window 100", {.window_left = 99, .lens = {1000, 65, 500, 3000}, .queries = {4, 1, 2, 3}});
  one("window 1", {.window_left = 0, .lens = {33, 65}, .queries = {2, 1}});
  one("not causal", {.window_left = 20, .window_right = 5, .causality = kNonCausal, .lens = {33, 651}, .queries = {4, 4}});
  one("soft cap, sinks", {.soft_cap = 20, .sinks = true, .lens = {33, 651, 0}});
  one("heads 8 of 1", {.heads = 8, .kv_heads = 1, .lens = {9000, 20}});
  one("heads 12 of 12", {.heads = 12, .kv_heads = 12, .lens = {900, 20}});
  one("heads 15 of 5, head 64", {.heads = 15, .kv_heads = 5, .head_size = 64, .lens = {900, 20, 64}, .queries = {1, 2, 3}});
  std::vector<int> many(300);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int>(i * 7919 % 700);
  one("300 requests", {.page = 16, .lens = many});
  const std::vector<int> mixed{9000, 300, 1, 4000, 0, 77};
  one("mixed", {.lens = mixed});
  one("mixed, invariant", {.page = 16, .invariant = true, .lens = mixed});
  one("mixed, 3 tokens", {.window_left = 8000, .lens = mixed, .queries = {3, 1, 1, 3, 0, 2}});
  one("heads 32 of 1", {.heads = 32, .kv_heads = 1, .lens = mixed});
  one("heads 40 of 2, head 64", {.heads = 40, .kv_heads = 2, .head_size = 64, .lens = {900, 20, 64}, .queries = {1, 2, 3}});
  wrong += !check_one<__half>("fp16", {.out_dtype = kF16, .lens = {900, 20}}, stream);
  for (int size : {64, 96, 128, 192, 256}) {
    const std::string name = "head " + std::to_string(size);
    Shape s{.head_size = size, .page = 32, .lens = {33, 1651, 9000}};
    one(name.c_str(), s);
    s.queries = {4, 2, 3};
    one((name + ", wide").c_str(), s);
    s.scales = 8;
    s.out_dtype = kF32;
    wrong += !check_one<__nv_bfloat16, __nv_fp8_e4m3>((name + ", wide, fp8, out f32").c_str(), s, stream);
    s.queries.clear();
    s.scales = 1;
    s.out_dtype = kF16;
    s.head_major = false;
    wrong += !check_one<__half, __nv_fp8_e4m3>((name + ", fp16, fp8, NHD").c_str(), s, stream);
    s.soft_cap = 20;
    s.window_left = 700;
    s.out_dtype = kBF16;
    wrong += !check_one<__nv_bfloat16, __nv_fp8_e4m3>((name + ", fp8, soft cap").c_str(), s, stream);
  }
  wrong += !check_one<__nv_bfloat16, __nv_fp8_e4m3>("fp8, page 16, mixed", {.page = 16, .lens = mixed}, stream);
  return wrong;
}

// For tools that slow a kernel down a hundredfold.
int smallest(cudaStream_t stream) {
  int wrong = !check_one<__nv_bfloat16>("16 and 31 keys", {.lens = {16, 31}}, stream);
  wrong +=
      !check_one<__nv_bfloat16, __nv_fp8_e4m3>("fp8, head 64, cut", {.head_size = 64, .scales = 8, .lens = {200, 0}}, stream);
  wrong += !check_one<__half>("fp16, head 256, wide", {.head_size = 256, .lens = {33}, .queries = {4}}, stream);
  return wrong;
}

}  // namespace

int main(int count, char** argument) {
  const std::string what = count > 1 ? argument[1] : "check";
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  facts = {prop.major, prop.minor, prop.multiProcessorCount, static_cast<int>(prop.sharedMemPerBlockOptin)};
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (what == "check") return checks(stream);
  if (what == "smallest") return smallest(stream);

  uint4* weights = reinterpret_cast<uint4*>(device<__nv_bfloat16>(8192ull * 8192));
  draw<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(weights), 8192ull * 8192, 99);
  float *x = device<float>(8192), *y = device<float>(8192);
  CHECK(cudaMemset(x, 0x3e, 8192 * 4));
  CHECK(cudaDeviceSynchronize());
  const double between = graph_us(stream, 32, [&] {
    for (int i = 0; i < 32; ++i) neighbour<<<1024, 256, 0, stream>>>(weights, x, y);
  });
  {
    const uint64_t bytes = 8ull << 30;
    char* const memory = device<char>(bytes);
    CHECK(cudaMemset(memory, 1, bytes));
    CHECK(cudaFuncSetAttribute(read_all, cudaFuncAttributeMaxDynamicSharedMemorySize, 6 * 16384));
    const double us = graph_us(stream, 1, [&] {
      read_all<<<2 * facts.num_multiprocessors, 256, 6 * 16384, stream>>>(memory, bytes / 16384,
                                                                          reinterpret_cast<uint32_t*>(y));
    });
    std::printf("neighbour %.2f us, reading %.0f GB/s\n", between, 1e-3 * static_cast<double>(bytes) / us);
    CHECK(cudaFree(memory));
  }
  std::vector<std::pair<std::string, std::vector<int>>> points;
  const auto even = [&](int batch, int n) {
    points.push_back({std::to_string(batch) + "x" + std::to_string(n), std::vector<int>(batch, n)});
  };
  if (what == "one") {
    even(std::atoi(argument[4]), std::atoi(argument[5]));
  } else if (what == "few") {
    even(1, 500), even(1, 2048), even(1, 8192), even(8, 500), even(8, 2048), even(64, 500), even(64, 2048), even(64, 8192);
  } else if (what == "all") {
    for (int batch : {1, 8, 64, 256})
      for (int n : {500, 1000, 2048, 8192, 32768})
        if (n != 1000 || batch <= 8) even(batch, n);
  }
  if (what == "all" || what == "ragged" || what == "few") {
    std::mt19937_64 generator(64);
    std::vector<int> spread(64), skew(64, 512);
    for (int& n : spread) n = static_cast<int>(std::exp2(7 + 7 * std::uniform_real_distribution<>(0, 1)(generator)));
    skew[17] = 32768;
    points.push_back({"spread", spread});
    points.push_back({"skew", skew});
  }
  std::vector<int> pages{64};
  if (what == "all") pages = {16, 64};
  if (count > 2 && std::atoi(argument[2]) > 0) pages = {std::atoi(argument[2])};
  const bool codes = count > 3 && std::string(argument[3]) == "fp8";
  const auto time = [&]<class Point>(Point& point, const std::string& name, bool between_calls) {
    const double off = point.check(stream, 4, 3);
    const int calls = point.rotation();
    const double back = graph_us(stream, calls, [&] {
      for (int r = 0; r < calls; ++r) point.call(r, stream);
    });
    const double model = !between_calls ? 0 : graph_us(stream, calls, [&] {
                                                for (int r = 0; r < calls; ++r) {
                                                  neighbour<<<1024, 256, 0, stream>>>(weights, x, y);
                                                  point.call(r, stream);
                                                }
                                              }) - between;
    std::printf("%s: back %.1f us (%.0f GB/s) in-model %.1f us error %.1e %s\n", name.c_str(), back,
                1e-3 * point.bytes() / back, model, off, off < 5e-3 ? "ok" : "WRONG");
    std::fflush(stdout);
    return off < 5e-3;
  };
  for (int page : pages)
    for (const auto& [name, lens] : points) {
      Shape s;
      s.page = page;
      s.lens = lens;
      const std::string said = anyattn::text("page ", page, codes ? " fp8 " : " ", name);
      const auto run = [&]<class Code>(Code) {
        Point<__nv_bfloat16, Code> point(s, 5, true);
        return time(point, said, lens.size() <= 8);
      };
      if (!(codes ? run(__nv_fp8_e4m3{}) : run(__nv_bfloat16{}))) return 1;
    }
  if (what == "sizes") {
    for (const auto& [heads, kv_heads, size] :
         {std::array{32, 8, 64}, std::array{32, 8, 96}, std::array{32, 8, 128}, std::array{32, 8, 192}, std::array{32, 8, 256},
          std::array{32, 1, 128}, std::array{64, 2, 128}, std::array{64, 8, 128}}) {
      Shape s{.heads = heads, .kv_heads = kv_heads, .head_size = size, .lens = std::vector<int>(64, 4096)};
      const std::string said =
          anyattn::text("heads ", heads, " of ", kv_heads, ", head ", size, codes ? ", fp8" : "", ", 64x4096");
      const auto run = [&]<class Code>(Code) {
        Point<__nv_bfloat16, Code> point(s, 5, true);
        return time(point, said, false);
      };
      if (!(codes ? run(__nv_fp8_e4m3{}) : run(__nv_bfloat16{}))) return 1;
    }
  }
  return 0;
}
