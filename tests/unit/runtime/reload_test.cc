// SPDX-License-Identifier: Apache-2.0
// Reload while engines run: which version a call gets, what a bad file or configuration changes, how many contents a process takes.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "anyattn/bundle.h"
#include "runtime_fixture.h"

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// A folder with one plugin file whose content is replaced, and a configuration that searches it.
class Rollout {
 public:
  explicit Rollout(const std::string& more = "") {
    static std::atomic<int> number{0};
    folder_ = fs::temp_directory_path() / ("anyattn_reload_" + std::to_string(getpid()) + "_" + std::to_string(number++));
    fs::create_directories(folder_ / "plugins");
    write_config(more);
  }
  ~Rollout() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Rollout(const Rollout&) = delete;
  Rollout& operator=(const Rollout&) = delete;

  std::string config() const { return (folder_ / "config.yaml").string(); }
  fs::path plugin() const { return folder_ / "plugins" / "anyattn_version.so"; }

  void write_config(const std::string& more, const std::string& backend = "FAKE_VERSION") const {
    std::ofstream(config()) << "version: 1\nplugins: {search: [plugins]" << more << "}\nselection: {backend: " << backend
                            << "}\n"
                            << "probe: {cache: verdicts}\n";
  }
  // As an installer does: written beside it, then renamed, so that nobody sees half a file. `salt` makes it a content of its own.
  void install(const std::string& name, const std::string& salt = "") const {
    const fs::path scratch = folder_ / "plugins" / "incoming";
    fs::copy_file(fake::ConfigFile::plugin_path(name), scratch, fs::copy_options::overwrite_existing);
    if (!salt.empty()) std::ofstream(scratch, std::ios::app | std::ios::binary) << salt;
    fs::rename(scratch, plugin());
  }
  void install_text(const std::string& text) const {
    std::ofstream(folder_ / "plugins" / "incoming", std::ios::binary) << text;
    fs::rename(folder_ / "plugins" / "incoming", plugin());
  }
  // A bundle of private_a; `salt` makes plugin and private library contents of their own. Renamed into place whole.
  void install_bundle(const std::string& version, const std::string& salt) const {
    const fs::path from = fs::path(fake::ConfigFile::plugin_path("private_a")).parent_path();
    const fs::path scratch = folder_ / ("incoming-" + version);
    fs::create_directories(scratch / "lib");
    for (const char* name : {"anyattn_private_a.so", "lib/libfake_private.so.3"}) {
      fs::copy_file(from / name, scratch / name);
      std::ofstream(scratch / name, std::ios::app | std::ios::binary) << salt;
    }
    std::ifstream sidecar(from / "anyattn_private_a.yaml");
    std::string text{std::istreambuf_iterator<char>(sidecar), {}};
    text.replace(text.find("\"1.10\""), 6, "\"" + version + "\"");
    std::ofstream(scratch / "anyattn_private_a.yaml") << text;
    char* manifest = nullptr;
    REQUIRE(anyattn_bundle_describe(scratch.c_str(), 0, &manifest, nullptr) == ANYATTN_OK);
    std::ofstream(scratch / "manifest.yaml") << manifest;
    anyattn_text_free(manifest);
    fs::rename(scratch, folder_ / "plugins" / version);
  }
  anyattn::Runtime open() const {
    anyattn::Runtime::Options options;
    options.config_path = config();
    options.log_level = "error";
    options.num_threads = 1;
    return anyattn::Runtime(options);
  }

 private:
  fs::path folder_;
};

// A group with room for one row; call() says which version wrote it.
class OneRow {
 public:
  explicit OneRow(const anyattn::Runtime& runtime) : group_(runtime, options()), memory_(runtime, {}, 3 * kBytes + 65536) {
    std::memset(memory_.get(), 0, 3 * kBytes + 65536);
    cache_ = {ANYATTN_CACHE_SIZE, 0, static_cast<char*>(memory_.get()) + 3 * kBytes, group_.info().spec->block_bytes, 1,
              group_.info().spec};
  }
  float call() {
    static const int32_t starts[] = {0, 1};
    static const int32_t lens[] = {1};
    static const int32_t table[] = {0};
    anyattn_batch batch{};
    batch.struct_size = ANYATTN_BATCH_SIZE;
    batch.num_reqs = batch.num_tokens = batch.max_query_len = batch.max_seq_len = 1;
    batch.query_start_loc = batch.query_start_loc_host = starts;
    batch.seq_lens = batch.seq_lens_host = lens;
    batch.block_table = table;
    batch.block_table_stride = 1;
    group_.update(ANYATTN_PHASE_BOTH, batch);
    const anyattn::Tensor q(memory_.get(), ANYATTN_DTYPE_FLOAT32, {1, 8, 64});
    float* out = reinterpret_cast<float*>(static_cast<char*>(memory_.get()) + kBytes);
    const anyattn::Tensor to(out, ANYATTN_DTYPE_FLOAT32, {1, 8, 64});
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    args.softmax_scale = 1;
    args.q = q;
    args.out = to;
    args.cache = &cache_;
    out[0] = out[511] = -1;
    group_.forward(ANYATTN_PHASE_BOTH, args);
    return out[0] == out[511] ? out[0] : -2;
  }

