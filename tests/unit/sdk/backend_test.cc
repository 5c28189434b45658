// SPDX-License-Identifier: Apache-2.0
// A class becomes a backend table and a plugin; what it throws becomes a status; structs of other ages are read safely.
#include <array>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "anyattn/plugin.hpp"
#include "doctest/doctest.h"

namespace {

// Does what `mood` says in every method.
int mood = 0;
void act() {
  if (mood == 1) throw anyattn::Error(ANYATTN_DEVICE_ERROR, "fan stopped at ", 42, " rpm");
  if (mood == 2) throw std::bad_alloc();
  if (mood == 3) throw std::runtime_error("broken");
  if (mood == 4) throw 5;
}

struct SmallBackend {
  static constexpr const char* kName = "SMALL_ATTN";
  static constexpr const char* kDescription = "for tests";
  static constexpr uint32_t kDevice = ANYATTN_DEVICE_CPU;
  static void supports(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem& problem,
                       anyattn::Reasons& reasons, anyattn_support_report& report) {
    act();
    report.block_size = 16;
    report.cost_hint = 7;
    if (problem.head_size != 64)
      reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size", anyattn::text(problem.head_size), "64", "pad the heads");
    if (problem.graph_level != 0) reasons.add(ANYATTN_REASON_GRAPH_LEVEL, "graph_level", "some", "none");
  }
  SmallBackend(const anyattn::Host&, const anyattn_device_facts&, const anyattn_problem&, const anyattn_kv_cache_spec* spec)
      : has_spec(spec) {
    act();
    ++alive;
  }
  ~SmallBackend() { --alive; }
  void memory(const anyattn_limits& limits, anyattn_memory& memory) const {
    act();
    memory.scratch_bytes = limits.max_num_tokens;
    memory.pinned_bytes = 3;
  }
  uint32_t warmup(const anyattn_limits&, void*, void*) { return act(), ANYATTN_GRAPH_UNIFORM_BATCH; }
  struct Metadata {
    Metadata(SmallBackend&, const anyattn_limits&, uint32_t, void*, void*) { act(); }
    void update(const anyattn_batch& batch, void*) { act(), tokens = batch.num_tokens; }
    uint32_t tokens = 0;
  };
  void forward(const Metadata& metadata, const anyattn_forward_args& args) {
    act();
    *static_cast<uint32_t*>(args.stream) = metadata.tokens;
  }
  bool has_spec;
  static inline int alive = 0;
};

constexpr const anyattn_backend& kTable = anyattn::BackendTable<SmallBackend>::table;
constexpr anyattn::PluginInfo kInfo{"org.example.small", "Example", "1.2", "MIT"};
using Plugin = anyattn::PluginTable<kInfo, SmallBackend>;

int32_t serial(void*, uint64_t count, uint64_t, anyattn_range_fn fn, void* argument) {
  return fn(argument, 0, count, 0), ANYATTN_OK;
}
void ignore(void*, int32_t, const char*) {}

struct World {
  anyattn_cpu_facts cpu{ANYATTN_CPU_FACTS_SIZE, ANYATTN_CPU_ARCH_X86_64, 5, 1, 0, 0, 0};
  std::array<anyattn_option, 2> options{{{ANYATTN_OPTION_SIZE, 0, "isa", "first"}, {ANYATTN_OPTION_SIZE, 0, "isa", "last"}}};
  anyattn_host host{ANYATTN_HOST_SIZE,
                    ANYATTN_ABI_VERSION_CURRENT,
                    nullptr,
                    &ignore,
                    &serial,
                    1,
                    2,
                    sizeof(anyattn_option),
                    0,
                    options.data(),
                    &cpu};
  anyattn_device_facts facts{};
  anyattn_problem problem{};
  anyattn_limits limits{ANYATTN_LIMITS_SIZE, 1, 9, 1, 1, 1};
  char text[200] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  World() {
    mood = 0;
    facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
    problem.struct_size = ANYATTN_PROBLEM_SIZE;
    problem.head_size = 64;
  }
};

}  // namespace

TEST_CASE("backend_table_has_the_slots_of_the_methods_and_no_others") {
  CHECK(kTable.struct_size == ANYATTN_BACKEND_SIZE);
  CHECK(std::string(kTable.name) == "SMALL_ATTN");
  CHECK((kTable.supports != nullptr));
  CHECK((kTable.forward != nullptr));
  CHECK((kTable.metadata_destroy != nullptr));
  CHECK((kTable.kv_cache_spec == nullptr));
  CHECK((kTable.kv_cache_update == nullptr));
  CHECK((kTable.forward_mqa == nullptr));
  CHECK((kTable.merge_states == nullptr));
  CHECK((kTable.update_block_table == nullptr));
}

