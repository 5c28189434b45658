// SPDX-License-Identifier: Apache-2.0
// Times the backends of a plugin file on the first CUDA device: decode in graphs over cold tables, prefill rested. Checks
// every point against float32 first (caches with codes: against the rows before they were coded). No part of the build:
//   nvcc -O2 -std=c++20 -arch=sm_90 -I sdk/include -I plugins plugins/portable/measure/points.cu -o points
//   ./points FILE.so decode | prefill | mla [BATCHxCONTEXT]... [FORMAT]... [spread] [skew] [heads=QUERY/KV] [page=SIZE]
#include <anyattn/plugin.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_common/measure.cuh"

namespace {

using namespace anyattn::measure;

// What is asked: Llama-3.1-8B's heads, or DeepSeek-V3's latent ones.
struct Model {
  int heads = 32, kv_heads = 8, head = 128, head_v = 128;
  bool latent = false;
  std::string format = "bfloat16";
  int stored() const { return head + (latent ? 0 : head_v); }  // values of a token and kv head
  double row_bytes() const {                                   // of them in the cache
    if (format == "bfloat16") return 2.0 * stored();
    if (format == "fp8_ds_mla") return 656;
    if (format == "int4_per_token_head") return stored() / 2.0 + 8;
    return format.ends_with("_per_token_head") ? stored() + 8 : stored();
  }
  double tolerance() const {
    return format == "bfloat16"              ? 5e-3
           : format == "int8_per_token_head" ? 1.5e-2
           : format == "int4_per_token_head" ? 0.2
                                             : 5e-2;
  }
};
char words[2000];
anyattn_error error{words, sizeof words, 0, 0, 0};
void ok(int32_t status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "%s: %d %s\n", what, status, words);
  std::exit(1);
}

__global__ void draw(uint16_t* to, uint64_t count, uint64_t seed) {  // N(0, 1), bfloat16
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    to[i] = static_cast<uint16_t>((__float_as_uint(normal(seed + 2 * i, seed + 2 * i + 1)) + 0x8000u) >> 16);
  }
}
__device__ float wide(uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

// One block an output row and head, float32. Layout of a page: K [kv head][slot][head], then V.
constexpr int kRowsChecked = 4, kHeadsChecked = 3;
struct Reference {
  const uint16_t *q, *cache;
  const int* table[kRowsChecked];
  int row[kRowsChecked], keys[kRowsChecked], head_of[kHeadsChecked];
  int page, longest, heads, kv_heads, head, head_v, latent;
  float scale;
};
__global__ void reference(Reference r, float* scores, float* out) {  // [block][longest], [block][head_v]
  __shared__ float sums[256];
  const int row = r.row[blockIdx.x / kHeadsChecked], keys = r.keys[blockIdx.x / kHeadsChecked];
  const int head = r.head_of[blockIdx.x % kHeadsChecked], *table = r.table[blockIdx.x / kHeadsChecked];
  scores += static_cast<uint64_t>(blockIdx.x) * r.longest;
  out += blockIdx.x * r.head_v;
  const int kv = head / (r.heads / r.kv_heads);
  const auto at = [&](int key, int d, bool v) {
    const uint64_t rows = static_cast<uint64_t>(r.page) * r.kv_heads, own = static_cast<uint64_t>(kv) * r.page + key % r.page;
    const uint64_t block = table[key / r.page] * rows * (r.head + (r.latent ? 0 : r.head_v));
    return wide(r.cache[block + (v && !r.latent ? rows * r.head + own * r.head_v : own * r.head) + d]);
  };
  float top = -1e30f;
  for (int key = threadIdx.x; key < keys; key += 256) {
    float s = 0;
    for (int d = 0; d < r.head; ++d)
      s += wide(r.q[(static_cast<uint64_t>(row) * r.heads + head) * r.head + d]) * at(key, d, false);
    scores[key] = s * r.scale;
    top = fmaxf(top, scores[key]);
  }
  sums[threadIdx.x] = top;
  __syncthreads();
  for (int i = 0; i < 256; ++i) top = fmaxf(top, sums[i]);
  __syncthreads();
  float sum = 0;
  for (int key = threadIdx.x; key < keys; key += 256) sum += scores[key] = expf(scores[key] - top);
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 256; ++i) sum += sums[i];
  for (int d = threadIdx.x; d < r.head_v; d += 256) {
    float o = 0;
    for (int key = 0; key < keys; ++key) o += scores[key] * at(key, d, true);
    out[d] = o / sum;
  }
}

