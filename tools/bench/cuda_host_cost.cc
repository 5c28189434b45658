// SPDX-License-Identifier: Apache-2.0
// What the host pays to queue one `forward` through the C API, against the bare launches of the very kernels that it launches:
// they are captured once, read out of the graph and launched again by the driver alone. NVIDIA devices; a program of its own.
//   anyattn-cuda-host-cost [CONFIG [BACKEND [PAIRS]]]
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "anyattn/streams.hpp"

namespace {

constexpr anyattn::Device kDevice{ANYATTN_DEVICE_CUDA, 0};
constexpr uint32_t kReqs = 8, kKeys = 500, kQueryHeads = 32, kHeads = 8, kHeadSize = 128;
constexpr int kBurst = 100, kPairs = 41;  // calls queued without waiting; samples of both, in turn, where PAIRS says nothing
constexpr uint32_t kHostToDevice = 1;     // ANYATTN_COPY_* of device.h
constexpr uint32_t kGraphCapture = 2;     // metadata_mode of runtime.h

void require(bool good, const char* what) {
  if (!good) throw anyattn::RuntimeError(ANYATTN_DEVICE_ERROR, fmt::format("cuda: {} failed", what));
}

template <class Function>
Function driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  require(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result) == cudaSuccess && found, name);
  return reinterpret_cast<Function>(found);
}

// A decode step of kReqs requests, all memory of its own.
class Step {
 public:
  Step(const anyattn::Runtime& runtime, const std::string& backend)
      : runtime_(runtime), stream_(runtime, kDevice), problem_(make_problem()), group_(runtime, make_options(backend)) {
    const anyattn_group_info info = group_.info();
    backend_ = info.backend;
    const uint32_t blocks_a_request = (kKeys + info.block_size - 1) / info.block_size;
    cache_memory_ = zeros(uint64_t{kReqs} * blocks_a_request * info.spec->block_bytes);
    cache_ = {ANYATTN_CACHE_SIZE, 0, cache_memory_.get(), info.spec->block_bytes, uint64_t{kReqs} * blocks_a_request,
              info.spec};
    std::vector<int32_t> starts(kReqs + 1), table(size_t{kReqs} * blocks_a_request);
    std::iota(starts.begin(), starts.end(), 0);
    std::iota(table.begin(), table.end(), 0);
    starts_ = uploaded(starts);
    lengths_ = uploaded(std::vector<int32_t>(kReqs, kKeys));
    table_ = uploaded(table);
    q_memory_ = zeros(uint64_t{kReqs} * kQueryHeads * kHeadSize * 2);
    out_memory_ = zeros(q_memory_.bytes());
    batch_.struct_size = ANYATTN_BATCH_SIZE;
    batch_.num_reqs = batch_.num_tokens = kReqs;
    batch_.max_query_len = 1;
    batch_.max_seq_len = kKeys;
    batch_.query_start_loc = static_cast<const int32_t*>(starts_.get());
    batch_.seq_lens = static_cast<const int32_t*>(lengths_.get());
    batch_.block_table = static_cast<const int32_t*>(table_.get());
    batch_.block_table_stride = blocks_a_request;
    q_ = anyattn::Tensor(q_memory_.get(), ANYATTN_DTYPE_BFLOAT16, {kReqs, kQueryHeads, kHeadSize}, kDevice.kind,
                         kDevice.ordinal);
    out_ = anyattn::Tensor(out_memory_.get(), ANYATTN_DTYPE_BFLOAT16, {kReqs, kQueryHeads, kHeadSize}, kDevice.kind,
                           kDevice.ordinal);
    args_.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args_.softmax_scale = 0.088;
    args_.q = q_;
    args_.out = out_;
    args_.cache = &cache_;
    args_.stream = stream();
    group_.update(ANYATTN_PHASE_BOTH, batch_, stream());
    forward();
    wait();
  }

