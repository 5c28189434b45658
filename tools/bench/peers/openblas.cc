// SPDX-License-Identifier: Apache-2.0
// The products by OpenBLAS's sgemm, one call a request and kv head. Threads: OPENBLAS_NUM_THREADS.
#include <cblas.h>

#include <memory>

#include "bench/peers/products.h"

namespace anyattn::tools::peers {

Products products(const Shape& shape) {
  if (shape.bf16) return {};
  const auto floats = [&](int64_t rows, int64_t columns) {
    return std::make_shared<std::vector<float>>(static_cast<size_t>(shape.batch * rows * columns));
  };
  const auto q = floats(shape.rows, shape.size), k = floats(shape.keys, shape.size), v = floats(shape.keys, shape.size_v),
             scores = floats(shape.rows, shape.keys), out = floats(shape.rows, shape.size_v);
  const auto gemm = [batch = shape.batch](int64_t m, int64_t n, int64_t depth, const float* a, const float* b, bool transposed,
                                          float* c) {
    const auto as_int = [](int64_t value) { return static_cast<int>(value); };
    for (int64_t i = 0; i < batch; ++i) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, as_int(m), as_int(n), as_int(depth), 1,
                  a + i * m * depth, as_int(depth), b + i * depth * n, as_int(transposed ? depth : n), 0, c + i * m * n,
                  as_int(n));
    }
  };
  return {[=] { gemm(shape.rows, shape.keys, shape.size, q->data(), k->data(), true, scores->data()); },
          [=] { gemm(shape.rows, shape.size_v, shape.keys, scores->data(), v->data(), false, out->data()); }};
}

}  // namespace anyattn::tools::peers

int main(int argc, char** argv) { return anyattn::tools::peers::run(argc, argv); }
