// SPDX-License-Identifier: Apache-2.0
// Who answers to a backend name on a device kind, who lies beneath, and why others are not there.
// Included by the selector and the API. Opens plugins through a function it is given; never decides what fits a problem.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <variant>
#include <vector>

#include "registry/types.h"

namespace anyattn::registry {

// What `anyattn list` prints.
struct Snapshot {
  // What lies under an override, nearest first.
  struct Beneath {
    std::string plugin;
    std::string path;
    State state = State::kListed;
  };
  // One row a key: the plugin that answers.
  struct Row {
    Key key;
    std::string plugin;
    std::string path;
    State state = State::kListed;
    std::string overrides;      // plugin id that lies directly beneath; empty = none
    std::string overridden_by;  // plugin id that took the name from its first owner; empty = the first owner answers
    std::vector<Beneath> beneath;
  };
  struct Plugin {
    std::string id, vendor, version, license, path;
    uint32_t abi_min = 0;
    uint32_t abi_max = 0;
    State state = State::kListed;
    std::string origin;
  };
  uint64_t generation = 0;
  std::vector<Row> backends;     // by name, then device kind
  std::vector<Plugin> plugins;   // in the order of discovery
  std::vector<Failure> skipped;  // in the order of discovery, then as they failed
};

// What the selector walks over, taken at one generation.
struct View {
  struct Entry {
    Key key;
    std::string plugin;
    std::string path;
  };
  struct NamedFailure {
    Key key;
    Failure failure;
    bool holds_name = false;  // nobody else answers to the key, or the file gives the name to this plugin
  };
  uint64_t generation = 0;
  std::vector<Entry> entries;           // of every device kind, by plugin id, then name
  std::vector<NamedFailure> failures;   // of plugins whose names are known
  std::vector<Failure> other_failures;  // of plugins whose names are not known
};

class Registry {
 public:
  // Opens, negotiates and normalises. Throws OpenError; any other exception becomes a failure at stage open with its text.
  using OpenFn = std::function<std::shared_ptr<const OpenPlugin>(const Candidate&)>;
  // Looks at one file (trust, inspection, sidecar) without opening it. Throws OpenError.
  using InspectFn = std::function<Candidate(const std::string& path)>;

  // override_owner: backend name -> plugin id that may take it (registry.override).
  Registry(std::map<std::string, std::string> override_owner, OpenFn open, InspectFn inspect);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Registers each candidate, all of its backends or none, in the order given; one new generation. A name that is taken is a
  // skip, unless the file gives it to the later plugin. Throws StatusError with the failure's text for a required plugin.
  void add(std::vector<Candidate> candidates);
  // Files that discovery turned away; `names` are those of a readable sidecar.
  void add_failure(Failure failure, const std::vector<Key>& names);

  uint64_t generation() const;
  Snapshot snapshot() const;
  View view() const;

  // The backend that answers to the key, its plugin opened if it was not. A plugin that fails keeps its own text for every
  // later call and gives its names up. nullopt in neither: nobody has the key.
  struct Acquired {
    std::optional<OpenBackend> backend;
    std::optional<Failure> failure;
  };
  Acquired acquire(const Key& key);

  // Device kinds that some plugin brings a provider for, the first plugin for each.
  std::vector<uint32_t> provider_kinds() const;
  struct AcquiredProvider {
    std::optional<OpenProvider> provider;
    std::optional<Failure> failure;
  };
  AcquiredProvider acquire_provider(uint32_t device_kind);

  // where: an absolute path (the file is inspected, opened and registered whole) or the id of a plugin that is there and has
  // such a backend. Throws StatusError: NOT_FOUND, INVALID_ARGUMENT where the name is taken and the file does not give it away,
  // or the plugin's own failure. A new generation.
  void register_backend(const Key& key, const std::string& where);
  // Takes the latest override back; the one beneath answers again. Throws StatusError where there is none. A new generation.
  void clear_override(const Key& key);

 private:
  struct Slot;
  struct Entry;

  std::optional<Failure> open(const std::shared_ptr<Slot>& slot);
  std::optional<Failure> check_names(const Slot& slot, const std::vector<Key>& names) const;
  void insert(const std::shared_ptr<Slot>& slot, const std::vector<Key>& names);
  void insert_entry(const std::shared_ptr<Slot>& slot, const Key& key);
  void drop(const Slot& slot);
  void record(Failure failure, const std::vector<Key>& names);
  bool may_override(const std::string& name, const std::string& plugin) const;
  std::shared_ptr<Slot> find_plugin(const std::string& id) const;
  std::shared_ptr<Slot> add_one(Candidate candidate);
  void register_file(const Key& key, const std::string& path);
  void register_plugin(const Key& key, const std::string& id);

  const std::map<std::string, std::string> override_owner_;
  const OpenFn open_;
  const InspectFn inspect_;

  mutable std::shared_mutex mutex_;  // guards everything below; never held while a plugin is opened
  uint64_t generation_ = 1;
  std::vector<std::shared_ptr<Slot>> plugins_;
  std::map<Key, std::vector<Entry>> entries_;  // a stack each: the last answers
  std::map<uint32_t, std::shared_ptr<Slot>> providers_;
  struct Recorded {
    Failure failure;
    std::vector<Key> names;
  };
  std::vector<Recorded> failures_;
};

// A plugin that does not open: the loader's words, kept as they are.
class OpenError : public std::exception {
 public:
  explicit OpenError(Failure failure) : failure_(std::move(failure)), text_(describe(failure_)) {}
  const Failure& failure() const noexcept { return failure_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  Failure failure_;
  std::string text_;
};

}  // namespace anyattn::registry