template <class T>
T* device(uint64_t count) {
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::max<uint64_t>(count * sizeof(T), 256)));
  return static_cast<T*>(memory);
}

anyattn_host host_table() {
  static anyattn_cpu_facts cpu{};
  cpu.struct_size = ANYATTN_CPU_FACTS_SIZE;
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
  host.log = [](void*, int32_t, const char*) {};
  host.num_workers = 1;
  host.cpu = &cpu;
  return host;
}

struct Tensor {
  int64_t shape[3], strides[3];
  anyattn_tensor t{};
  Tensor(void* data, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> steps, int code = 4, int bits = 16) {
    std::copy(sizes.begin(), sizes.end(), shape);
    std::copy(steps.begin(), steps.end(), strides);
    t.data = data;
    t.device_type = ANYATTN_DEVICE_CUDA;
    t.ndim = static_cast<int32_t>(sizes.size());
    t.dtype_code = static_cast<uint8_t>(code);
    t.dtype_bits = static_cast<uint8_t>(bits);
    t.dtype_lanes = 1;
    t.shape = shape;
    t.strides = strides;
  }
};

struct Subject {
  anyattn_host host = host_table();
  anyattn_backend backend{};
  anyattn_device_facts facts{};
};

// One problem at one point; `rotation` disjoint tables.
class Point {
 public:
  Point(const Subject& s, const Model& m, std::vector<int> lens, int query, int page, uint64_t seed)
      : s_(s), m_(m), lens_(std::move(lens)), query_(query), page_(page) {
    batch_ = static_cast<int>(lens_.size());
    longest_ = *std::max_element(lens_.begin(), lens_.end());
    width_ = (longest_ + page - 1) / page;
    uint64_t pages_each = 0;
    double bytes = 0;
    for (int n : lens_) pages_each += (n + page - 1) / page, bytes += m.row_bytes() * m.kv_heads * n;
    rows_ = batch_ * query;
    bytes_ = static_cast<uint64_t>(bytes + 2.0 * rows_ * m.heads * (m.head + m.head_v));
    rotation_ = static_cast<int>(std::min<double>(m.latent ? 256 : 128, (256 << 20) / bytes + 1));
    pages_ = pages_each * rotation_;
    plain_ = device<uint16_t>(pages_ * page * m.kv_heads * m.stored());
    q_ = device<uint16_t>(static_cast<uint64_t>(rows_) * m.heads * m.head);
    out_ = device<uint16_t>(static_cast<uint64_t>(rows_) * m.heads * m.head_v);
    draw<<<4096, 256>>>(plain_, pages_ * page * m.kv_heads * m.stored(), seed << 40);
    draw<<<1024, 256>>>(q_, static_cast<uint64_t>(rows_) * m.heads * m.head, seed << 40 | 7);
    std::vector<int> ids(pages_);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
    tables_ = device<int>(static_cast<uint64_t>(rotation_) * batch_ * width_);
    std::vector<int> tables(static_cast<size_t>(rotation_) * batch_ * width_, -1);
    size_t next = 0;
    for (int r = 0; r < rotation_; ++r)
      for (int b = 0; b < batch_; ++b)
        for (int i = 0; i < (lens_[b] + page - 1) / page; ++i)
          tables[(static_cast<size_t>(r) * batch_ + b) * width_ + i] = ids[next++];
    CHECK(cudaMemcpy(tables_, tables.data(), tables.size() * 4, cudaMemcpyHostToDevice));
    std::vector<int> starts(batch_ + 1);
    for (int b = 0; b <= batch_; ++b) starts[b] = b * query;
    starts_ = device<int>(batch_ + 1);
    lens_device_ = device<int>(batch_);
    CHECK(cudaMemcpy(starts_, starts.data(), starts.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(lens_device_, lens_.data(), lens_.size() * 4, cudaMemcpyHostToDevice));
    make();
    if (m.format != "bfloat16") store();
  }
  ~Point() {
    for (auto* m : metadata_) s_.backend.metadata_destroy(m);
    s_.backend.impl_destroy(impl_);
    if (cache_ != plain_) CHECK(cudaFree(cache_));
    for (void* p : {static_cast<void*>(plain_), static_cast<void*>(q_), static_cast<void*>(out_), static_cast<void*>(tables_),
                    static_cast<void*>(starts_), static_cast<void*>(lens_device_), persistent_, scratch_})
      CHECK(cudaFree(p));
  }

  void call(int r, cudaStream_t stream) {
    const int64_t heads = m_.heads, head = m_.head, head_v = m_.head_v;
    const anyattn_cache cache = whole_cache();
    Tensor out(out_, {rows_, heads, head_v}, {heads * head_v, head_v, 1});
    if (m_.latent) {
      Tensor latent(q_, {rows_, heads, head_v}, {heads * head, head, 1}),
          rope(q_ + head_v, {rows_, heads, head - head_v}, {heads * head, head, 1});
      anyattn_mqa_args args{};
      args.struct_size = ANYATTN_MQA_ARGS_SIZE;
      args.softmax_scale = scale();
      args.q_latent = latent.t;
      args.q_pe = rope.t;
      args.out = out.t;
      args.cache = &cache;
      args.scratch = scratch_;
      args.stream = stream;
      return ok(s_.backend.forward_mqa(impl_, metadata_[r], &args, &error), "forward_mqa");
    }
    Tensor q(q_, {rows_, heads, head}, {heads * head, head, 1});
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.lse_base = 1;
    args.softmax_scale = scale();
    args.q = q.t;
    args.out = out.t;
    args.cache = &cache;
    args.scratch = scratch_;
    args.stream = stream;
    ok(s_.backend.forward(impl_, metadata_[r], &args, &error), "forward");
  }
  int rotation() const { return rotation_; }
  uint64_t bytes() const { return bytes_; }

  // Relative error of up to 4 rows x 3 heads against float32.
  double check(cudaStream_t stream) {
    const size_t count = static_cast<size_t>(rows_) * m_.heads * m_.head_v;
    CHECK(cudaMemset(out_, 0xff, 2 * count));
    call(0, stream);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<uint16_t> got(count);
    CHECK(cudaMemcpy(got.data(), out_, got.size() * 2, cudaMemcpyDeviceToHost));
    constexpr int kBlocks = kRowsChecked * kHeadsChecked;
    float *scores = device<float>(static_cast<uint64_t>(kBlocks) * longest_), *out = device<float>(kBlocks * m_.head_v);
    double off = 0, norm = 0;
    const auto value = [](uint16_t bits) {
      const uint32_t w = static_cast<uint32_t>(bits) << 16;
      float f;
      std::memcpy(&f, &w, 4);
      return f;
    };
    for (const uint16_t bits : got)
      if (!std::isfinite(value(bits))) return 1e9;
    Reference r{q_,       plain_,      {},      {},        {},        {0, m_.heads / 2 - 3, m_.heads - 1}, page_, longest_,
                m_.heads, m_.kv_heads, m_.head, m_.head_v, m_.latent, static_cast<float>(scale())};
    for (int i = 0; i < kRowsChecked; ++i) {
      r.row[i] = static_cast<int>(static_cast<int64_t>(rows_ - 1) * i / (kRowsChecked - 1));
      const int b = r.row[i] / query_;
      r.keys[i] = lens_[b] - query_ + r.row[i] % query_ + 1;
      r.table[i] = tables_ + b * width_;
    }
    reference<<<kBlocks, 256>>>(r, scores, out);
    std::vector<float> wanted(kBlocks * m_.head_v);
    CHECK(cudaMemcpy(wanted.data(), out, wanted.size() * 4, cudaMemcpyDeviceToHost));
    for (int block = 0; block < kBlocks; ++block)
      for (int d = 0; d < m_.head_v; ++d) {
        const int row = r.row[block / kHeadsChecked], head = r.head_of[block % kHeadsChecked];
        const double g = value(got[(static_cast<size_t>(row) * m_.heads + head) * m_.head_v + d]);
        const double w = wanted[static_cast<size_t>(block) * m_.head_v + d];
        off += (g - w) * (g - w);
        norm += w * w;
      }
    CHECK(cudaFree(scores));
    CHECK(cudaFree(out));
    return std::sqrt(off / norm);
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(m_.latent ? 192 : m_.head)); }
  anyattn_cache whole_cache() const { return {ANYATTN_CACHE_SIZE, 0, cache_, spec_.block_bytes, pages_, &spec_}; }

