// SPDX-License-Identifier: Apache-2.0
// Checks prefill of sm_90, or of the general path, against float32 on the device, then times graph replays. No part of the build:
//   nvcc -O3 -std=c++20 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -I plugins -I plugins/flash_cuda \
//     -I sdk/include -I sdk/cpp/include -I BUILT plugins/flash_cuda/measure/prefill.cu plugins/flash_cuda/sm90/prefill.cu \
//     plugins/flash_cuda/sm80/launch.cu BUILT/kernels/{prefill,attend}_*.cu -o prefill    (BUILT: build/release/plugins/flash_cuda)
//   ./prefill [sm80] check | ragged | paged | codes | heads | once      (sm80: the general path)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_common/measure.cuh"
#include "flash_cuda/params.h"

namespace {

using namespace anyattn::flash;
using namespace anyattn::measure;

const Family* family = &kSm90Prefill;
constexpr float kScales[] = {2, 0.5, 4};  // of codes: q, k, v

struct Request {
  int query_len, seq_len;
};
struct Case {
  int dtype, head_size, head_size_v, num_q_heads, num_kv_heads, block_size, head_major;
  int causality, window_left, window_right;
  float soft_cap;
  int sinks;
  std::vector<Request> requests;
  int padding = 0;  // rows past the last request
};

int bytes_of(int dtype) { return dtype == kE4M3 ? 1 : 2; }
int dtype_out(int dtype) { return dtype == kE4M3 ? kBF16 : dtype; }
__device__ void put(void* to, uint64_t at, float x, int dtype) {
  if (dtype == kE4M3) static_cast<__nv_fp8_storage_t*>(to)[at] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  if (dtype == kBF16) static_cast<__nv_bfloat16*>(to)[at] = __float2bfloat16_rn(x);
  if (dtype == kF16) static_cast<__half*>(to)[at] = __float2half_rn(x);
}
__device__ float value(const void* from, uint64_t at, int dtype) {
  if (dtype == kE4M3) return __half2float(__half(__nv_cvt_fp8_to_halfraw(static_cast<const uint8_t*>(from)[at], __NV_E4M3)));
  if (dtype == kBF16) return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[at]);
  return __half2float(static_cast<const __half*>(from)[at]);
}
__global__ void draw(void* to, uint64_t count, uint64_t seed, int dtype) {  // N(0, 1)
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    const uint64_t x = (seed * 1000003 + i) * 0x9E3779B97F4A7C15ull;
    put(to, i, normal(x, x + 77), dtype);
  }
}

// Rows [key][kv head][element] of one request to their place in a paged plane.
template <class T>
__global__ void scatter(const T* rows, T* plane, const int* table, int keys, int heads, int size, int block_size, int64_t block,
                        int64_t token, int64_t head) {
  const uint64_t count = static_cast<uint64_t>(keys) * heads * size;
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    const int d = i % size, h = i / size % heads, j = i / size / heads;
    if (table[j / block_size] >= 0) plane[table[j / block_size] * block + (j % block_size) * token + h * head + d] = rows[i];
  }
}

