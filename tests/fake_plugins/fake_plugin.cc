// SPDX-License-Identifier: Apache-2.0
// One source, many plugins: valid and without any mathematics, or wrong in the one way that a definition of CMakeLists.txt says.
//
// FAKE_ID, FAKE_NAME               id of the plugin, name of its backend
// FAKE_ABI_MIN, _MAX               the range it says it speaks
// FAKE_ABI_CHOSEN                  the version it answers, whatever the host said
// FAKE_PLUGIN_SIZE, _BACKEND_SIZE  struct_size
// FAKE_NEWER_TAIL                  tables longer than this host knows
// FAKE_NULL_SLOT                   a slot that is null
// FAKE_MLA                         the MLA family instead of forward
// FAKE_ENTRY                       name of the exported function; FAKE_NO_ENTRY: none
// FAKE_ENTRY_STATUS                what the entry answers, with a text; FAKE_NULL_TABLE: OK and nothing
// FAKE_BLOCK_SIZES                 block sizes it takes; else every multiple of 16
// FAKE_LSE_BASES                   bases it reports
// FAKE_CREATE_FAILS                impl_create answers with a text of its own
// FAKE_IGNORES_UNKNOWN_FEATURES    says yes to bits it cannot know
// FAKE_CONSTRUCTOR                 code that runs while the file is opened
// FAKE_HELPER                      a global function of a name that other fakes have too
// FAKE_UNDEFINED, FAKE_LIBRARY     calls a function that nobody, or a missing library, has
// FAKE_EXTRA_EXPORT, _UNIQUE_EXPORT  a visible symbol more, and one that all plugins would share
//
// Options of all: counters (counters.h), in and what (throws `what` in slot `in`).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "anyattn/plugin.h"
#include "anyattn/util.h"
#include "fake_plugins/counters.h"

#ifndef FAKE_ABI_MIN
#define FAKE_ABI_MIN ANYATTN_ABI_VERSION(0, 1)
#endif
#ifndef FAKE_ABI_MAX
#define FAKE_ABI_MAX ANYATTN_ABI_VERSION(0, 1)
#endif
#ifndef FAKE_PLUGIN_SIZE
#define FAKE_PLUGIN_SIZE ANYATTN_PLUGIN_SIZE
#endif
#ifndef FAKE_BACKEND_SIZE
#define FAKE_BACKEND_SIZE ANYATTN_BACKEND_SIZE
#endif
#ifndef FAKE_ENTRY
#define FAKE_ENTRY anyattn_plugin_entry_v0
#endif
#ifndef FAKE_LSE_BASES
#define FAKE_LSE_BASES (ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2)
#endif

#ifdef FAKE_UNDEFINED
extern "C" void anyattn_fake_nobody_has_this(void);
#endif
#ifdef FAKE_LIBRARY
extern "C" void anyattn_fake_library_function(void);
#endif
#ifdef FAKE_EXTRA_EXPORT
extern "C" __attribute__((visibility("default"))) int anyattn_fake_extra(void) { return 1; }
#endif
#ifdef FAKE_UNIQUE_EXPORT
// A static data member of a template: g++ makes it one object for the whole process.
template <int N>
struct __attribute__((visibility("default"))) AnyattnFakeUnique {
  static inline int value = N;
};
template struct AnyattnFakeUnique<7>;
#endif
#ifdef FAKE_HELPER
// Visible in the source on purpose: the link rules keep each plugin's own.
__attribute__((visibility("default"), noinline)) int anyattn_fake_helper() { return FAKE_HELPER; }
struct __attribute__((visibility("default"))) AnyattnFakeShared {
  static int value;
};
int AnyattnFakeShared::value = 10 * FAKE_HELPER;
#endif

