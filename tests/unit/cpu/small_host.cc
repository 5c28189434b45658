// SPDX-License-Identifier: Apache-2.0
#include "small_host.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace anyattn::cpu_test {

uint64_t isa_of_this_machine() {
  uint64_t bits = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const auto add = [&](bool has, uint64_t bit) { bits |= has ? bit : 0; };
  add(__builtin_cpu_supports("sse4.2"), ANYATTN_CPU_SSE4_2);
  add(__builtin_cpu_supports("avx2"), ANYATTN_CPU_AVX2);
  add(__builtin_cpu_supports("fma"), ANYATTN_CPU_FMA);
  add(__builtin_cpu_supports("f16c"), ANYATTN_CPU_F16C);
  add(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"),
      ANYATTN_CPU_AVX512);
  add(__builtin_cpu_supports("avx512bf16"), ANYATTN_CPU_AVX512_BF16);
  add(__builtin_cpu_supports("avx512vbmi"), ANYATTN_CPU_AVX512_VBMI);
  // Tiles: Linux gives them on request (ARCH_REQ_XCOMP_PERM), and says no where it does not save them.
  uint32_t a = 0, b = 0, c = 0, d = 0;
  const bool tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((d >> 24) & 1u) && syscall(SYS_arch_prctl, 0x1023L, 18L) == 0;
  add(tiles, ANYATTN_CPU_AMX_TILE);
  add(tiles && ((d >> 22) & 1u), ANYATTN_CPU_AMX_BF16);
  add(tiles && ((d >> 25) & 1u), ANYATTN_CPU_AMX_INT8);
#endif
  return bits;
}

std::vector<std::string> runnable_isas() {
  const uint64_t bits = isa_of_this_machine();
  std::vector<std::string> sets;
  const uint64_t tiles = ANYATTN_CPU_AMX_BF16 | ANYATTN_CPU_AMX_INT8 | ANYATTN_CPU_AVX512_BF16 | ANYATTN_CPU_AVX512_VBMI;
  if ((bits & tiles) == tiles) sets.push_back("amx_bf16");
  if (bits & ANYATTN_CPU_AVX512_BF16) sets.push_back("avx512_bf16");
  if (bits & ANYATTN_CPU_AVX512) sets.push_back("avx512");
  if (bits & ANYATTN_CPU_AVX2) sets.push_back("avx2");
  if (bits & ANYATTN_CPU_SSE4_2) sets.push_back("x86_64_v2");
  sets.push_back("portable");
  return sets;
}

namespace {

const anyattn_plugin* open_plugin() {
  void* file = dlopen(ANYATTN_PLUGIN_DIR "/cpu/anyattn_cpu.so", RTLD_NOW | RTLD_LOCAL);
  if (!file) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  const auto enter = reinterpret_cast<anyattn_plugin_entry_fn>(dlsym(file, ANYATTN_PLUGIN_ENTRY_NAME));
  const anyattn_plugin* plugin = nullptr;
  if (!enter || enter(ANYATTN_ABI_VERSION_CURRENT, ANYATTN_ABI_VERSION_CURRENT, nullptr, &plugin, nullptr) != ANYATTN_OK)
    std::abort();
  return plugin;
}

}  // namespace

int32_t SmallHost::run_in_turn(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) {
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  const uint32_t workers = static_cast<SmallHost*>(context)->host_.num_workers;
  const uint64_t step = grain ? grain : 1;
  uint32_t worker = workers - 1;
  for (uint64_t begin = 0; begin < count; begin += step, worker = (worker + 1) % workers)
    fn(argument, begin, begin + step < count ? begin + step : count, worker);
  return ANYATTN_OK;
}

int32_t SmallHost::run_on_threads(void* context, uint64_t count, uint64_t grain, anyattn_range_fn fn, void* argument) {
  if (!fn) return ANYATTN_INVALID_ARGUMENT;
  const uint32_t workers = static_cast<SmallHost*>(context)->host_.num_workers;
  const uint64_t step = grain ? grain : 1;
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      for (uint64_t begin; (begin = next.fetch_add(step)) < count;)
        fn(argument, begin, begin + step < count ? begin + step : count, worker);
    });
  for (std::thread& thread : threads) thread.join();
  return ANYATTN_OK;
}

void SmallHost::keep_line(void* context, int32_t, const char* line) { static_cast<SmallHost*>(context)->log_.push_back(line); }

SmallHost::SmallHost(uint32_t num_workers, const std::string& isa) : isa_(isa) {
  facts_ = {ANYATTN_CPU_FACTS_SIZE, ANYATTN_CPU_ARCH_OTHER, isa_of_this_machine(), num_workers, 0, 0, 0};
#if defined(__x86_64__)
  facts_.arch = ANYATTN_CPU_ARCH_X86_64;
#endif
  option_ = {ANYATTN_OPTION_SIZE, 0, "isa", isa_.c_str()};
  host_ = {ANYATTN_HOST_SIZE,
           ANYATTN_ABI_VERSION_CURRENT,
           this,
           &keep_line,
           &run_in_turn,
           num_workers,
           1,
           sizeof option_,
           0,
           &option_,
           &facts_};
}

const anyattn_backend& SmallHost::backend(const char* name) const {
  const anyattn_plugin& plugin = cpu_plugin();
  for (uint32_t i = 0; i < plugin.num_backends; ++i)
    if (std::strcmp(plugin.backends[i]->name, name) == 0) return *plugin.backends[i];
  std::fprintf(stderr, "no backend %s\n", name);
  std::abort();
}

const anyattn_device_facts& cpu_device() {
  static const anyattn_device_facts facts = [] {
    anyattn_device_facts made{};
    made.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
    made.device_kind = ANYATTN_DEVICE_CPU;
    made.architecture = "x86-64";
    made.name = "test";
    return made;
  }();
  return facts;
}

const anyattn_plugin& cpu_plugin() {
  static const anyattn_plugin* plugin = open_plugin();
  return *plugin;
}

}  // namespace anyattn::cpu_test