struct Row {
  int token, key_start, seq_len, position, causal;
};
// One block an output row and head; scores in `scores`, float32 throughout.
__global__ void reference(const Row* rows, const void* q, const void* k, const void* v, int dtype, int q_heads, int kv_heads,
                          int d, int dv, int left, int right, float cap, const float* sinks, float scale, float* scores,
                          int64_t score_stride, float* out, float* lse) {
  __shared__ float sums[256];
  const Row row = rows[blockIdx.x];
  const int head = blockIdx.y, kv = head / (q_heads / kv_heads);
  const uint64_t mine = (static_cast<uint64_t>(row.token) * q_heads + head) * d;
  float* s = scores + (static_cast<uint64_t>(blockIdx.x) * q_heads + head) * score_stride;
  const auto seen = [&](int j) {
    return j < row.seq_len && (!row.causal || j <= row.position) && (left < 0 || j >= row.position - left) &&
           (row.causal || right < 0 || j <= row.position + right);
  };
  float top = -INFINITY;
  for (int j = threadIdx.x; j < row.seq_len; j += 256) {
    float x = 0;
    const uint64_t key = (static_cast<uint64_t>(row.key_start + j) * kv_heads + kv) * d;
    for (int i = 0; i < d; i++) x += value(q, mine + i, dtype) * value(k, key + i, dtype);
    x *= scale;
    if (cap > 0) x = cap * tanhf(x / cap);
    s[j] = seen(j) ? x : -INFINITY;
    top = fmaxf(top, s[j]);
  }
  sums[threadIdx.x] = top;
  __syncthreads();
  for (int i = 0; i < 256; i++) top = fmaxf(top, sums[i]);
  if (sinks != nullptr) top = fmaxf(top, sinks[head]);
  __syncthreads();
  float total = 0;
  for (int j = threadIdx.x; j < row.seq_len; j += 256) total += s[j] = s[j] == -INFINITY ? 0 : expf(s[j] - top);
  sums[threadIdx.x] = total;
  __syncthreads();
  total = sinks != nullptr ? expf(sinks[head] - top) : 0;
  for (int i = 0; i < 256; i++) total += sums[i];
  for (int i = threadIdx.x; i < dv; i += 256) {
    float x = 0;
    for (int j = 0; j < row.seq_len; j++)
      if (s[j] != 0) x += s[j] * value(v, (static_cast<uint64_t>(row.key_start + j) * kv_heads + kv) * dv + i, dtype);
    out[(static_cast<uint64_t>(blockIdx.x) * q_heads + head) * dv + i] = total > 0 ? x / total : 0;
  }
  if (threadIdx.x == 0) lse[blockIdx.x * q_heads + head] = total > 0 ? top + logf(total) : -INFINITY;
}

template <class T>
T* to_device(const std::vector<T>& host) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, std::max<size_t>(host.size(), 1) * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}
template <class T>
T* room(uint64_t count, int fill) {
  T* device = nullptr;
  CHECK(cudaMalloc(&device, std::max<uint64_t>(count, 1) * sizeof(T)));
  CHECK(cudaMemset(device, fill, count * sizeof(T)));
  return device;
}

// One case on the device: tensors, cache, lane, metadata. `copies` disjoint K and V, for cold timing.
struct Scene {
  Case c;
  Lane lane{};
  Batch batch{};
  Forward call{};
  std::vector<int> query_start{0}, key_start{0};
  std::vector<void*> owned;
  std::vector<char*> k_copies, v_copies, caches;
  char *q, *k, *v;
  uint16_t* out;
  float *lse, *sinks;
  int tokens = 0, keys = 0;

  template <class T>
  T* keep(T* p) {
    owned.push_back(p);
    return p;
  }