namespace {

int constructions = 0;
struct Constructor {
  Constructor() {
    ++constructions;
#ifdef FAKE_CONSTRUCTOR
    FAKE_CONSTRUCTOR;
#endif
  }
} constructor;

// ---- what every object remembers of its options -------------------------------------------------------------

struct Wishes {
  FakeCounters* counters = nullptr;
  std::string_view in;    // slot to throw in
  std::string_view what;  // runtime_error, bad_alloc, int
};

std::string_view option(const anyattn_host* host, std::string_view key) {
  for (uint32_t i = 0; i < host->num_options; ++i) {
    const auto* given = reinterpret_cast<const char*>(host->options) + size_t{i} * host->option_stride;
    anyattn_option read;
    anyattn_read_struct(&read, sizeof read, given);
    if (read.key == key) return read.value;
  }
  return {};
}

Wishes wishes_of(const anyattn_host* host) {
  const std::string_view address = option(host, "counters");
  auto* counters = address.empty() ? nullptr : reinterpret_cast<FakeCounters*>(std::strtoull(address.data(), nullptr, 10));
  return {counters, option(host, "in"), option(host, "what")};
}

std::mutex latest_mutex;  // two runtimes may enter at once
Wishes latest;            // of the last entry call, for shutdown, which gets no host. A real plugin keeps nothing.

void count(const Wishes& wishes, std::atomic<uint64_t> FakeCounters::* counter) {
  if (wishes.counters) (wishes.counters->*counter).fetch_add(1, std::memory_order_relaxed);
}

void maybe_throw(const Wishes& wishes, std::string_view slot) {
  if (wishes.in != slot) [[likely]]
    return;
  if (wishes.what == "bad_alloc") throw std::bad_alloc();
  if (wishes.what == "int") throw 42;
  throw std::runtime_error("the fake throws");
}

}  // namespace

struct anyattn_impl {
  Wishes wishes;
};
struct anyattn_metadata {
  Wishes wishes;
};

namespace {

// ---- cold slots ---------------------------------------------------------------------------------------------

void add_reason(const anyattn_reason_sink* sink, uint32_t id, const char* field, const char* wanted, const char* allowed) {
  const anyattn_reason reason{ANYATTN_REASON_SIZE, id, field, wanted, allowed, nullptr};
  sink->add(sink->context, &reason);
}

bool takes_block_size(uint32_t size) {
#ifdef FAKE_BLOCK_SIZES
  constexpr std::array<uint32_t, 2> kSizes{FAKE_BLOCK_SIZES};
  return std::find(kSizes.begin(), kSizes.end(), size) != kSizes.end();
#else
  return size % 16 == 0;
#endif
}

void report_block_sizes(const anyattn_problem& problem, anyattn_support_report& report) {
  if (problem.key_source == ANYATTN_KEYS_RAGGED) return;
#ifdef FAKE_BLOCK_SIZES
  constexpr std::array<uint32_t, 2> kSizes{FAKE_BLOCK_SIZES};
  report.num_block_sizes = kSizes.size();
  std::copy(kSizes.begin(), kSizes.end(), report.block_sizes);
  report.block_size = problem.block_size ? problem.block_size : kSizes[0];
#else
  report.block_size_multiple = 16;
  report.block_size = problem.block_size ? problem.block_size : 16;
#endif
}

uint32_t dtype_of(const char* kv_cache_dtype) {
  const std::string_view name = kv_cache_dtype ? kv_cache_dtype : "";
  if (name == "float32") return ANYATTN_DTYPE_FLOAT32;
  if (name == "float16") return ANYATTN_DTYPE_FLOAT16;
  if (name == "bfloat16") return ANYATTN_DTYPE_BFLOAT16;
  return ANYATTN_DTYPE_NONE;
}

int32_t supports(const anyattn_host* host, const anyattn_device_facts*, const anyattn_problem* given,
                 const anyattn_reason_sink* sink, anyattn_support_report* out, anyattn_error*) {
  const Wishes wishes = wishes_of(host);
  count(wishes, &FakeCounters::supports);
  maybe_throw(wishes, "supports");
  anyattn_problem problem;
  anyattn_read_struct(&problem, sizeof problem, given);
  bool yes = true;
  const auto refuse = [&](uint32_t id, const char* field, const char* wanted, const char* allowed) {
    add_reason(sink, id, field, wanted, allowed);
    yes = false;
  };
#ifndef FAKE_IGNORES_UNKNOWN_FEATURES
  for (uint32_t bit = ANYATTN_FEATURE_COUNT; bit < problem.num_feature_words * 64; ++bit) {
    if (anyattn_problem_has(&problem, bit)) refuse(ANYATTN_REASON_FEATURE_UNKNOWN, "features", "a newer bit", "bits below 23");
  }
#endif
#ifdef FAKE_MLA
  if (!anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA)) refuse(ANYATTN_REASON_MLA, "mla", "0", "1");
#else
  if (anyattn_problem_has(&problem, ANYATTN_FEATURE_MLA)) refuse(ANYATTN_REASON_MLA, "mla", "1", "0");
#endif
  if (problem.key_source == ANYATTN_KEYS_PAGED) {
    if (problem.block_size != 0 && !takes_block_size(problem.block_size)) {
      refuse(ANYATTN_REASON_BLOCK_SIZE, "block_size", "another", "see the report's list");
    }
    if (dtype_of(problem.kv_cache_dtype) == ANYATTN_DTYPE_NONE) {
      refuse(ANYATTN_REASON_KV_CACHE_DTYPE, "kv_cache_dtype", problem.kv_cache_dtype ? problem.kv_cache_dtype : "none",
             "float32, float16, bfloat16");
    }
  }
  anyattn_support_report report{};
  report.supported = yes ? 1 : 0;
  report_block_sizes(problem, report);
  report.query_lengths = ANYATTN_QUERY_ANY;
  report.graph_level = ANYATTN_GRAPH_ALWAYS;
  if (anyattn_problem_has(&problem, ANYATTN_FEATURE_LSE)) report.lse_bases = FAKE_LSE_BASES;
#ifdef FAKE_HELPER
  report.cost_hint = anyattn_fake_helper() + AnyattnFakeShared::value;
#endif
  const uint32_t size = std::min<uint32_t>(out->struct_size, ANYATTN_SUPPORT_REPORT_SIZE);
  report.struct_size = size;
  std::memcpy(out, &report, size);
  return ANYATTN_OK;
}