  // The plain rows into a cache of the format, a page a call.
  void store() {
    const int64_t page = page_, heads = m_.kv_heads, head = m_.head, head_v = m_.head_v;
    std::vector<int64_t> numbers(pages_ * page);
    std::iota(numbers.begin(), numbers.end(), 0);
    int64_t* slots = device<int64_t>(numbers.size());
    CHECK(cudaMemcpy(slots, numbers.data(), numbers.size() * 8, cudaMemcpyHostToDevice));
    const anyattn_cache cache = whole_cache();
    for (uint64_t i = 0; i < pages_; ++i) {
      uint16_t* rows = plain_ + i * page * heads * m_.stored();
      Tensor slot(slots + i * page, {page}, {1}, 0, 64);
      Tensor k(rows, {page, heads, head}, {head, page * head, 1}),
          v(rows + page * heads * head, {page, heads, head_v}, {head_v, page * head_v, 1});
      Tensor latent(rows, {page, head_v}, {head, 1}), rope(rows + head_v, {page, head - head_v}, {head, 1});
      anyattn_kv_cache_update_args args{};
      args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
      args.slot_mapping = slot.t;
      args.cache = &cache;
      if (m_.latent)
        args.kv_c = latent.t, args.k_pe = rope.t;
      else
        args.k = k.t, args.v = v.t;
      ok(s_.backend.kv_cache_update(impl_, &args, &error), "kv_cache_update");
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(slots));
  }

