// SPDX-License-Identifier: Apache-2.0
// The built plugin with and without the pass over a shared prefix: compared with each other, then timed. No part of the build:
//   nvcc -O2 -std=c++20 -arch=sm_90 -I sdk/include -I plugins -I plugins/flash_cuda plugins/flash_cuda/measure/cascade.cu -o cascade
//   ./cascade PLUGIN.so check | border | few | all | once | empty [QUERY_HEADS BLOCK_SIZE]
// 8 kv heads of 128, bfloat16, if nothing else is said 32 query heads and blocks of 64; every call with tables of its own until the
// keys are 256 MiB.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "anyattn/plugin.h"
#include "cascade.h"
#include "cuda_common/measure_graph.cuh"

namespace {

using namespace anyattn::measure;

constexpr int kKvHeads = 8, kHead = 128;
int heads = 32, block = 64;
int64_t block_elements() { return 2ll * block * kKvHeads * kHead; }

char words[512];
anyattn_error error{words, sizeof words, 0, 0, 0};
void good(int32_t status, const char* what) {
  if (status == ANYATTN_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, words);
  std::exit(1);
}

const anyattn_backend* backend;
anyattn_device_facts facts{};

// One impl with its option, and what it has said.
struct Impl {
  explicit Impl(const char* cascade) {
    option = {ANYATTN_OPTION_SIZE, 0, "cascade", cascade};
    host.struct_size = ANYATTN_HOST_SIZE;
    host.abi_version = ANYATTN_ABI_VERSION_CURRENT;
    host.context = this;
    host.log = [](void* self, int32_t, const char* line) { static_cast<Impl*>(self)->line = line; };
    host.num_options = 1;
    host.option_stride = sizeof option;
    host.options = &option;
    features = (1ull << ANYATTN_FEATURE_LSE);
    problem.struct_size = ANYATTN_PROBLEM_SIZE;
    problem.num_feature_words = 1;
    problem.features = &features;
    problem.num_q_heads = heads;
    problem.num_kv_heads = kKvHeads;
    problem.head_size = problem.head_size_v = kHead;
    problem.q_dtype = problem.out_dtype = ANYATTN_DTYPE_BFLOAT16;
    problem.kv_cache_dtype = "bfloat16";
    problem.block_size = block;
    const auto accept = [](void* context, const anyattn_kv_cache_spec* given) {
      auto& self = *static_cast<Impl*>(context);
      if (self.impl) return;
      self.planes.assign(given->planes, given->planes + given->num_planes);
      self.spec = *given;
      self.spec.planes = self.planes.data();
      good(backend->impl_create(&self.host, &facts, &self.problem, given, &self.impl, &error), "impl_create");
    };
    good(backend->kv_cache_spec(&host, &facts, &problem, accept, this, &error), "kv_cache_spec");
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { backend->impl_destroy(impl); }

  anyattn_option option{};
  anyattn_host host{};
  uint64_t features = 0;
  anyattn_problem problem{};
  std::vector<anyattn_plane> planes;
  anyattn_kv_cache_spec spec{};
  anyattn_impl* impl = nullptr;
  std::string line;
};

struct Shape {
  int reqs = 64, prefix = 2048, own = 256, query = 1;
};

// Tables, lengths and tensors of a shape; `rotation` disjoint sets of blocks.
struct Data {
  explicit Data(const Shape& s) : shape(s) {
    const int shared_blocks = s.prefix / block, own_blocks = (s.own + block - 1) / block;
    width = shared_blocks + own_blocks;
    const int64_t each = shared_blocks + static_cast<int64_t>(own_blocks) * s.reqs;
    rotation = static_cast<int>(std::min<int64_t>(64, (256ll << 20) / (each * block_elements() * 2) + 1));
    num_blocks = each * rotation;
    cache = device<__nv_bfloat16>(num_blocks * block_elements());
    draw<<<4096, 256>>>(cache, num_blocks * block_elements(), 1ull << 40);
    tokens = s.reqs * s.query;
    q = device<__nv_bfloat16>(tokens * heads * kHead);
    draw<<<1024, 256>>>(q, tokens * heads * kHead, 2ull << 40);
    std::vector<int32_t> table, at(s.reqs + 1), lens(s.reqs, s.prefix + s.own);
    for (int r = 0; r < rotation; ++r)
      for (int b = 0; b < s.reqs; ++b)
        for (int i = 0; i < width; ++i) {
          const int64_t at_block = i < shared_blocks ? i : shared_blocks + b * own_blocks + i - shared_blocks;
          table.push_back(static_cast<int32_t>(at_block + r * each));
        }
    for (int b = 0; b <= s.reqs; ++b) at[b] = b * s.query;
    tables = device(table);
    starts = device(at);
    seq_lens = device(lens);
    CHECK(cudaDeviceSynchronize());
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() {
    CHECK(cudaDeviceSynchronize());
    for (void* p : {static_cast<void*>(cache), static_cast<void*>(q), static_cast<void*>(tables), static_cast<void*>(starts),
                    static_cast<void*>(seq_lens)})
      CHECK(cudaFree(p));
  }
  anyattn_batch batch(int r, int shared) const {
    anyattn_batch b{};
    b.struct_size = ANYATTN_BATCH_SIZE;
    b.num_reqs = shape.reqs;
    b.num_tokens = tokens;
    b.max_query_len = shape.query;
    b.max_seq_len = shape.prefix + shape.own;
    b.shared_prefix_len = shared;
    b.query_start_loc = starts;
    b.seq_lens = seq_lens;
    b.block_table = tables + static_cast<int64_t>(r) * shape.reqs * width;
    b.block_table_stride = width;
    return b;
  }
  anyattn_limits limits() const {
    return {ANYATTN_LIMITS_SIZE,
            static_cast<uint32_t>(shape.reqs),
            static_cast<uint32_t>(tokens),
            static_cast<uint32_t>(shape.query),
            static_cast<uint32_t>(shape.prefix + shape.own),
            static_cast<uint32_t>(width)};
  }

  Shape shape;
  int width, rotation, tokens;
  int64_t num_blocks;
  __nv_bfloat16 *cache, *q;
  int32_t *tables, *starts, *seq_lens;
};

// An impl's memory and metadata, one for each set of blocks.
struct Calls {
  Calls(const Impl& impl_of, const Data& data_of, uint32_t mode, int first_shared, int shared) : impl(impl_of), data(data_of) {
    const anyattn_limits limits = data.limits();
    anyattn_memory memory{};
    memory.struct_size = ANYATTN_MEMORY_SIZE;
    good(backend->memory(impl.impl, &limits, &memory, &error), "memory");
    scratch = device<char>(memory.scratch_bytes, 0xff);
    out = device<__nv_bfloat16>(static_cast<uint64_t>(data.tokens) * heads * kHead);
    uint32_t level = 0;
    good(backend->warmup(impl.impl, &limits, nullptr, scratch, &level, &error), "warmup");
    for (int r = 0; r < data.rotation; ++r) {
      persistent.push_back(device<char>(memory.persistent_bytes));
      anyattn_metadata* made = nullptr;
      good(backend->metadata_create(impl.impl, &limits, mode, persistent.back(), nullptr, &made, &error), "metadata_create");
      for (int value : {first_shared, shared}) {
        const anyattn_batch batch = data.batch(r, value);
        good(backend->metadata_update(made, &batch, nullptr, &error), "metadata_update");
        CHECK(cudaDeviceSynchronize());
      }
      metadata.push_back(made);
    }
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() {
    CHECK(cudaDeviceSynchronize());
    for (auto* one : metadata) backend->metadata_destroy(one);
    for (auto* one : persistent) CHECK(cudaFree(one));
    CHECK(cudaFree(scratch));
    CHECK(cudaFree(out));
  }
  void call(int r, cudaStream_t stream) {
    int64_t shape[3] = {data.tokens, heads, kHead}, strides[3] = {heads * kHead, kHead, 1};
    const auto tensor = [&](void* at) {
      anyattn_tensor t{};
      t.data = at;
      t.device_type = ANYATTN_DEVICE_CUDA;
      t.ndim = 3;
      t.dtype_code = 4;
      t.dtype_bits = 16;
      t.dtype_lanes = 1;
      t.shape = shape;
      t.strides = strides;
      return t;
    };
    anyattn_cache cache{};
    cache.struct_size = ANYATTN_CACHE_SIZE;
    cache.base = data.cache;
    cache.block_stride_bytes = block_elements() * 2;
    cache.num_blocks = static_cast<uint64_t>(data.num_blocks);
    cache.spec = &impl.spec;
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.softmax_scale = 1 / std::sqrt(static_cast<double>(kHead));
    args.q = tensor(data.q);
    args.out = tensor(out);
    args.cache = &cache;
    args.scratch = scratch;
    args.stream = stream;
    good(backend->forward(impl.impl, metadata[r], &args, &error), "forward");
  }
  double us(cudaStream_t stream) {
    const int calls = std::max(8, data.rotation);
    return graph_us(stream, calls, [&] {
      for (int i = 0; i < calls; ++i) call(i % data.rotation, stream);
    });
  }
  std::vector<float> result(cudaStream_t stream) {
    const size_t count = static_cast<size_t>(data.tokens) * heads * kHead;
    CHECK(cudaMemset(out, 0xff, count * 2));
    call(0, stream);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<__nv_bfloat16> got(count);
    CHECK(cudaMemcpy(got.data(), out, count * 2, cudaMemcpyDeviceToHost));
    std::vector<float> all(count);
    for (size_t i = 0; i < count; ++i) all[i] = static_cast<float>(got[i]);
    return all;
  }

  const Impl& impl;
  const Data& data;
  char* scratch;
  __nv_bfloat16* out;
  std::vector<char*> persistent;
  std::vector<anyattn_metadata*> metadata;
};

double difference(const std::vector<float>& a, const std::vector<float>& b) {  // relative, in the 2-norm
  double off = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(off / norm);
}

}  // namespace

int main(int count, char** argument) {
  if (count < 3)
    return std::fprintf(stderr,
                        "usage: cascade PLUGIN.so check | border | few | all | once | empty [QUERY_HEADS BLOCK_SIZE]\n"),
           2;
  const std::string what = argument[2];
  if (count > 4) heads = std::atoi(argument[3]), block = std::atoi(argument[4]);
  void* file = dlopen(argument[1], RTLD_NOW | RTLD_LOCAL);
  if (!file) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  const auto enter = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(file, ANYATTN_PLUGIN_ENTRY_NAME));
  const anyattn_plugin* plugin = nullptr;
  good(enter(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, nullptr, &plugin, &error), "entry");
  backend = plugin->backends[0];
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = ANYATTN_DEVICE_CUDA;
  facts.arch_major = prop.major;
  facts.arch_minor = prop.minor;
  facts.num_multiprocessors = prop.multiProcessorCount;
  facts.shared_memory_per_block = static_cast<uint32_t>(prop.sharedMemPerBlockOptin);
  facts.architecture = "sm_90";
  facts.name = prop.name;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  const Impl off("off"), always("always");
  std::printf("%s\n", Impl("auto").line.c_str());
  anyattn::flash::Problem problem{};
  problem.dtype = problem.kv_dtype = problem.out_dtype = anyattn::flash::kBF16;
  problem.head_size = problem.head_size_v = kHead;
  problem.num_q_heads = heads;
  problem.num_kv_heads = kKvHeads;
  const auto model = anyattn::flash::cascade_model({prop.major, prop.minor, prop.multiProcessorCount, 0}, problem);
  if (what == "empty") {  // a graph whose batches may share and do not
    for (int reqs : {8, 64, 256}) {
      const Data data({reqs, 448, 64, 1});
      Calls plain(off, data, ANYATTN_METADATA_GRAPH_CAPTURE, 0, 0), idle(always, data, ANYATTN_METADATA_GRAPH_CAPTURE, 448, 0);
      std::printf("%d x 512: %.1f us, with an idle pass %.1f\n", reqs, plain.us(stream), idle.us(stream));
    }
    return 0;
  }
  std::vector<Shape> shapes;
  if (what == "check") shapes = {{9, 256, 64, 1}, {40, 512, 100, 1}, {33, 384, 200, 4}};
  if (what == "few" || what == "once") shapes = {{64, 2048, 256, 1}, {64, 8192, 256, 1}, {256, 2048, 256, 1}};
  if (what == "border")
    for (int prefix : {512, 2048, 8192, 32768})
      for (int reqs : {8, 16, 64, 256})
        for (int own : {128, 512}) shapes.push_back({reqs, prefix, own, 1});
  if (what == "all")
    for (int prefix : {256, 512, 1024, 2048, 4096, 8192, 16384, 32768})
      for (int reqs : {2, 4, 8, 12, 16, 32, 64, 128, 256}) shapes.push_back({reqs, prefix, 128, 1});
  if (what == "all") shapes.push_back({64, 8192, 256, 4});
  int wrong = 0;
  for (const Shape& s : shapes) {
    const Data data(s);
    Calls plain(off, data, ANYATTN_METADATA_NORMAL, s.prefix, s.prefix);
    Calls pass(always, data, ANYATTN_METADATA_NORMAL, s.prefix, s.prefix);
    const double difference_of = difference(pass.result(stream), plain.result(stream));
    wrong += !(difference_of < 6e-3);
    std::printf("%4d requests, prefix %5d, own %4d, query %d: difference %.1e", s.reqs, s.prefix, s.own, s.query,
                difference_of);
    if (what != "check" && what != "once") {
      const double without = plain.us(stream), with = pass.us(stream);
      std::printf(" without %.1f us, with %.1f (%.2f)  model %.1f, %.1f%s", without, with, without / with,
                  model.without(s.reqs, s.prefix), model.with(data.tokens, s.prefix),
                  (with < without) == model.pays(s.reqs, data.tokens, s.prefix) ? "" : "  wrong side");
    }
    std::printf("%s\n", difference_of < 6e-3 ? "" : " WRONG");
    std::fflush(stdout);
  }
  return wrong != 0;
}