int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts*, const anyattn_problem* given,
                      anyattn_spec_fn accept, void* context, anyattn_error*) {
  maybe_throw(wishes_of(host), "kv_cache_spec");
  anyattn_problem problem;
  anyattn_read_struct(&problem, sizeof problem, given);
  const uint32_t dtype = dtype_of(problem.kv_cache_dtype);
  const int64_t element = static_cast<int64_t>((dtype >> 8) & 0xffu) / 8;
  const int64_t tokens = problem.block_size;
  std::array<anyattn_plane, 2> planes{};
  int64_t bytes = 0;
#ifdef FAKE_MLA
  const int64_t row = problem.kv_lora_rank + problem.qk_rope_head_dim;
  planes[0] = {ANYATTN_PLANE_SIZE, ANYATTN_PLANE_LATENT, dtype, 3, {0, tokens, row}, {0, row * element, element}, 0};
  bytes = tokens * row * element;
  const uint32_t num_planes = 1;
#else
  const int64_t heads = problem.num_kv_heads;
  const std::array<int64_t, 2> sizes{problem.head_size, problem.head_size_v};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = sizes[i];
    planes[i] = {ANYATTN_PLANE_SIZE,
                 i == 0 ? ANYATTN_PLANE_K : ANYATTN_PLANE_V,
                 dtype,
                 4,
                 {0, tokens, heads, size},
                 {0, size * element, tokens * size * element, element},
                 static_cast<uint64_t>(bytes)};
    bytes += tokens * heads * size * element;
  }
  const uint32_t num_planes = 2;
#endif
  bytes = (bytes + 255) / 256 * 256;
  for (anyattn_plane& plane : planes) plane.strides[0] = bytes;
  anyattn_kv_cache_spec spec{ANYATTN_KV_CACHE_SPEC_SIZE,
                             problem.block_size,
                             static_cast<uint64_t>(bytes),
                             256,
                             num_planes,
                             sizeof(anyattn_plane),
                             0,
                             planes.data(),
                             "HND",
                             0};
  spec.digest = anyattn_kv_cache_spec_digest(&spec);
  accept(context, &spec);
  return ANYATTN_OK;
}

int32_t impl_create(const anyattn_host* host, const anyattn_device_facts*, const anyattn_problem*, const anyattn_kv_cache_spec*,
                    [[maybe_unused]] anyattn_impl** impl, [[maybe_unused]] anyattn_error* error) {
  const Wishes wishes = wishes_of(host);
  maybe_throw(wishes, "impl_create");
#ifdef FAKE_CREATE_FAILS
  return anyattn_error_set(error, ANYATTN_DEVICE_ERROR, "the fake cannot make an impl: its licence server is on fire");
#else
  *impl = new anyattn_impl{wishes};
  count(wishes, &FakeCounters::impls_created);
  return ANYATTN_OK;
#endif
}

void impl_destroy(anyattn_impl* impl) {
  if (!impl) return;
  const Wishes wishes = impl->wishes;
  delete impl;
  count(wishes, &FakeCounters::impls_destroyed);
  maybe_throw(wishes, "impl_destroy");
}

int32_t memory(const anyattn_impl* impl, const anyattn_limits*, anyattn_memory* out, anyattn_error*) {
  maybe_throw(impl->wishes, "memory");
  out->scratch_bytes = 256;
  out->persistent_bytes = 256;
  out->pinned_bytes = 0;
  return ANYATTN_OK;
}