TEST_CASE("backend_runs_from_create_to_destroy") {
  World world;
  anyattn_impl* impl = nullptr;
  REQUIRE(kTable.impl_create(&world.host, &world.facts, &world.problem, nullptr, &impl, &world.error) == ANYATTN_OK);
  CHECK(SmallBackend::alive == 1);
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  REQUIRE(kTable.memory(impl, &world.limits, &memory, nullptr) == ANYATTN_OK);
  CHECK(memory.scratch_bytes == 9);
  uint32_t level = 0;
  REQUIRE(kTable.warmup(impl, &world.limits, nullptr, nullptr, &level, nullptr) == ANYATTN_OK);
  CHECK(level == ANYATTN_GRAPH_UNIFORM_BATCH);
  anyattn_metadata* metadata = nullptr;
  REQUIRE(kTable.metadata_create(impl, &world.limits, 0, nullptr, nullptr, &metadata, nullptr) == ANYATTN_OK);
  anyattn_batch batch{};
  batch.struct_size = ANYATTN_BATCH_SIZE;
  batch.num_tokens = 31;
  REQUIRE(kTable.metadata_update(metadata, &batch, nullptr, nullptr) == ANYATTN_OK);
  uint32_t seen = 0;
  anyattn_forward_args args{};
  args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
  args.stream = &seen;
  REQUIRE(kTable.forward(impl, metadata, &args, nullptr) == ANYATTN_OK);
  CHECK(seen == 31);
  kTable.metadata_destroy(metadata);
  kTable.impl_destroy(impl);
  CHECK(SmallBackend::alive == 0);
  kTable.metadata_destroy(nullptr);
  kTable.impl_destroy(nullptr);
}

