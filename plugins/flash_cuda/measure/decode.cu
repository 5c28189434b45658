// SPDX-License-Identifier: Apache-2.0
// Checks decode of sm_90, or of the general path, against float32, then times it: graphs over cold page tables. No part of the build:
//   nvcc -O3 -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -I plugins -I plugins/flash_cuda
//     -I sdk/cpp/include -I sdk/include -I BUILT plugins/flash_cuda/measure/decode.cu plugins/flash_cuda/sm90/decode.cu
//     plugins/flash_cuda/sm80/launch.cu BUILT/kernels/{decode,attend}_*.cu -o decode      (BUILT: build/release/plugins/flash_cuda)
//   ./decode [sm80] check | smallest | few | all | ragged | sizes | one, then a page size or 0, then fp8 or bf16, of one also batch and
//     context (sm80: the general path)
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <anyattn/error.hpp>

#include "decode_limits.cuh"
#include "decode_point.cuh"

namespace {

using namespace anyattn::flash;
using namespace anyattn::measure;

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
  if (count > 1 && std::string(argument[1]) == "sm80") {
    family = &kSm80Decode;
    --count, ++argument;
  }
  const std::string what = count > 1 ? argument[1] : "check";
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  facts = {prop.major, prop.minor, prop.multiProcessorCount, static_cast<int>(prop.sharedMemPerBlockOptin)};
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (what == "check") return checks(stream);
  if (what == "smallest") return smallest(stream);

  const Neighbour neighbour(stream);
  std::printf("neighbour %.2f us, reading %.0f GB/s\n", neighbour.us(),
              reading_rate(stream, 8ull << 30, facts.num_multiprocessors));
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
  double warm_ms = 300;  // of the first point, which would be read slower than later ones
  const auto time = [&]<class Point>(Point& point, const std::string& name, bool between_calls) {
    const double off = point.check(stream, 4, 3);
    const int calls = point.rotation();
    const double back = graph_us(
        stream, calls,
        [&] {
          for (int r = 0; r < calls; ++r) point.call(r, stream);
        },
        std::exchange(warm_ms, 0));
    const double model = !between_calls ? 0 : graph_us(stream, calls, [&] {
                                                for (int r = 0; r < calls; ++r) {
                                                  neighbour.call();
                                                  point.call(r, stream);
                                                }
                                              }) - neighbour.us();
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