int32_t warmup(anyattn_impl* impl, const anyattn_limits*, void*, void*, uint32_t* graph_level, anyattn_error*) {
  count(impl->wishes, &FakeCounters::warmups);
  maybe_throw(impl->wishes, "warmup");
  *graph_level = ANYATTN_GRAPH_ALWAYS;
  return ANYATTN_OK;
}

int32_t metadata_create(anyattn_impl* impl, const anyattn_limits*, uint32_t, void*, void*, anyattn_metadata** metadata,
                        anyattn_error*) {
  maybe_throw(impl->wishes, "metadata_create");
  *metadata = new anyattn_metadata{impl->wishes};
  count(impl->wishes, &FakeCounters::metadata_created);
  return ANYATTN_OK;
}

void metadata_destroy(anyattn_metadata* metadata) {
  if (!metadata) return;
  const Wishes wishes = metadata->wishes;
  delete metadata;
  count(wishes, &FakeCounters::metadata_destroyed);
  maybe_throw(wishes, "metadata_destroy");
}

// ---- hot slots: count, and nothing else ---------------------------------------------------------------------

int32_t metadata_update(anyattn_metadata* metadata, const anyattn_batch*, void*, anyattn_error*) {
  count(metadata->wishes, &FakeCounters::updates);
  maybe_throw(metadata->wishes, "metadata_update");
  return ANYATTN_OK;
}

int32_t kv_cache_update(anyattn_impl* impl, const anyattn_kv_cache_update_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::kv_cache_updates);
  maybe_throw(impl->wishes, "kv_cache_update");
  return ANYATTN_OK;
}

#ifdef FAKE_MLA
int32_t forward_mqa(anyattn_impl* impl, const anyattn_metadata*, const anyattn_mqa_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::forwards);
  maybe_throw(impl->wishes, "forward_mqa");
  return ANYATTN_OK;
}

int32_t context_gather(anyattn_impl* impl, const anyattn_metadata*, const anyattn_context_chunk*,
                       const anyattn_context_gather_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::forwards);
  maybe_throw(impl->wishes, "context_gather");
  return ANYATTN_OK;
}

int32_t forward_mha(anyattn_impl* impl, const anyattn_mha_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::forwards);
  maybe_throw(impl->wishes, "forward_mha");
  return ANYATTN_OK;
}
#else
int32_t forward(anyattn_impl* impl, const anyattn_metadata*, const anyattn_forward_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::forwards);
  maybe_throw(impl->wishes, "forward");
  return ANYATTN_OK;
}
#endif

int32_t merge_states(anyattn_impl* impl, const anyattn_merge_args*, anyattn_error*) {
  count(impl->wishes, &FakeCounters::merges);
  maybe_throw(impl->wishes, "merge_states");
  return ANYATTN_OK;
}

int32_t update_block_table(anyattn_metadata* to, const anyattn_metadata*, const int32_t*, int64_t, void*, anyattn_error*) {
  count(to->wishes, &FakeCounters::block_table_updates);
  maybe_throw(to->wishes, "update_block_table");
  return ANYATTN_OK;
}

[[maybe_unused]] void shutdown() {
  const std::lock_guard lock(latest_mutex);
  count(latest, &FakeCounters::shutdowns);
  maybe_throw(latest, "shutdown");
}

// ---- tables -------------------------------------------------------------------------------------------------

struct BackendTable {
  anyattn_backend known{};
  std::array<void*, 4> unknown_tail{};
};
struct PluginTable {
  anyattn_plugin known{};
  std::array<void*, 4> unknown_tail{};
};

BackendTable make_backend() {
  BackendTable table;
  anyattn_backend& b = table.known;
  b.struct_size = FAKE_BACKEND_SIZE;
  b.device_kind = ANYATTN_DEVICE_CPU;
  b.name = FAKE_NAME;
  b.description = "a fake without mathematics";
  b.supports = supports;
  b.kv_cache_spec = kv_cache_spec;
  b.impl_create = impl_create;
  b.impl_destroy = impl_destroy;
  b.memory = memory;
  b.warmup = warmup;
  b.metadata_create = metadata_create;
  b.metadata_update = metadata_update;
  b.metadata_destroy = metadata_destroy;
  b.kv_cache_update = kv_cache_update;
#ifdef FAKE_MLA
  b.forward_mqa = forward_mqa;
  b.context_gather = context_gather;
  b.forward_mha = forward_mha;
#else
  b.forward = forward;
#endif
  b.merge_states = merge_states;
  b.update_block_table = update_block_table;
#ifdef FAKE_NULL_SLOT
  b.FAKE_NULL_SLOT = nullptr;
#endif
#ifdef FAKE_NEWER_TAIL
  b.struct_size = sizeof(BackendTable);
  table.unknown_tail.fill(reinterpret_cast<void*>(0x5a5a5a5a));
#endif
  return table;
}

