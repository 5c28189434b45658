// SPDX-License-Identifier: Apache-2.0
// The products by oneDNN's matmul. Threads: OMP_NUM_THREADS.
#include <dnnl.hpp>

#include <memory>

#include "bench/peers/products.h"

namespace anyattn::tools::peers {
namespace {

using Tag = dnnl::memory::format_tag;

// c[b] = a[b] b[b] with b as `order` says; memory is filled with zeros, whose products cost as much as others.
std::function<void()> matmul(const dnnl::engine& engine, const Shape& shape, int64_t m, int64_t k, int64_t n, Tag order) {
  const auto type = shape.bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::memory::desc a({shape.batch, m, k}, type, Tag::abc), b({shape.batch, k, n}, type, order),
      c({shape.batch, m, n}, type, Tag::abc);
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  const dnnl::memory a_memory(a, engine), b_memory(b, engine), c_memory(c, engine);
  std::memset(a_memory.get_data_handle(), 0, a.get_size());
  std::memset(b_memory.get_data_handle(), 0, b.get_size());
  auto stream = std::make_shared<dnnl::stream>(engine);
  return [=] {
    product.execute(*stream, {{DNNL_ARG_SRC, a_memory}, {DNNL_ARG_WEIGHTS, b_memory}, {DNNL_ARG_DST, c_memory}});
    stream->wait();
  };
}

}  // namespace

Products products(const Shape& shape) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  // Keys lie [keys, size]: read as their transpose.
  return {matmul(engine, shape, shape.rows, shape.size, shape.keys, Tag::acb),
          matmul(engine, shape, shape.rows, shape.keys, shape.size_v, Tag::abc)};
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): oneDNN's handles are shared pointers, owned by the two functions
}

}  // namespace anyattn::tools::peers

int main(int argc, char** argv) { return anyattn::tools::peers::run(argc, argv); }