  void make() {
    uint64_t features[1] = {m_.latent ? 1ull << ANYATTN_FEATURE_MLA : 0};
    anyattn_problem p{};
    p.struct_size = ANYATTN_PROBLEM_SIZE;
    p.num_feature_words = 1;
    p.features = features;
    p.num_q_heads = static_cast<uint32_t>(m_.heads);
    p.num_kv_heads = static_cast<uint32_t>(m_.kv_heads);
    p.head_size = static_cast<uint32_t>(m_.head);
    p.head_size_v = static_cast<uint32_t>(m_.head_v);
    p.q_dtype = p.out_dtype = ANYATTN_DTYPE_BFLOAT16;
    p.kv_cache_dtype = m_.format.c_str();
    p.block_size = static_cast<uint32_t>(page_);
    if (m_.latent) {
      p.kv_lora_rank = 512;
      p.qk_rope_head_dim = 64;
      p.qk_nope_head_dim = p.v_head_dim = 128;
    }
    ok(s_.backend.kv_cache_spec(
           &s_.host, &s_.facts, &p,
           [](void* self, const anyattn_kv_cache_spec* given) {
             auto& point = *static_cast<Point*>(self);
             if (!point.planes_.empty()) return;
             point.planes_.assign(given->planes, given->planes + given->num_planes);
             point.spec_ = *given;
             point.spec_.planes = point.planes_.data();
             point.spec_.name = "HND";
           },
           this, &error),
       "kv_cache_spec");
    cache_ = m_.format == "bfloat16" ? static_cast<void*>(plain_) : device<char>(pages_ * spec_.block_bytes);
    ok(s_.backend.impl_create(&s_.host, &s_.facts, &p, &spec_, &impl_, &error), "impl_create");
    const anyattn_limits limits{ANYATTN_LIMITS_SIZE,           static_cast<uint32_t>(batch_),   static_cast<uint32_t>(rows_),
                                static_cast<uint32_t>(query_), static_cast<uint32_t>(longest_), static_cast<uint32_t>(width_)};
    anyattn_memory memory{};
    memory.struct_size = ANYATTN_MEMORY_SIZE;
    ok(s_.backend.memory(impl_, &limits, &memory, &error), "memory");
    scratch_ = device<char>(memory.scratch_bytes);
    const uint64_t each = (memory.persistent_bytes + 255) / 256 * 256;
    persistent_ = device<char>(each * rotation_);
    CHECK(cudaMemset(persistent_, 0, each * rotation_));
    uint32_t level = 0;
    ok(s_.backend.warmup(impl_, &limits, nullptr, scratch_, &level, &error), "warmup");
    for (int r = 0; r < rotation_; ++r) {
      anyattn_metadata* m = nullptr;
      ok(s_.backend.metadata_create(impl_, &limits, ANYATTN_METADATA_GRAPH_CAPTURE, static_cast<char*>(persistent_) + each * r,
                                    nullptr, &m, &error),
         "metadata_create");
      anyattn_batch b{};
      b.struct_size = ANYATTN_BATCH_SIZE;
      b.num_reqs = static_cast<uint32_t>(batch_);
      b.num_tokens = static_cast<uint32_t>(rows_);
      b.max_query_len = static_cast<uint32_t>(query_);
      b.max_seq_len = static_cast<uint32_t>(longest_);
      b.query_start_loc = starts_;
      b.seq_lens = lens_device_;
      b.block_table = tables_ + static_cast<size_t>(r) * batch_ * width_;
      b.block_table_stride = width_;
      ok(s_.backend.metadata_update(m, &b, nullptr, &error), "metadata_update");
      metadata_.push_back(m);
    }
    CHECK(cudaDeviceSynchronize());
  }