TEST_CASE("backend_refuses_limits_whose_sums_leave_32_bits") {
  World world;
  anyattn_impl* impl = nullptr;
  REQUIRE(kTable.impl_create(&world.host, &world.facts, &world.problem, nullptr, &impl, &world.error) == ANYATTN_OK);
  anyattn_memory memory{};
  memory.struct_size = ANYATTN_MEMORY_SIZE;
  anyattn_metadata* metadata = nullptr;
  for (uint32_t anyattn_limits::* field :
       {&anyattn_limits::max_num_reqs, &anyattn_limits::max_num_tokens, &anyattn_limits::max_query_len,
        &anyattn_limits::max_seq_len, &anyattn_limits::max_blocks_per_req}) {
    anyattn_limits limits = world.limits;
    limits.*field = (1u << 30) + 1;
    CHECK(kTable.memory(impl, &limits, &memory, &world.error) == ANYATTN_INVALID_ARGUMENT);
    CHECK(std::string(world.error.text).find(" 1073741825; allowed: up to 1073741824") != std::string::npos);
    CHECK(kTable.warmup(impl, &limits, nullptr, nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
    CHECK(kTable.metadata_create(impl, &limits, 0, nullptr, nullptr, &metadata, nullptr) == ANYATTN_INVALID_ARGUMENT);
    limits.*field = 1u << 30;
    CHECK(kTable.memory(impl, &limits, &memory, nullptr) == ANYATTN_OK);
  }
  kTable.impl_destroy(impl);
}

TEST_CASE("backend_exceptions_become_statuses_with_the_name_in_front") {
  World world;
  anyattn_impl* impl = nullptr;
  struct Row {
    int32_t status;
    const char* text;
  };
  const Row rows[] = {{ANYATTN_DEVICE_ERROR, "SMALL_ATTN: fan stopped at 42 rpm"},
                      {ANYATTN_OUT_OF_MEMORY, "SMALL_ATTN: the process has no host memory left"},
                      {ANYATTN_INTERNAL, "SMALL_ATTN: internal error: broken"},
                      {ANYATTN_INTERNAL, "SMALL_ATTN: internal error of unknown type"}};
  for (int i = 0; i < 4; ++i) {
    mood = i + 1;
    CHECK(kTable.impl_create(&world.host, &world.facts, &world.problem, nullptr, &impl, &world.error) == rows[i].status);
    CHECK(impl == nullptr);
    CHECK(std::string(world.text) == rows[i].text);
    CHECK(world.error.status == rows[i].status);
    CHECK(world.error.length == std::strlen(rows[i].text));
    CHECK(kTable.impl_create(&world.host, &world.facts, &world.problem, nullptr, &impl, nullptr) == rows[i].status);
  }
  char tiny[8];
  anyattn_error cut{tiny, sizeof tiny, 0, 0, 0};
  mood = 1;
  kTable.impl_create(&world.host, &world.facts, &world.problem, nullptr, &impl, &cut);
  CHECK(std::string(tiny) == "SMALL_A");
  CHECK(cut.length == std::strlen(rows[0].text));
}

TEST_CASE("backend_null_and_short_arguments_are_invalid_not_fatal") {
  World world;
  anyattn_support_report report{};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  CHECK(kTable.supports(nullptr, &world.facts, &world.problem, nullptr, &report, &world.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(kTable.supports(&world.host, nullptr, &world.problem, nullptr, &report, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(kTable.supports(&world.host, &world.facts, nullptr, nullptr, &report, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(kTable.supports(&world.host, &world.facts, &world.problem, nullptr, nullptr, nullptr) == ANYATTN_INVALID_ARGUMENT);
  CHECK(kTable.forward(nullptr, nullptr, nullptr, &world.error) == ANYATTN_INVALID_ARGUMENT);
  CHECK(kTable.metadata_update(nullptr, nullptr, nullptr, &world.error) == ANYATTN_INVALID_ARGUMENT);
  world.host.struct_size = 16;
  CHECK(kTable.supports(&world.host, &world.facts, &world.problem, nullptr, &report, &world.error) == ANYATTN_ABI_MISMATCH);
}

TEST_CASE("backend_reads_older_structs_as_zero_behind_their_end_and_fills_what_fits") {
  World world;
  world.problem.graph_level = 30;  // behind the end that the older caller knew: must not be read
  world.problem.struct_size = ANYATTN_END_OFFSET(anyattn_problem, out_block_size);
  anyattn_support_report report{};
  report.struct_size = ANYATTN_END_OFFSET(anyattn_support_report, lse_bases);
  report.cost_hint = -1;  // behind the end: must not be written
  REQUIRE(kTable.supports(&world.host, &world.facts, &world.problem, nullptr, &report, &world.error) == ANYATTN_OK);
  CHECK(report.supported == 1);
  CHECK(report.block_size == 16);
  CHECK(report.cost_hint == -1);
  CHECK(report.struct_size == ANYATTN_END_OFFSET(anyattn_support_report, lse_bases));
}

TEST_CASE("report_kernels_are_cut_where_they_are_longer") {
  anyattn_support_report report{};
  anyattn::say_kernels("avx2", report);
  CHECK(std::string(report.kernels) == "avx2");
  anyattn::say_kernels(std::string(300, 'k'), report);
  CHECK(std::string(report.kernels) == std::string(sizeof report.kernels - 1, 'k'));
}

TEST_CASE("backend_reasons_go_to_the_sink_in_full_and_a_null_sink_still_counts") {
  World world;
  world.problem.head_size = 63;
  std::string seen;
  const anyattn_reason_sink sink{ANYATTN_REASON_SINK_SIZE, 0, &seen, [](void* context, const anyattn_reason* reason) {
                                   *static_cast<std::string*>(context) =
                                       anyattn::text(reason->id, " ", reason->field, " ", reason->wanted, " ", reason->allowed,
                                                     " ", reason->hint);
                                 }};
  anyattn_support_report report{};
  report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  REQUIRE(kTable.supports(&world.host, &world.facts, &world.problem, &sink, &report, nullptr) == ANYATTN_OK);
  CHECK(report.supported == 0);
  CHECK(seen == "3 head_size 63 64 pad the heads");
  report.supported = 1;
  REQUIRE(kTable.supports(&world.host, &world.facts, &world.problem, nullptr, &report, nullptr) == ANYATTN_OK);
  CHECK(report.supported == 0);
}

TEST_CASE("plugin_entry_answers_the_highest_common_version_or_both_ranges") {
  const anyattn_plugin* plugin = nullptr;
  char text[200] = "";
  anyattn_error error{text, sizeof text, 0, 0, 0};
  constexpr auto version = [](uint32_t minor) { return ANYATTN_ABI_VERSION(ANYATTN_ABI_MAJOR, minor); };
  REQUIRE(Plugin::enter(version(ANYATTN_ABI_MINOR_LOWEST), version(ANYATTN_ABI_MINOR + 5), &plugin, &error) == ANYATTN_OK);
  CHECK(plugin->abi_version == ANYATTN_ABI_VERSION_CURRENT);
  CHECK(plugin->struct_size == ANYATTN_PLUGIN_SIZE);
  CHECK(std::string(plugin->id) == "org.example.small");
  REQUIRE(plugin->num_backends == 1);
  CHECK(plugin->backends[0] == &kTable);
  CHECK(plugin->num_options == 0);

  plugin = nullptr;
  CHECK(Plugin::enter(version(ANYATTN_ABI_MINOR + 1), version(ANYATTN_ABI_MINOR + 5), &plugin, &error) == ANYATTN_ABI_MISMATCH);
  CHECK(std::string(text).find(anyattn::text("the host 0.", ANYATTN_ABI_MINOR + 1, " to 0.", ANYATTN_ABI_MINOR + 5)) !=
        std::string::npos);
  REQUIRE(plugin != nullptr);
  CHECK(plugin->abi_max == ANYATTN_ABI_VERSION_CURRENT);
  CHECK(Plugin::enter(ANYATTN_ABI_VERSION(1, 0), ANYATTN_ABI_VERSION(1, 9), &plugin, &error) == ANYATTN_ABI_MISMATCH);
  CHECK(Plugin::enter(0, 0, &plugin, &error) == ANYATTN_ABI_MISMATCH);
  CHECK(Plugin::enter(0, ANYATTN_ABI_VERSION_CURRENT, nullptr, &error) == ANYATTN_INVALID_ARGUMENT);
}

TEST_CASE("host_options_and_parallel_for_are_handed_through") {
  World world;
  const anyattn::Host host(&world.host);
  CHECK(host.option("isa", "none") == "last");
  CHECK(host.option("other", "fallback") == "fallback");
  CHECK(host.isa() == 5);
  uint64_t sum = 0;
  host.parallel_for(10, 1, [&](uint64_t begin, uint64_t end, uint32_t) { sum += end - begin; });
  CHECK(sum == 10);
}