  Scene(const Case& given, const Device& device, int copies) : c(given) {
    for (const Request& r : c.requests) {
      query_start.push_back(tokens += r.query_len);
      key_start.push_back(keys += r.seq_len);
    }
    const int reqs = static_cast<int>(c.requests.size()), last = tokens;
    tokens += c.padding;
    int max_query = 1, max_seq = 1;
    for (const Request& r : c.requests) max_query = std::max(max_query, r.query_len), max_seq = std::max(max_seq, r.seq_len);
    const int width = c.block_size ? (max_seq + c.block_size - 1) / c.block_size + 1 : 0;
    lane = {{c.dtype, c.dtype, dtype_out(c.dtype), c.head_size, c.head_size_v, c.num_q_heads, c.num_kv_heads, c.block_size,
             c.head_major, c.causality, c.window_left, c.window_right, kAlibiNone, c.sinks, c.soft_cap, 0, 1},
            device,
            {reqs, tokens, max_query, max_seq, width},
            0,
            kAnyQuery};
    const uint64_t k_size = static_cast<uint64_t>(keys) * c.num_kv_heads * c.head_size,
                   v_size = static_cast<uint64_t>(keys) * c.num_kv_heads * c.head_size_v;
    const int spare = 40;  // NaN rows past the last key
    const int64_t element = bytes_of(c.dtype);
    q = keep(room<char>(element * tokens * c.num_q_heads * c.head_size, 0xff));
    draw<<<1024, 256>>>(q, static_cast<uint64_t>(last) * c.num_q_heads * c.head_size, 1, c.dtype);
    for (int i = 0; i < copies; i++) {
      k = keep(room<char>(element * (k_size + spare * c.num_kv_heads * c.head_size), 0xff));
      v = keep(room<char>(element * (v_size + spare * c.num_kv_heads * c.head_size_v), 0xff));
      draw<<<1024, 256>>>(k, k_size, 2, c.dtype);
      draw<<<1024, 256>>>(v, v_size, 3, c.dtype);
      k_copies.push_back(k), v_copies.push_back(v);
    }
    out = keep(room<uint16_t>(static_cast<uint64_t>(tokens) * c.num_q_heads * c.head_size_v, 0xff));
    lse = keep(room<float>(static_cast<uint64_t>(tokens) * c.num_q_heads, 0xff));
    std::vector<float> sink(c.num_q_heads);
    for (int h = 0; h < c.num_q_heads; h++) sink[h] = 0.5f * h - 2;
    sinks = keep(to_device(sink));
    std::vector<int> lens;
    std::vector<uint8_t> causal;
    for (int i = 0; i < reqs; i++) lens.push_back(c.requests[i].seq_len), causal.push_back(i % 2);
    batch = {
        keep(to_device(query_start)), keep(to_device(lens)), nullptr, nullptr, keep(to_device(causal)), width, reqs, tokens};

    call.q = {q, element * c.num_q_heads * c.head_size, element * c.head_size};
    if (c.dtype == kE4M3) {
      call.q_scale = keep(to_device(std::vector<float>{kScales[0]}));
      call.k_scale = keep(to_device(std::vector<float>{kScales[1]}));
      call.v_scale = keep(to_device(std::vector<float>{kScales[2]}));
    }
    call.out = {reinterpret_cast<char*>(out), 2ll * c.num_q_heads * c.head_size_v, 2ll * c.head_size_v};
    call.num_tokens = tokens;
    call.num_keys = keys + spare;
    call.lse = lse;
    call.lse_token_stride = c.num_q_heads, call.lse_head_stride = 1, call.lse_factor = 1;
    call.sinks = c.sinks ? sinks : nullptr;
    call.softmax_scale = 1 / std::sqrt(static_cast<float>(c.head_size));
    if (c.block_size == 0) {
      batch.key_start_loc = keep(to_device(key_start));
      use(0);
    } else {
      paged(reqs, width);
    }
    const Memory memory = family->memory(lane);
    call.persistent = keep(room<char>(memory.persistent_bytes, 0));
    call.scratch = keep(room<char>(memory.scratch_bytes, 0));
    call.kept = keep(room<Batch>(1, 0));
    CHECK(cudaDeviceSynchronize());
    family->prepare(lane);
    update(nullptr);
  }
  void update(cudaStream_t stream) {
    family->update(lane, {batch, const_cast<Batch*>(call.kept), const_cast<void*>(call.persistent)}, stream);
  }
  void use(int copy) {  // keys of this copy
    if (c.block_size != 0) {
      call.v.data += caches[copy] - call.k.data;
      call.k.data = caches[copy];
      return;
    }
    call.k = {k_copies[copy], 2ll * c.num_kv_heads * c.head_size, 2ll * c.head_size};
    call.v = {v_copies[copy], 2ll * c.num_kv_heads * c.head_size_v, 2ll * c.head_size_v};
  }
  // K plane then V plane in a block; blocks in random order, everything no request owns NaN; -1 where nothing may look.
  void paged(int reqs, int width) {
    std::vector<int> order, table(static_cast<size_t>(reqs) * width, -1);
    int used = 0;
    for (const Request& r : c.requests) used += (r.seq_len + c.block_size - 1) / c.block_size;
    order.resize(used + 3);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    for (int i = 0, at = 0; i < reqs; i++) {
      const Request& r = c.requests[i];
      const int low = c.window_left < 0 ? 0 : std::max(0, r.seq_len - r.query_len - c.window_left);
      for (int b = 0; b * c.block_size < r.seq_len; b++, at++)
        if ((b + 1) * c.block_size > low) table[i * width + b] = order[at];
    }
    const int64_t k_plane = static_cast<int64_t>(c.block_size) * c.num_kv_heads * c.head_size,
                  v_plane = static_cast<int64_t>(c.block_size) * c.num_kv_heads * c.head_size_v, block = k_plane + v_plane + 64;
    const int64_t element = bytes_of(c.dtype);
    char* cache = keep(room<char>(element * block * (used + 3), 0xff));
    const int* device_table = keep(to_device(table));
    const auto strides = [&](int size) {
      return c.head_major ? std::pair<int64_t, int64_t>{size, static_cast<int64_t>(c.block_size) * size}
                          : std::pair<int64_t, int64_t>{static_cast<int64_t>(c.num_kv_heads) * size, size};
    };
    const auto [kt, kh] = strides(c.head_size);
    const auto [vt, vh] = strides(c.head_size_v);
    for (int i = 0; i < reqs; i++) {
      const uint64_t first = static_cast<uint64_t>(key_start[i]) * c.num_kv_heads;
      const auto plane = [&]<class T>(const T*, const char* rows, int size, int64_t offset, int64_t token, int64_t head) {
        scatter<<<256, 256>>>(reinterpret_cast<const T*>(rows) + first * size, reinterpret_cast<T*>(cache) + offset,
                              device_table + i * width, c.requests[i].seq_len, c.num_kv_heads, size, c.block_size, block, token,
                              head);
      };
      const auto both = [&](auto element) {
        plane(&element, k, c.head_size, 0, kt, kh);
        plane(&element, v, c.head_size_v, k_plane, vt, vh);
      };
      c.dtype == kE4M3 ? both(uint8_t{}) : both(uint16_t{});
    }
    batch.block_table = device_table;
    caches.push_back(cache);
    for (size_t i = 1; i < k_copies.size(); i++) {
      caches.push_back(keep(room<char>(element * block * (used + 3), 0xff)));
      CHECK(cudaMemcpy(caches.back(), cache, element * block * (used + 3), cudaMemcpyDeviceToDevice));
    }
    call.k = {cache, element * kt, element * kh};
    call.v = {cache + element * k_plane, element * vt, element * vh};
    call.block_bytes = element * block;
    call.num_blocks = used + 3;
  }
  ~Scene() {
    for (void* p : owned) cudaFree(p);
  }

