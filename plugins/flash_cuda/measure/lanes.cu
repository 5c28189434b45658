// SPDX-License-Identifier: Apache-2.0
// Which family is faster for which query lengths: chunks of a prompt over a long prefix, chunks beside decode rows, a few tokens a
// request. Each scene is compared with float32, then timed as graph replays over cold page tables. No part of the build:
//   nvcc -O3 -std=c++20 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -I plugins -I plugins/flash_cuda
//     -I sdk/cpp/include -I sdk/include -I BUILT plugins/flash_cuda/measure/lanes.cu
//     plugins/flash_cuda/{sm90/prefill,sm90/decode,sm80/launch}.cu BUILT/kernels/*.cu -o lanes    (BUILT: build/release/plugins/flash_cuda)
//   ./lanes [sm80] chunks | tokens ...      (sm80: the general path's families in place of those of sm_90)
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <anyattn/error.hpp>

#include "cuda_common/measure.cuh"
#include "params.h"

namespace {

using namespace anyattn::flash;
using namespace anyattn::measure;
using Element = __nv_bfloat16;
constexpr int kHead = 128;

struct Request {
  int query, keys;
};
struct Part {  // a lane: a family and its query lengths
  const Family* family;
  int min_query, max_query;
};

__global__ void draw(Element* to, uint64_t count, uint64_t seed) {  // N(0, 1)
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull)
    to[i] = __float2bfloat16(normal(seed + 2 * i, seed + 2 * i + 1));
}

// Blocks [id][k, v][kv head][slot][element]. Slots past a request's end: NaN.
struct Cache {
  Element* data;
  int page, kv_heads;
  __host__ __device__ uint64_t block() const { return 2ull * kv_heads * page * kHead; }
  __host__ __device__ uint64_t at(int id, int which, int kv_head, int slot) const {
    return id * block() + ((static_cast<uint64_t>(which) * kv_heads + kv_head) * page + slot) * kHead;
  }
};
__global__ void poison(Cache cache, const int* table, int width, const int* lens) {
  const int keys = lens[blockIdx.x], end = (keys + cache.page - 1) / cache.page * cache.page;
  for (int key = keys; key < end; ++key)
    for (int i = threadIdx.x; i < 2 * cache.kv_heads * kHead; i += blockDim.x)
      cache.data[cache.at(table[blockIdx.x * width + key / cache.page], i / kHead / cache.kv_heads, i / kHead % cache.kv_heads,
                          key % cache.page) +
                 i % kHead] = __float2bfloat16(NAN);
}

struct Row {
  int token, request, keys;  // keys it sees
};
// A block a row and query head: float32 over the stored inputs, causal.
__global__ void reference(const Row* rows, const Element* q, Cache cache, const int* table, int width, int heads, float scale,
                          float* scores, int stride, float* out) {
  __shared__ float sums[128];
  const Row row = rows[blockIdx.x];
  const int head = blockIdx.y, kv_head = head / (heads / cache.kv_heads);
  const Element* mine = q + (static_cast<uint64_t>(row.token) * heads + head) * kHead;
  float* s = scores + (static_cast<uint64_t>(blockIdx.x) * heads + head) * stride;
  const int* pages = table + row.request * width;
  const auto all = [&](float x, auto&& join) {
    sums[threadIdx.x] = x;
    __syncthreads();
    for (int i = 0; i < 128; ++i) x = join(x, sums[i]);
    __syncthreads();
    return x;
  };
  float top = -INFINITY, sum = 0, o = 0;
  for (int key = threadIdx.x; key < row.keys; key += 128) {
    const Element* k = cache.data + cache.at(pages[key / cache.page], 0, kv_head, key % cache.page);
    float x = 0;
    for (int d = 0; d < kHead; ++d) x += __bfloat162float(mine[d]) * __bfloat162float(k[d]);
    top = fmaxf(top, s[key] = x * scale);
  }
  top = all(top, [](float a, float b) { return fmaxf(a, b); });
  for (int key = threadIdx.x; key < row.keys; key += 128) sum += s[key] = expf(s[key] - top);
  sum = all(sum, [](float a, float b) { return a + b; }) - sum;  // its own was there twice
  for (int key = 0; key < row.keys; ++key)
    o += s[key] * __bfloat162float(cache.data[cache.at(pages[key / cache.page], 1, kv_head, key % cache.page) + threadIdx.x]);
  out[(static_cast<uint64_t>(blockIdx.x) * heads + head) * kHead + threadIdx.x] = o / sum;
}