const BackendTable backend = make_backend();
const std::array<const anyattn_backend*, 1> backends{&backend.known};
const std::array<anyattn_option_info, 3> options{{
    {ANYATTN_OPTION_INFO_SIZE, 0, "counters", nullptr, "the address of a FakeCounters"},
    {ANYATTN_OPTION_INFO_SIZE, 0, "in", nullptr, "the name of a slot"},
    {ANYATTN_OPTION_INFO_SIZE, 0, "what", "runtime_error", "runtime_error | bad_alloc | int"},
}};

PluginTable make_plugin(uint32_t abi_version) {
  PluginTable table;
  anyattn_plugin& p = table.known;
  p.struct_size = FAKE_PLUGIN_SIZE;
  p.abi_version = abi_version;
  p.abi_min = FAKE_ABI_MIN;
  p.abi_max = FAKE_ABI_MAX;
  p.id = FAKE_ID;
  p.vendor = "AnyAttn tests";
  p.version = "1.10";
  p.license = "Apache-2.0";
  p.num_backends = backends.size();
  p.backends = backends.data();
  p.num_options = options.size();
  p.option_stride = sizeof(anyattn_option_info);
  p.options = options.data();
  p.shutdown = shutdown;
#ifdef FAKE_NEWER_TAIL
  p.struct_size = sizeof(PluginTable);
  table.unknown_tail.fill(reinterpret_cast<void*>(0x5a5a5a5a));
#endif
  return table;
}

// One table for each version it answers: two hosts of different age may live in one process.
[[maybe_unused]] const anyattn_plugin* table_for(uint32_t abi_version) {
  static std::map<uint32_t, PluginTable> tables;
  return &tables.try_emplace(abi_version, make_plugin(abi_version)).first->second.known;
}

[[maybe_unused]] int32_t enter([[maybe_unused]] uint32_t host_min, [[maybe_unused]] uint32_t host_max, const anyattn_host* host,
                               const anyattn_plugin** plugin, [[maybe_unused]] anyattn_error* error) {
  const std::lock_guard lock(latest_mutex);
  static std::string in;
  static std::string what;
  latest = wishes_of(host);
  in = latest.in;
  what = latest.what;
  latest.in = in;
  latest.what = what;
  if (latest.counters) latest.counters->constructions = static_cast<uint64_t>(constructions);
  count(latest, &FakeCounters::entries);
  maybe_throw(latest, "anyattn_plugin_entry_v0");
#ifdef FAKE_UNDEFINED
  anyattn_fake_nobody_has_this();
#endif
#ifdef FAKE_LIBRARY
  anyattn_fake_library_function();
#endif
#ifdef FAKE_NULL_TABLE
  return ANYATTN_OK;
#endif
#ifdef FAKE_ENTRY_STATUS
  return anyattn_error_set(error, FAKE_ENTRY_STATUS, "the fake does not like this host");
#endif
#ifdef FAKE_ABI_CHOSEN
  *plugin = table_for(FAKE_ABI_CHOSEN);
#else
  *plugin = table_for(std::min<uint32_t>(host_max, FAKE_ABI_MAX));
  if (host_max < FAKE_ABI_MIN || host_min > FAKE_ABI_MAX) {
    return anyattn_error_set(error, ANYATTN_ABI_MISMATCH, "the fake speaks %u.%u to %u.%u", FAKE_ABI_MIN >> 16,
                             FAKE_ABI_MIN & 0xffffu, FAKE_ABI_MAX >> 16, FAKE_ABI_MAX & 0xffffu);
  }
#endif
  return ANYATTN_OK;
}

}  // namespace

#ifndef FAKE_NO_ENTRY
extern "C" ANYATTN_EXPORT int32_t FAKE_ENTRY(uint32_t host_abi_min, uint32_t host_abi_max, const anyattn_host* host,
                                             const anyattn_plugin** plugin, anyattn_error* error) {
  return enter(host_abi_min, host_abi_max, host, plugin, error);
}
#endif