  const Subject& s_;
  const Model m_;
  std::vector<int> lens_;
  int query_, page_, batch_, longest_, width_, rows_, rotation_;
  uint64_t bytes_, pages_;
  uint16_t *plain_, *q_, *out_;
  int *tables_, *starts_, *lens_device_;
  void *cache_ = nullptr, *scratch_, *persistent_;
  std::vector<anyattn_plane> planes_;
  anyattn_kv_cache_spec spec_{};
  anyattn_impl* impl_ = nullptr;
  std::vector<anyattn_metadata*> metadata_;
};

uint4* light_weights;
float *light_x, *light_y;

template <class F>
double graph_us(cudaStream_t stream, int calls, F&& record, double pause_s = 0) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  record();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::vector<double> times;
  double spent = 0;
  for (int i = 0; i < (pause_s > 0 ? 10 : 30) && (i < 5 || spent < 40); ++i) {
    if (pause_s > 0) {  // rested: a pause, a millisecond of light work that brings the clock back, one replay
      usleep(static_cast<unsigned>(pause_s * 1e6));
      for (int n = 0; n < 20; ++n) multiply<<<1024, 256, 0, stream>>>(light_weights, light_x, light_y);
    }
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

}  // namespace

int main(int count, char** argument) {
  if (count < 3) return 2;
  const std::string what = argument[2];
  Subject s;
  void* library = dlopen(argument[1], RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto entry = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(library, ANYATTN_PLUGIN_ENTRY_NAME));
  const anyattn_plugin* plugin = nullptr;
  ok(entry(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, &s.host, &plugin, &error), "entry");
  s.backend = *plugin->backends[what == "mla"];
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  s.facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  s.facts.device_kind = ANYATTN_DEVICE_CUDA;
  s.facts.arch_major = 9;
  s.facts.num_multiprocessors = static_cast<uint32_t>(prop.multiProcessorCount);
  s.facts.warp_size = 32;
  s.facts.shared_memory_per_block = static_cast<uint32_t>(prop.sharedMemPerBlockOptin);
  s.facts.memory_bytes = prop.totalGlobalMem;
  s.facts.compiler_version = 13000;
  s.facts.architecture = "sm_90";
  s.facts.name = prop.name;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  uint4* weights = reinterpret_cast<uint4*>(device<uint16_t>(8192ull * 8192));
  draw<<<4096, 256>>>(reinterpret_cast<uint16_t*>(weights), 8192ull * 8192, 99);
  float *x = device<float>(8192), *y = device<float>(8192);
  CHECK(cudaMemset(x, 0x3e, 8192 * 4));
  light_weights = weights;
  light_x = x;
  light_y = y;
  const double between = graph_us(stream, 32, [&] {
    for (int i = 0; i < 32; ++i) multiply<<<1024, 256, 0, stream>>>(weights, x, y);
  });
  std::printf("neighbour %.2f us\n", between);

  std::vector<std::string> formats, points;
  std::vector<int> pages = {16, 64};
  Model plain;
  for (int i = 3; i < count; ++i) {
    const std::string word = argument[i];
    if (word.starts_with("heads="))
      std::sscanf(argument[i], "heads=%d/%d", &plain.heads, &plain.kv_heads);
    else if (word.starts_with("page="))
      pages = {std::atoi(argument[i] + 5)};
    else
      (std::isdigit(word[0]) || word == "spread" || word == "skew" ? points : formats).push_back(word);
  }
  const auto wanted = [&](size_t batch, int n) {
    return points.empty() || std::ranges::count(points, std::to_string(batch) + "x" + std::to_string(n));
  };
  if (formats.empty()) formats.push_back("bfloat16");
  // Back to back; with `in_model` also with the neighbour between two calls, its time taken off.
  const auto time_decode = [&](const Model& m, const std::vector<int>& lens, int page, const char* name, bool in_model) {
    Point point(s, m, lens, 1, page, 5);
    const double off = point.check(stream);
    const int calls = point.rotation();
    const double back = graph_us(stream, calls, [&] {
      for (int r = 0; r < calls; ++r) point.call(r, stream);
    });
    const double model = in_model ? graph_us(stream, calls,
                                             [&] {
                                               for (int r = 0; r < calls; ++r) {
                                                 multiply<<<1024, 256, 0, stream>>>(weights, x, y);
                                                 point.call(r, stream);
                                               }
                                             }) -
                                        between
                                  : 0;
    std::printf("%s page %d heads %d batch %zu ctx %d%s: back %.1f us (%.0f GB/s) in-model %.1f us error %.1e %s\n",
                m.format.c_str(), page, m.heads, lens.size(), lens[0], name, back,
                1e-3 * static_cast<double>(point.bytes()) / back, model, off, off < m.tolerance() ? "ok" : "WRONG");
    std::fflush(stdout);
    if (!(off < m.tolerance())) std::exit(1);
  };

  if (what == "decode") {
    struct Shape {
      const char* name;
      std::vector<int> lens;
    };
    std::vector<Shape> shapes;
    for (int batch : {1, 8, 64, 256})
      for (int n : {500, 1000, 2048, 8192, 32768}) {
        if (n == 1000 && batch > 8) continue;
        if (wanted(static_cast<size_t>(batch), n)) shapes.push_back({"", std::vector<int>(batch, n)});
      }
    std::mt19937_64 generator(64);
    std::vector<int> spread(64), skew(64, 512);
    for (int& n : spread) n = static_cast<int>(std::exp2(7 + 7 * std::uniform_real_distribution<>(0, 1)(generator)));
    skew[17] = 32768;
    for (const auto& [name, lens] : {Shape{"spread", spread}, Shape{"skew", skew}})
      if (points.empty() || std::ranges::count(points, name)) shapes.push_back({name, lens});
    for (const std::string& point : points) {  // whatever else is asked
      int batch = 0, n = 0;
      if (std::sscanf(point.c_str(), "%dx%d", &batch, &n) == 2 &&
          std::ranges::none_of(shapes, [&](const Shape& s) { return s.lens == std::vector<int>(batch, n); }))
        shapes.push_back({"", std::vector<int>(batch, n)});
    }
    for (const std::string& format : formats)
      for (int page : pages)
        for (const Shape& shape : shapes) {
          plain.format = format;
          time_decode(plain, shape.lens, page, shape.name, shape.lens.size() <= 8);
        }
  } else if (what == "mla") {  // page 64, back to back
    for (const std::string& format : formats)
      for (int heads : {16, 128})
        for (int batch : {1, 32, 128})
          for (int n : {1024, 4096, 16384}) {
            if (!wanted(static_cast<size_t>(batch), n)) continue;
            time_decode({.heads = heads, .kv_heads = 1, .head = 576, .head_v = 512, .latent = true, .format = format},
                        std::vector<int>(static_cast<size_t>(batch), n), 64, "", false);
          }
  } else {
    for (const auto& [batch, n] : {std::pair(1, 512), {1, 2048}, {4, 4096}, {1, 16384}}) {
      if (!wanted(static_cast<size_t>(batch), n)) continue;
      const Model m;
      Point point(s, m, std::vector<int>(static_cast<size_t>(batch), n), n, 16, 6);
      const double off = point.check(stream);
      const double us = graph_us(stream, 1, [&] { point.call(0, stream); }, 0.1);
      std::printf("prefill batch %d len %d causal: %.1f us %.0f TFLOP/s error %.1e %s\n", batch, n, us,
                  2e-6 * batch * m.heads * n * static_cast<double>(n) * m.head / us, off, off < 5e-3 ? "ok" : "WRONG");
      std::fflush(stdout);
      if (!(off < 5e-3)) return 1;
    }
  }
}