 private:
  static constexpr size_t kBytes = 8 * 64 * 4;
  static anyattn::Group::Options options() {
    static const anyattn::Problem problem = fake::small_problem();
    anyattn::Group::Options options = fake::group_options(problem.view());
    options.limits = {ANYATTN_LIMITS_SIZE, 1, 1, 1, 16, 0};
    return options;
  }
  anyattn::Group group_;
  anyattn::DeviceMemory memory_;
  anyattn_cache cache_{};
};

// Eight threads that call `again` until stopped, each with a row of its own, kept from the start, and the version that the row's first
// call gave. It answers whether all was right; what throws was wrong too.
class Callers {
 public:
  Callers(const anyattn::Runtime& runtime, const std::function<bool(OneRow&, float)>& again) {
    for (int t = 0; t < 8; ++t) {
      threads_.emplace_back([this, &runtime, again] {
        try {
          OneRow kept(runtime);
          const float first = kept.call();
          for (; !stop_; ++calls_)
            if (!again(kept, first)) ++wrong_;
        } catch (const anyattn::RuntimeError& error) {
          MESSAGE(error.what());
          ++wrong_;
        }
      });
    }
  }
  ~Callers() { stop(); }
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  // Returns after so many more calls, or once something was wrong.
  void wait_for(int calls) const {
    for (const int seen = calls_; calls_ < seen + calls && wrong_ == 0;) std::this_thread::yield();
  }
  // How many calls were wrong.
  int stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return wrong_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::atomic<int> wrong_{0};
  std::vector<std::thread> threads_;
};

std::string failure_text(const anyattn::Runtime& runtime) {
  try {
    runtime.reload();
  } catch (const anyattn::RuntimeError& error) {
    return error.what();
  }
  return "";
}

int count_state(const anyattn::Runtime& runtime, const std::string& state) {
  int count = 0;
  const json list = json::parse(runtime.list());
  for (const json& plugin : list["plugins"]) count += plugin["state"] == state ? 1 : 0;
  return count;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a_changed_file_serves_new_groups_and_the_old_one_drains") {
  const Rollout rollout;
  rollout.install("version_one");
  const anyattn::Runtime runtime = rollout.open();
  auto old = std::make_unique<OneRow>(runtime);
  CHECK(old->call() == 1);
  const uint64_t before = runtime.generation();

  rollout.install("version_two");
  runtime.reload();
  CHECK(runtime.generation() > before);
  CHECK(OneRow(runtime).call() == 2);
  CHECK(old->call() == 1);
  CHECK(count_state(runtime, "draining") == 1);
  old.reset();
  CHECK(count_state(runtime, "draining") == 0);

  rollout.install("version_one");  // a content that is open already is taken up again, after its last impl was gone
  runtime.reload();
  CHECK(OneRow(runtime).call() == 1);
}

TEST_CASE("what_does_not_load_changes_nothing_and_says_why") {
  const Rollout rollout;
  rollout.install("version_one");
  const anyattn::Runtime runtime = rollout.open();
  OneRow row(runtime);
  const uint64_t before = runtime.generation();

  rollout.install_text("no plugin at all");
  const std::string no_plugin = failure_text(runtime);
  CHECK_MESSAGE(holds(no_plugin, "anyattn_version.so"), no_plugin);
  rollout.install("crash_constructor");
  const std::string crash = failure_text(runtime);
  CHECK_MESSAGE(!crash.empty(), crash);
  rollout.install("version_two");
  rollout.write_config(", no_such_key: 1");
  CHECK(holds(failure_text(runtime), "no_such_key"));
  CHECK(runtime.generation() == before);
  CHECK(row.call() == 1);
  CHECK(OneRow(runtime).call() == 1);

  rollout.write_config("");
  runtime.reload();
  CHECK(OneRow(runtime).call() == 2);
}