  // Largest of: relative error of out, error of lse; infinite where a row that must be 0 is not, or a NaN came out.
  double compare(int step) {
    std::vector<Row> rows;
    for (size_t i = 0; i < c.requests.size(); i++) {
      const Request& r = c.requests[i];
      const int causal = c.causality == kCausal || (c.causality == kPerRequest && i % 2);
      for (int t = 0; t < r.query_len; t += t + 1 == r.query_len ? 1 : std::min(step, r.query_len - 1 - t))
        rows.push_back({query_start[i] + t, key_start[i], r.seq_len, r.seq_len - r.query_len + t, causal});
    }
    int64_t longest = 1;
    for (const Request& r : c.requests) longest = std::max<int64_t>(longest, r.seq_len);
    const uint64_t n = rows.size() * c.num_q_heads;
    Row* device_rows = to_device(rows);
    float *scores = room<float>(n * longest, 0), *ref = room<float>(n * c.head_size_v, 0), *ref_lse = room<float>(n, 0);
    if (!rows.empty())
      reference<<<dim3(rows.size(), c.num_q_heads), 256>>>(
          device_rows, q, k, v, c.dtype, c.num_q_heads, c.num_kv_heads, c.head_size, c.head_size_v, c.window_left,
          c.window_right, c.soft_cap, call.sinks, call.softmax_scale * (c.dtype == kE4M3 ? kScales[0] * kScales[1] : 1), scores,
          longest, ref, ref_lse);
    CHECK(cudaDeviceSynchronize());
    std::vector<float> a(n * c.head_size_v), al(n), bl(static_cast<uint64_t>(tokens) * c.num_q_heads);
    std::vector<uint16_t> b(static_cast<uint64_t>(tokens) * c.num_q_heads * c.head_size_v);
    CHECK(cudaMemcpy(a.data(), ref, a.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(al.data(), ref_lse, al.size() * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(b.data(), out, b.size() * 2, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(bl.data(), lse, bl.size() * 4, cudaMemcpyDeviceToHost));
    for (void* p :
         {static_cast<void*>(device_rows), static_cast<void*>(scores), static_cast<void*>(ref), static_cast<void*>(ref_lse)})
      cudaFree(p);
    const auto value = [&](uint64_t at) {
      __half_raw half;
      half.x = b[at];
      const uint32_t wide = static_cast<uint32_t>(b[at]) << 16;
      float as_bf16;
      std::memcpy(&as_bf16, &wide, 4);
      return (dtype_out(c.dtype) == kBF16 ? as_bf16 : __half2float(__half(half))) / (c.dtype == kE4M3 ? kScales[2] : 1);
    };
    double error = 0, size = 0, worst = 0;
    for (size_t i = 0; i < rows.size(); i++)
      for (int h = 0; h < c.num_q_heads; h++) {
        for (int d = 0; d < c.head_size_v; d++) {
          const double x = a[(i * c.num_q_heads + h) * c.head_size_v + d],
                       y = value((static_cast<uint64_t>(rows[i].token) * c.num_q_heads + h) * c.head_size_v + d);
          error += (x - y) * (x - y), size += x * x;
          if (std::isnan(y)) worst = INFINITY;
        }
        const float x = al[i * c.num_q_heads + h], y = bl[static_cast<uint64_t>(rows[i].token) * c.num_q_heads + h];
        if (x != y)
          worst = std::max(worst, std::isfinite(x) && std::isfinite(y) ? std::fabs(x - y) / (1.0 + std::fabs(x)) : INFINITY);
      }
    for (int t = query_start.back(); t < tokens; t++)
      for (int h = 0; h < c.num_q_heads; h++) {
        const uint64_t row = static_cast<uint64_t>(t) * c.num_q_heads + h;
        if (bl[row] != -INFINITY) worst = INFINITY;
        for (int d = 0; d < c.head_size_v; d++)
          if (value(row * c.head_size_v + d) != 0) worst = INFINITY;
      }
    return std::max(std::sqrt(error / std::max(size, 1e-30)), worst);
  }
};

int check(const Device& device) {
  const int none = -1;
  const std::vector<Request> one{{128, 128}}, odd{{5, 5}, {1, 77}, {130, 300}, {0, 9}, {64, 64}, {257, 257}, {33, 1000}},
      empty{{40, 0}, {20, 7}, {129, 129}};
  std::vector<Case> cases{
      {kBF16, 128, 128, 4, 1, 0, 0, kNonCausal, none, none, 0, 0, one},
      {kBF16, 128, 128, 4, 1, 0, 0, kCausal, none, none, 0, 0, one},
      {kBF16, 128, 128, 8, 2, 0, 0, kCausal, none, none, 0, 0, {{512, 512}}},
      {kBF16, 128, 128, 8, 2, 0, 0, kCausal, none, none, 0, 0, odd, 7},
      {kBF16, 128, 128, 8, 2, 0, 0, kNonCausal, none, none, 0, 1, odd, 40},
      {kBF16, 128, 128, 6, 2, 0, 0, kCausal, none, none, 0, 0, empty, 3},
      {kBF16, 128, 128, 7, 1, 16, 1, kCausal, none, none, 0, 0, odd, 3},
      {kBF16, 128, 128, 8, 2, 16, 0, kCausal, none, none, 0, 0, odd, 0},
      {kBF16, 128, 128, 8, 8, 32, 1, kPerRequest, none, none, 0, 0, odd, 0},
      {kBF16, 128, 128, 32, 1, 64, 1, kCausal, none, none, 0, 1, empty, 2},
      {kBF16, 128, 128, 8, 2, 128, 1, kCausal, none, none, 30, 0, odd, 0},
      {kBF16, 128, 128, 8, 2, 256, 0, kCausal, 100, none, 0, 0, odd, 0},
      {kBF16, 128, 128, 8, 2, 16, 1, kCausal, 200, none, 0, 0, {{300, 900}, {2, 700}, {700, 700}}, 0},
      {kBF16, 128, 128, 8, 2, 0, 0, kNonCausal, 33, 70, 0, 0, odd, 0},
      {kBF16, 128, 128, 8, 2, 16, 1, kPerRequest, 0, 3, 5, 1, odd, 1},
      {kBF16, 120, 104, 8, 2, 16, 1, kCausal, none, none, 0, 0, odd, 0},
  };
  for (const int causality : {kCausal, kNonCausal, kPerRequest})
    for (const int block_size : {8, 16, 64, 128, 256})
      cases.push_back({kE4M3, 128, 128, 8, 2, block_size, block_size != 16, causality, none, none,
                       block_size == 64 ? 30.f : 0.f, block_size == 8, odd, 3});
  cases.push_back({kE4M3, 128, 128, 6, 2, 16, 1, kCausal, none, none, 0, 0, empty, 3});
  cases.push_back({kE4M3, 128, 128, 8, 2, 16, 1, kCausal, 200, none, 0, 1, {{300, 900}, {2, 700}, {700, 700}}, 0});
  cases.push_back({kE4M3, 64, 112, 7, 1, 32, 1, kNonCausal, 33, 70, 0, 0, odd, 0});
  std::vector<Case> others;
  for (const int size : {64, 96, 128, 192, 256})
    for (const int dtype : {kBF16, kF16}) {
      if (size == 128 && dtype == kBF16) continue;
      const int value = size == 192 ? 128 : size;
      others.push_back({dtype, size, value, 8, 2, 0, 0, kCausal, none, none, 0, 0, odd, 5});
      others.push_back({dtype, size, value, 8, 2, 16, 1, kCausal, 150, none, 0, 1, odd, 5});
      others.push_back({dtype, size - 8, value - 16, 6, 2, 64, 0, kNonCausal, none, none, 20, 0, empty, 5});
    }
  cases.insert(cases.end(), others.begin(), others.end());
  int bad = 0, skipped = 0;
  for (const Case& c : cases) {
    const Problem problem{c.dtype,       c.dtype,       dtype_out(c.dtype), c.head_size,
                          c.head_size_v, c.num_q_heads, c.num_kv_heads,     c.block_size};
    if (family->longest_query(device, problem) == 0) {
      skipped++;
      continue;
    }
    Scene scene(c, device, 1);
    family->forward(scene.lane, scene.call, nullptr);
    const double error = scene.compare(1);
    const double allowed = c.dtype == kE4M3 ? 4e-2 : c.dtype == kBF16 ? 5e-3 : 1e-3;
    if (!(error <= allowed)) bad++;
    std::printf("%s %s %d/%d heads %d/%d block %d%s %s window %d %d cap %g sinks %d reqs %zu: %.2e\n",
                error <= allowed ? "ok  " : "BAD ",
                c.dtype == kE4M3   ? "e4m3"
                : c.dtype == kBF16 ? "bf16"
                                   : "fp16",
                c.head_size, c.head_size_v, c.num_q_heads, c.num_kv_heads, c.block_size, c.head_major ? " HND" : "",
                c.causality == kCausal      ? "causal"
                : c.causality == kNonCausal ? "full"
                                            : "per request",
                c.window_left, c.window_right, c.soft_cap, c.sinks, c.requests.size(), error);
  }
  std::printf("checked %zu, wrong %d, not built %d\n", cases.size(), bad, skipped);
  return bad != 0;
}

__global__ void spin(float* x) {
  float y = threadIdx.x;
  for (int i = 0; i < 100000; i++) y = y * 0.999f + 1;
  if (y == 7) *x = y;
}

// Median milliseconds of a call: one graph with a call per copy of K and V.
double time(Scene& scene, bool rested, double budget) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (size_t i = 0; i < scene.k_copies.size(); i++) {
    scene.use(static_cast<int>(i));
    family->forward(scene.lane, scene.call, stream);
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<float> times;
  const auto start = std::chrono::steady_clock::now();
  while (times.size() < 3 ||
         (times.size() < 30 && std::chrono::steady_clock::now() - start < std::chrono::duration<double>(budget))) {
    if (rested) {
      usleep(100000);
      spin<<<1, 32, 0, stream>>>(scene.lse);
    }
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms / scene.k_copies.size());
  }
  return median(times);
}

struct Point {
  int batch, length, causal;
  double fa3_ms[2],
      fa3_codes_ms[2];  // FlashAttention-3 (commit 0251105a) on an H200, rested and sustained, ragged rows; q, k, v of e4m3
};
constexpr Point kPoints[] = {
    {1, 512, 1, {0.01475, 0.015}, {0.01555, 0.0155}},  {1, 2048, 1, {0.0598, 0.0597}, {0.0556, 0.0549}},
    {4, 4096, 1, {0.7734, 0.9058}, {0.6324, 0.7145}},  {1, 16384, 1, {2.849, 3.355}, {2.153, 2.451}},
    {1, 512, 0, {0.01385, 0.01385}, {0.0132, 0.0133}}, {1, 2048, 0, {0.1021, 0.1043}, {0.0864, 0.0972}},
    {4, 4096, 0, {1.481, 1.701}, {1.17, 1.297}},       {1, 16384, 0, {5.714, 6.642}, {4.379, 4.836}}};

void time_point(const Device& device, const Point& p, int dtype, int head_size, int block_size) {
  const bool codes = dtype == kE4M3;
  Case c{dtype, head_size, head_size, 32, 8, block_size, 1, p.causal ? kCausal : kNonCausal, -1, -1, 0, 0, {}};
  for (int i = 0; i < p.batch; i++) c.requests.push_back({p.length, p.length});
  const double bytes = 2.0 * bytes_of(dtype) * p.batch * p.length * 8 * head_size;
  Scene scene(c, device, static_cast<int>(std::clamp(256e6 / bytes, 1.0, 128.0)));
  family->forward(scene.lane, scene.call, nullptr);
  const double error = scene.compare(p.length / 8 - 1);
  const double flops = 4.0 * p.batch * 32 * p.length * p.length * head_size / (p.causal ? 2 : 1);
  std::printf("%s head %-3d %d x %-5d %-6s page %-3d error %.1e", codes ? "e4m3" : "bf16", head_size, p.batch, p.length,
              p.causal ? "causal" : "full", block_size, error);
  for (const bool rested : {true, false}) {
    const double ms = time(scene, rested, rested ? 0.5 : 0.15);
    std::printf("  %s %8.4f ms %6.1f TFLOP/s", rested ? "rested" : "sustained", ms, flops / ms / 1e9);
    if (head_size == 128) std::printf(" %.3f of FA3", (codes ? p.fa3_codes_ms : p.fa3_ms)[!rested] / ms);
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  const Device device{properties.major, properties.minor, properties.multiProcessorCount,
                      static_cast<int>(properties.sharedMemPerBlockOptin)};
  int status = 0;
  for (int i = 1; i < argc; i++) {
    const std::string what = argv[i];
    if (what == "sm80") family = &kSm80Prefill;
    if (what == "codes" && family == &kSm80Prefill) {
      std::fprintf(stderr, "codes: the general path takes none in q\n");
      return 1;
    }
    if (what == "check") status |= check(device);
    for (const Point& p : kPoints) {
      if (what == "ragged") time_point(device, p, kBF16, 128, 0);
      if (what == "codes") time_point(device, p, kE4M3, 128, 64);
      if (what == "paged" && p.causal)
        for (const int block_size : {16, 64}) time_point(device, p, kBF16, 128, block_size);
      if (what == "heads" && p.causal && p.length == 4096)
        for (const int head_size : {64, 256}) time_point(device, p, kBF16, head_size, 0);
    }
    if (what == "once") {  // for a profiler
      Scene scene(
          {kBF16, 128, 128, 32, 8, 0, 0, kCausal, -1, -1, 0, 0, {{4096, 4096}, {4096, 4096}, {4096, 4096}, {4096, 4096}}},
          device, 1);
      for (int n = 0; n < 3; n++) family->forward(scene.lane, scene.call, nullptr);
      CHECK(cudaDeviceSynchronize());
    }
    std::fflush(stdout);
  }
  return status;
}