std::vector<void*> owned;  // of the scene that is open
template <class T>
T* room(uint64_t count, int fill) {
  void* memory = nullptr;
  const uint64_t bytes = std::max<uint64_t>(count * sizeof(T), 256);
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMemset(memory, fill, bytes));
  owned.push_back(memory);
  return static_cast<T*>(memory);
}
template <class T>
T* to_device(const std::vector<T>& values) {
  T* const to = room<T>(values.size(), 0);
  CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

Device facts;
const Family *decode_family = &kSm90Decode, *prefill_family = &kSm90Prefill;
cudaStream_t stream;

// A batch over `copies` disjoint page tables of one cache.
class Scene {
 public:
  Scene(int heads, int kv_heads, int page, const std::vector<Request>& requests) : heads_(heads), requests_(requests) {
    int tokens = 0, longest = 0, longest_query = 0;
    uint64_t pages = 0;
    std::vector<int> starts{0}, lens;
    for (const Request& r : requests) {
      starts.push_back(tokens += r.query);
      lens.push_back(r.keys);
      longest = std::max(longest, r.keys), longest_query = std::max(longest_query, r.query);
      pages += (r.keys + page - 1) / page;
    }
    const int reqs = static_cast<int>(requests.size());
    width_ = (longest + page - 1) / page;
    cache_ = {nullptr, page, kv_heads};
    copies_ = static_cast<int>(std::clamp<uint64_t>((256ull << 20) / (pages * cache_.block() * sizeof(Element)) + 1, 1, 64));
    pages_ = pages * copies_;
    cache_.data = room<Element>(pages_ * cache_.block(), 0);
    draw<<<4096, 256>>>(cache_.data, pages_ * cache_.block(), 1ull << 40);
    std::vector<int> ids(pages_), tables(static_cast<size_t>(copies_) * reqs * width_, -1);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(3));
    for (size_t i = 0, next = 0; i < static_cast<size_t>(copies_) * reqs; ++i)
      for (int p = 0; p * page < lens[i % reqs]; ++p) tables[i * width_ + p] = ids[next++];
    tables_ = to_device(tables);
    starts_ = starts;
    const int* const device_lens = to_device(lens);
    for (int c = 0; c < copies_; ++c) poison<<<reqs, 256>>>(cache_, table(c), width_, device_lens);
    const uint64_t elements = static_cast<uint64_t>(tokens) * heads * kHead;
    q_ = room<Element>(elements, 0);
    draw<<<1024, 256>>>(q_, elements, 7ull << 40);
    out_ = room<Element>(elements, 0xff);
    lane_.problem = {kBF16, kBF16, kBF16, kHead, kHead, heads, kv_heads, page, 1, kCausal, -1, -1, kAlibiNone, 0, 0, 0, 0};
    lane_.device = facts;
    lane_.limits = {reqs, tokens, longest_query, longest, width_};
    batch_ = {to_device(starts), device_lens, nullptr, nullptr, nullptr, width_, reqs, tokens};
    CHECK(cudaDeviceSynchronize());
  }
  ~Scene() {
    CHECK(cudaDeviceSynchronize());
    for (void* memory : owned) CHECK(cudaFree(memory));
    owned.clear();
  }

  // Microseconds of a call of all the lanes, and the relative error of some rows.
  std::pair<double, double> measure(const std::vector<Part>& parts) {
    struct Ready {
      const Family* family;
      Lane lane;
      std::vector<Forward> calls;
    };
    std::vector<Ready> ready;
    for (const Part& part : parts) {
      Ready lane{part.family, lane_, {}};
      lane.lane.min_query = part.min_query, lane.lane.max_query = part.max_query;
      const Memory memory = part.family->memory(lane.lane);
      char* const scratch = room<char>(memory.scratch_bytes, 0);
      part.family->prepare(lane.lane);
      for (int c = 0; c < copies_; ++c) {
        Forward f = call();
        f.kept = room<Batch>(1, 0);
        f.persistent = room<char>(memory.persistent_bytes, 0);
        f.scratch = scratch;
        Update u{};
        u.batch = batch_;
        u.batch.block_table = table(c);
        u.kept = const_cast<Batch*>(f.kept);
        u.persistent = f.persistent;
        part.family->update(lane.lane, u, nullptr);
        lane.calls.push_back(f);
      }
      ready.push_back(lane);
    }
    CHECK(cudaDeviceSynchronize());
    const auto forward = [&](int c) {
      for (const Ready& lane : ready) lane.family->forward(lane.lane, lane.calls[c], stream);
    };
    CHECK(cudaMemset(out_, 0xff, static_cast<uint64_t>(batch_.num_tokens) * heads_ * kHead * sizeof(Element)));
    forward(0);
    CHECK(cudaStreamSynchronize(stream));
    const double error = compare();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int c = 0; c < copies_; ++c) forward(c);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaGraphLaunch(exec, stream));
    std::vector<double> times;
    for (double spent = 0; times.size() < 5 || (spent < 25 && times.size() < 30); spent += times.back() * copies_ / 1e3) {
      float ms = 0;
      CHECK(cudaEventRecord(begin, stream));
      CHECK(cudaGraphLaunch(exec, stream));
      CHECK(cudaEventRecord(end, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaEventElapsedTime(&ms, begin, end));
      times.push_back(1e3 * ms / copies_);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return {median(times), error};
  }

 private:
  const int* table(int copy) const { return tables_ + static_cast<int64_t>(copy) * requests_.size() * width_; }

  Forward call() const {
    Forward f{};
    const int64_t element = sizeof(Element), head = kHead * element, row = heads_ * head;
    f.q = {reinterpret_cast<char*>(q_), row, head};
    f.out = {reinterpret_cast<char*>(out_), row, head};
    f.k = {reinterpret_cast<char*>(cache_.data), head, cache_.page * head};
    f.v = {f.k.data + cache_.kv_heads * cache_.page * head, head, cache_.page * head};
    f.block_bytes = static_cast<int64_t>(cache_.block()) * element;
    f.num_blocks = pages_;
    f.num_tokens = batch_.num_tokens;
    f.lse_factor = 1;
    f.softmax_scale = 1 / std::sqrt(static_cast<float>(kHead));
    return f;
  }

  double compare() const {
    std::vector<Row> rows;
    for (size_t i = 0; i < requests_.size(); i += std::max<size_t>(1, requests_.size() / 6)) {
      const auto [query, keys] = requests_[i];
      for (const int row : {0, query / 3, query - 1})
        rows.push_back({starts_[i] + row, static_cast<int>(i), keys - query + row + 1});
    }
    std::vector<void*> before = std::exchange(owned, {});
    const uint64_t count = rows.size() * heads_;
    float *scores = room<float>(count * lane_.limits.max_seq_len, 0), *wanted = room<float>(count * kHead, 0);
    reference<<<dim3(static_cast<unsigned>(rows.size()), static_cast<unsigned>(heads_)), kHead>>>(
        to_device(rows), q_, cache_, table(0), width_, heads_, call().softmax_scale, scores, lane_.limits.max_seq_len, wanted);
    std::vector<float> right(count * kHead);
    std::vector<Element> got(heads_ * kHead);
    CHECK(cudaMemcpy(right.data(), wanted, right.size() * 4, cudaMemcpyDeviceToHost));
    double off = 0, size = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK(cudaMemcpy(got.data(), out_ + static_cast<uint64_t>(rows[i].token) * heads_ * kHead, got.size() * sizeof(Element),
                       cudaMemcpyDeviceToHost));
      for (size_t e = 0; e < got.size(); ++e) {
        const double x = right[i * got.size() + e], y = __bfloat162float(got[e]);
        off += (x - y) * (x - y), size += x * x;
      }
    }
    for (void* memory : std::exchange(owned, before)) CHECK(cudaFree(memory));
    return std::sqrt(off / size);
  }

  int heads_, width_ = 0, copies_ = 1;
  uint64_t pages_ = 0;
  std::vector<Request> requests_;
  std::vector<int> starts_;
  Cache cache_{};
  int* tables_ = nullptr;
  Element *q_ = nullptr, *out_ = nullptr;
  Lane lane_{};
  Batch batch_{};
};

