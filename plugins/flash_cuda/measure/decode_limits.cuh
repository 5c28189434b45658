// SPDX-License-Identifier: Apache-2.0
// What stands around the times of decode: the neighbour between two calls of a model, the rate of reading. Included by decode.cu.
#pragma once

#include <cuda_bf16.h>

#include <chrono>

#include "cuda_common/mbarrier.cuh"
#include "cuda_common/measure_graph.cuh"

namespace anyattn::measure {

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

class Neighbour {
 public:
  explicit Neighbour(cudaStream_t stream)
      : stream_(stream), weights_(device<uint4>(1024 * 8192)), x_(device<float>(8192, 0x3e)) {
    y_ = device<float>(8192);
    draw<<<4096, 256>>>(reinterpret_cast<__nv_bfloat16*>(weights_), 8192ull * 8192, 99);
    CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();  // what runs first otherwise finds the card slower
    do {
      us_ = graph_us(stream_, 32, [&] {
        for (int i = 0; i < 32; ++i) call();
      });
    } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(300));
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;
  ~Neighbour() {
    for (void* p : {static_cast<void*>(weights_), static_cast<void*>(x_), static_cast<void*>(y_)}) CHECK(cudaFree(p));
  }
  void call() const { multiply<<<1024, 256, 0, stream_>>>(weights_, x_, y_); }
  double us() const { return us_; }  // of a call alone

 private:
  cudaStream_t stream_;
  uint4* weights_;  // [8192, 8192] bfloat16
  float *x_, *y_;
  double us_ = 0;
};

// GB/s at which a block of memory can be read.
inline double reading_rate(cudaStream_t stream, uint64_t bytes, int multiprocessors) {
  char* const memory = device<char>(bytes, 1);
  uint32_t* const sink = device<uint32_t>(1);
  CHECK(cudaFuncSetAttribute(read_all, cudaFuncAttributeMaxDynamicSharedMemorySize, 6 * 16384));
  const double us =
      graph_us(stream, 1, [&] { read_all<<<2 * multiprocessors, 256, 6 * 16384, stream>>>(memory, bytes / 16384, sink); });
  CHECK(cudaFree(memory));
  CHECK(cudaFree(sink));
  return 1e-3 * static_cast<double>(bytes) / us;
}

}  // namespace anyattn::measure
