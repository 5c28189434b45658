// SPDX-License-Identifier: Apache-2.0
// Device memory, random tensors and the time of a graph, for programs of measure/. Included by those programs alone.
#pragma once

#include "cuda_common/measure.cuh"

namespace anyattn::measure {

template <class T>
__global__ void draw(T* to, uint64_t count, uint64_t seed) {  // N(0, 1)
  for (uint64_t i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) {
    to[i] = static_cast<T>(normal(seed + 2 * i, seed + 2 * i + 1));
  }
}

// Device memory, every byte `fill`; the caller frees it.
template <class T>
T* device(uint64_t count, int fill = 0) {
  void* memory = nullptr;
  const uint64_t bytes = std::max<uint64_t>(count * sizeof(T), 256);
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMemset(memory, fill, bytes));
  return static_cast<T*>(memory);
}
template <class T>
T* device(const std::vector<T>& values) {
  T* const to = device<T>(values.size());
  CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

// Median microseconds of one of the `calls` calls that record() puts into a graph; at least 5 replays after one, and after warm_ms of
// them, that are not counted.
template <class F>
double graph_us(cudaStream_t stream, int calls, F&& record, double warm_ms = 0) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  record();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0ull));
  cudaEvent_t from, to;
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  const auto replay = [&] {
    CHECK(cudaEventRecord(from, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(to, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    return static_cast<double>(ms);
  };
  double warm = replay();
  while (warm < warm_ms) warm += replay();
  std::vector<double> times;
  double spent = 0;
  for (int i = 0; i < 30 && (i < 5 || spent < 40); ++i) {
    const double ms = replay();
    times.push_back(1e3 * ms / calls);
    spent += ms;
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return median(times);
}

}  // namespace anyattn::measure