bool say(const char* what, std::pair<double, double> measured) {
  const bool right = measured.second < 5e-3;
  std::printf("  %s %.1f us%s", what, measured.first, right ? "" : " WRONG");
  return right;
}

bool chunks() {
  const Part prefill{prefill_family, 0, kAnyQuery};
  bool right = true;
  const auto one = [&](const std::string& name, int page, const std::vector<Request>& requests, bool beside = false) {
    Scene scene(32, 8, page, requests);
    std::printf("%s, page %d:", name.c_str(), page);
    right &= say(beside ? "both lanes" : "prefill",
                 scene.measure(beside ? std::vector<Part>{{decode_family, 0, 4}, {prefill_family, 5, kAnyQuery}}
                                      : std::vector<Part>{prefill}));
    std::printf("\n");
    std::fflush(stdout);
  };
  for (const int page : {16, 64}) {
    for (const int keys : {8192, 32768})
      for (const int chunk : {128, 512, 1024, 2048}) one(anyattn::text("chunk ", chunk, " over ", keys), page, {{chunk, keys}});
    one("1 x 2048", page, {{2048, 2048}});
    one("4 x 4096", page, std::vector<Request>(4, {4096, 4096}));
    one("1 x 16384", page, {{16384, 16384}});
    for (const int chunk : {512, 1024, 2048}) {
      std::vector<Request> mixed(64, {1, 2048});
      mixed.push_back({chunk, chunk});
      one(anyattn::text("prompt ", chunk, " beside 64 decodes of 2048"), page, mixed, true);
    }
    one("256 over 24576, prompts 1100, 500, 240, 2000", page,
        {{256, 24576}, {1100, 1100}, {500, 500}, {240, 240}, {2000, 2000}});
  }
  return right;
}

bool tokens() {
  bool right = true;
  for (const int heads : {32, 64})
    for (const int batch : {1, 8, 64})
      for (const int keys : {2048, 32768})
        for (const int query : {1, 2, 4, 5, 8, 16}) {
          Scene scene(heads, 8, 64, std::vector<Request>(batch, {query, keys}));
          std::printf("heads %d of 8, %d x %d, %d tokens:", heads, batch, keys, query);
          right &= say("decode", scene.measure({{decode_family, 0, 16}}));
          right &= say("prefill", scene.measure({{prefill_family, 0, kAnyQuery}}));
          std::printf("\n");
          std::fflush(stdout);
        }
  return right;
}

}  // namespace

int main(int count, char** argument) {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  facts = {prop.major, prop.minor, prop.multiProcessorCount, static_cast<int>(prop.sharedMemPerBlockOptin)};
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  bool right = true;
  for (int i = 1; i < count; ++i) {
    const std::string what = argument[i];
    if (what == "sm80") decode_family = &kSm80Decode, prefill_family = &kSm80Prefill;
    if (what == "chunks") right &= chunks();
    if (what == "tokens") right &= tokens();
  }
  return right ? 0 : 1;
}