  void forward() { group_.forward(ANYATTN_PHASE_BOTH, args_); }
  void wait() const { runtime_.synchronize(kDevice, stream()); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.get()); }
  const std::string& backend() const { return backend_; }

 private:
  static anyattn::Problem make_problem() {
    anyattn::Problem problem;
    problem.fields.num_q_heads = kQueryHeads;
    problem.fields.num_kv_heads = kHeads;
    problem.fields.head_size = problem.fields.head_size_v = kHeadSize;
    problem.fields.q_dtype = problem.fields.out_dtype = ANYATTN_DTYPE_BFLOAT16;
    return problem.kv_cache_dtype("auto");
  }
  anyattn::Group::Options make_options(const std::string& backend) const {
    anyattn::Group::Options options;
    options.problem = problem_.view();
    options.limits = {ANYATTN_LIMITS_SIZE, kReqs, kReqs, 1, kKeys, 0};
    options.device = "cuda:0";
    options.backend = backend;
    options.metadata_mode = kGraphCapture;
    options.stream = stream_.get();
    return options;
  }
  anyattn::DeviceMemory zeros(uint64_t bytes) const {
    anyattn::DeviceMemory memory(runtime_, kDevice, bytes);
    anyattn::check(anyattn_device_fill, runtime_.get(), kDevice.kind, kDevice.ordinal, memory.get(), uint8_t{0}, bytes,
                   stream_.get());
    return memory;
  }
  anyattn::DeviceMemory uploaded(const std::vector<int32_t>& numbers) const {
    anyattn::DeviceMemory memory(runtime_, kDevice, numbers.size() * sizeof(int32_t));
    runtime_.copy(kDevice, memory.get(), numbers.data(), memory.bytes(), kHostToDevice, stream_.get());
    wait();
    return memory;
  }

  const anyattn::Runtime& runtime_;
  anyattn::DeviceStream stream_;
  anyattn::Problem problem_;
  anyattn::Group group_;
  std::string backend_;
  anyattn::DeviceMemory cache_memory_, starts_, lengths_, table_, q_memory_, out_memory_;
  anyattn::Tensor q_, out_;
  anyattn_cache cache_{};
  anyattn_batch batch_{};
  anyattn_forward_args args_{};
};

// The kernels of one forward with their arguments, as a capture saw them.
class Bare {
 public:
  explicit Bare(Step& step) : stream_(step.stream()) {
    require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "capture");
    step.forward();
    require(cudaStreamEndCapture(stream_, &graph_) == cudaSuccess, "the end of the capture");
    size_t count = 0;
    require(cudaGraphGetNodes(graph_, nullptr, &count) == cudaSuccess, "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    require(cudaGraphGetNodes(graph_, nodes.data(), &count) == cudaSuccess, "cudaGraphGetNodes");
    using GetParams = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
    const auto get = driver<GetParams>("cuGraphKernelNodeGetParams");
    for (const cudaGraphNode_t node : nodes) {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      require(get(node, &kernel) == CUDA_SUCCESS, "a node that is no kernel");
      kernels_.push_back(kernel);
    }
  }
  ~Bare() { cudaGraphDestroy(graph_); }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;
  size_t size() const { return kernels_.size(); }
  void launch() const {
    for (const CUDA_KERNEL_NODE_PARAMS& k : kernels_) {
      CUfunction function = k.func;
      if (!function) require(function_of_(&function, k.kern) == CUDA_SUCCESS, "cuKernelGetFunction");
      require(launch_(function, k.gridDimX, k.gridDimY, k.gridDimZ, k.blockDimX, k.blockDimY, k.blockDimZ, k.sharedMemBytes,
                      stream_, k.kernelParams, k.extra) == CUDA_SUCCESS,
              "cuLaunchKernel");
    }
  }

 private:
  using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                              void**, void**);
  using FunctionOf = CUresult (*)(CUfunction*, CUkernel);
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  std::vector<CUDA_KERNEL_NODE_PARAMS> kernels_;
  Launch launch_ = driver<Launch>("cuLaunchKernel");
  FunctionOf function_of_ = driver<FunctionOf>("cuKernelGetFunction");
};

// Microseconds of one call of a burst.
template <class Call>
double burst(const Step& step, Call&& call) {
  step.wait();
  const auto from = std::chrono::steady_clock::now();
  for (int i = 0; i < kBurst; ++i) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count() / kBurst;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const anyattn::Runtime runtime(
        {.config_path = argc > 1 ? argv[1] : "", .backend = "", .log_level = "warning", .num_threads = 1});
    Step step(runtime, argc > 2 ? argv[2] : "");
    const Bare bare(step);
    std::vector<double> through, launches, above;
    const int pairs = argc > 3 ? std::max(1, std::atoi(argv[3])) : kPairs;
    for (int i = 0; i < pairs; ++i) {
      through.push_back(burst(step, [&] { step.forward(); }));
      launches.push_back(burst(step, [&] { bare.launch(); }));
      above.push_back(through.back() - launches.back());
    }
    step.wait();
    fmt::print(
        "{}: forward through the C API {:.2f} us of host time, its {} kernels launched bare {:.2f} us, above {:.2f} us\n",
        step.backend(), median(through), bare.size(), median(launches), median(above));
    return 0;
  } catch (const anyattn::RuntimeError& error) {
    fmt::print(stderr, "anyattn-cuda-host-cost: {}\n", error.what());
    return 1;
  }
}
