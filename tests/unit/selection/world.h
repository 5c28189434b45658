// SPDX-License-Identifier: Apache-2.0
// A small world for tests of registry and selector: plugins that are values instead of files, a configuration, a registry.
// Included by the tests beside it. Nothing here is loaded from disk.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyattn/util.h"
#include "log/log.h"
#include "registry/registry.h"
#include "selector/decision_cache.h"
#include "selector/problem_text.h"
#include "selector/selector.h"

namespace anyattn::test {

using Refuse = std::function<void(uint32_t id, const char* field, const std::string& wanted, const std::string& allowed)>;

// What the backends of one fake plugin do when asked. The defaults take every plain problem.
struct Behaviour {
  std::function<void(const anyattn_problem&, const Refuse&)> refuse;  // called first: any call makes it a no
  uint32_t preferred_block_size = 16;
  uint32_t block_size_multiple = 16;
  std::vector<uint32_t> block_sizes;
  std::function<void(const anyattn_problem&, anyattn_support_report&)> touch_report;  // last word on a yes
  std::function<int32_t(anyattn_error*)> supports_fails;
  std::function<int32_t(anyattn_error*)> spec_fails;
  std::vector<std::string> layouts{"HND"};  // one accepted spec each; equal names give equal digests
  std::function<void(anyattn_kv_cache_spec&)> touch_spec;
  std::atomic<int> asked{0};
};

struct FakePlugin {
  std::string id;
  std::vector<registry::Key> backends;
  bool is_mla = false;
  bool has_merge_states = true;
  std::function<void(anyattn_backend&)> touch_table;
  std::vector<uint32_t> providers;
  bool has_sidecar = true;
  bool required = false;
  std::string fails;  // not empty: does not open, with this text
  std::string path;   // "/plugins/ID.so" where empty
  std::string content;
  std::shared_ptr<Behaviour> behaviour = std::make_shared<Behaviour>();
};

registry::Key cpu(const std::string& name);
registry::Key cuda(const std::string& name);

class World {
 public:
  // registry.override with one entry, or none.
  explicit World(const std::string& override_name = "", const std::string& owner = "");
  ~World();

  // Puts the "file" there and returns its path.
  std::string put(FakePlugin plugin);
  // Puts the files there and registers them in this order.
  void add(std::vector<FakePlugin> plugins);

  selector::Decision select(const anyattn_problem& problem, const std::string& backend = "", bool ask_all = false);
  anyattn_device_facts device(uint32_t kind) const;
  std::string answerer(const registry::Key& key);  // plugin id that answers, or the failure's text, or "nobody"
  // The rows of `list`, one text a line.
  std::vector<std::string> list() const;
  bool logged(const std::string& part) const;

  config::Config config;
  std::optional<config::Profile> profile;
  std::unique_ptr<registry::Registry> registry;
  std::map<std::string, std::atomic<int>> opened;  // by path
  std::vector<std::string> log_lines;
  uint32_t device_kind = ANYATTN_DEVICE_CPU;
  std::vector<uint32_t> fallback_kinds;

 private:
  registry::Candidate candidate(const std::string& path) const;
  std::shared_ptr<const registry::OpenPlugin> open(const registry::Candidate& candidate);

  std::map<std::string, FakePlugin> files_;
};

// A plain decoder problem that every default fake takes.
struct Problem {
  Problem();
  anyattn_problem c{};
  uint64_t features[1] = {0};
  Problem& with(uint32_t feature);
  Problem& mla();
  Problem& ragged();
  // Borrows this object's features.
  operator anyattn_problem() const {  // NOLINT(google-explicit-constructor)
    anyattn_problem problem = c;
    problem.features = features;
    return problem;
  }
};

// A fake that refuses where the field's text differs from `allowed`.
FakePlugin plugin_for(const std::string& id, const std::string& name, const std::string& field, const std::string& allowed);
FakePlugin plain_plugin(const std::string& id, const std::string& name);

}  // namespace anyattn::test