TEST_CASE("a_reload_that_would_loosen_what_is_trusted_is_refused") {
  const Rollout rollout;
  rollout.install("version_one");
  const anyattn::Runtime runtime = rollout.open();
  OneRow row(runtime);
  const uint64_t before = runtime.generation();
  std::ofstream(rollout.config(), std::ios::app) << "trust: {level: none}\n";
  CHECK(failure_text(runtime) == "");
  rollout.write_config("");
  std::ofstream(rollout.config()) << "version: 1\nplugins: {search: [plugins]}\nprobe: {enabled: false}\n";
  const std::string refused = failure_text(runtime);
  CHECK_MESSAGE(holds(refused, "probe.enabled is false, this process runs with true; a reload only tightens"), refused);
  CHECK(runtime.generation() > before);  // the first of the two
  CHECK(row.call() == 1);
}

TEST_CASE("the_number_of_contents_a_process_opens_of_one_plugin_is_bounded") {
  // Contents are counted a process: other tests of this program opened two of this plugin already, perhaps.
  const Rollout rollout(", max_contents: 4");
  rollout.install("version_one");
  const anyattn::Runtime runtime = rollout.open();
  CHECK(OneRow(runtime).call() == 1);
  std::string refused;
  for (int i = 0; i < 6 && refused.empty(); ++i) {
    rollout.install("version_two", "salt " + std::to_string(i));
    refused = failure_text(runtime);
  }
  CHECK_MESSAGE(holds(refused, "has opened 4 different files"), refused);
  CHECK_MESSAGE(holds(refused, "restart the process, or raise plugins.max_contents"), refused);
  CHECK(OneRow(runtime).call() >= 1);
  rollout.install("version_one");  // one of those that are open
  CHECK(failure_text(runtime) == "");
}

// A call whose group was made after swap i and done before swap i + 1 began must come from version i.
TEST_CASE("a_hundred_swaps_under_eight_threads_never_give_a_wrong_version") {
  const Rollout rollout(", max_contents: 100");
  rollout.install("version_one");
  const anyattn::Runtime runtime = rollout.open();
  constexpr int kSwaps = 100;
  std::atomic<int> begun{0};  // swap numbers; version of swap i is 1 + i % 2
  std::atomic<int> done{0};
  std::atomic<int> exact{0};
  Callers callers(runtime, [&](OneRow& kept, float first) {
    const int lowest = done;
    OneRow row(runtime);
    const float version = row.call();
    const int highest = begun;
    const bool is_exact = lowest == highest;
    if (is_exact) ++exact;
    const bool right = is_exact ? version == static_cast<float>(1 + lowest % 2) : version == 1 || version == 2;
    return right && row.call() == version && kept.call() == first;
  });
  for (int i = 1; i <= kSwaps; ++i) {
    begun = i;
    rollout.install(i % 2 == 0 ? "version_one" : "version_two");
    runtime.reload();
    done = i;
    callers.wait_for(4);  // let calls begin and end between two swaps, too
  }
  CHECK(callers.stop() == 0);
  CHECK(exact > 0);
  CHECK(count_state(runtime, "draining") == 0);
  CHECK(runtime.generation() >= kSwaps);
}

// The linker keeps one library of a name: what came first serves on, and whoever wants the other reads what to do.
TEST_CASE("a_newer_bundle_with_another_library_of_one_name_is_refused_while_eight_threads_call_the_old_one") {
  const Rollout rollout;
  rollout.write_config("", "FAKE_PRIVATE_A");
  rollout.install_bundle("1.10", "");
  const anyattn::Runtime runtime = rollout.open();
  Callers callers(runtime,
                  [&](OneRow& kept, float first) { return first == 1 && kept.call() == 1 && OneRow(runtime).call() == 1; });
  callers.wait_for(16);
  rollout.install_bundle("1.11", "newer");
  const uint64_t before = runtime.generation();
  for (int i = 0; i < 3; ++i) {
    const std::string refused = failure_text(runtime);
    INFO(refused);
    CHECK(holds(refused, "1.11/lib/libfake_private.so.3"));
    CHECK(holds(refused, "1.10/lib/libfake_private.so.3"));
    CHECK(holds(refused, "restart the process"));
    callers.wait_for(16);
  }
  CHECK(runtime.generation() == before);
  CHECK(callers.stop() == 0);
  CHECK(count_state(runtime, "draining") == 0);
}
