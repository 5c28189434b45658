// SPDX-License-Identifier: Apache-2.0
// Who answers to a backend name on a device kind, who lies beneath, and why others are not there.
// Included by the selector and the API. Opens plugins through a function it is given; never decides what fits a problem.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
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
    std::string content;
    std::string signed_by;
    std::set<std::string> device_code;
    std::vector<uint32_t> providers;  // device kinds
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
    std::string content;  // BLAKE2b-256 of the file, hex
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

class Registry {
 public:
  // Opens, negotiates and normalises. Throws OpenError; any other exception becomes a failure at stage open with its text.
  using OpenFn = std::function<std::shared_ptr<const OpenPlugin>(const Candidate&)>;
  // Looks at one file (trust, inspection, sidecar) without opening it. Throws OpenError.
  using InspectFn = std::function<Candidate(const std::string& path)>;

  // override_owner: backend name -> plugin id that may take it (registry.override).
  // generation: where its count begins; a reload goes on from the registry before.
  Registry(std::map<std::string, std::string> override_owner, OpenFn open, InspectFn inspect, uint64_t generation = 1);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // Registers each candidate, all of its backends or none, in the order given; one new generation. A name that is taken is a
  // skip, unless the file gives it to the later plugin. Throws StatusError with the failure's text for a required plugin.
  // Here and below std::bad_alloc leaves what a candidate or call changes as it was before, or, for a failure, recorded whole.
  void add(std::vector<Candidate> candidates);
  // Files that discovery turned away; `names` and `providers` are those of a readable sidecar.
  void add_failure(Failure failure, const std::vector<Key>& names, const std::vector<uint32_t>& providers = {});

  uint64_t generation() const;
  std::vector<std::shared_ptr<const OpenPlugin>> open_plugins() const;
  Snapshot snapshot() const;
  View view() const;

  // The backend that answers to the key, its plugin opened if it was not. A plugin that fails keeps its own text for every
  // later call and gives its names up. nullopt in neither: nobody has the key.
  struct Acquired {
    std::optional<OpenBackend> backend;
    std::optional<Failure> failure;
  };
  Acquired acquire(const Key& key);

  // Device kinds that some plugin brings a provider for, or would bring had it not failed.
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
  using SlotPtr = std::shared_ptr<Slot>;
  struct Recorded {
    Failure failure;
    std::vector<Key> names;
    std::vector<uint32_t> providers;
  };
  // All that a registration changes.
  struct Names {
    std::vector<SlotPtr> plugins;
    std::map<Key, std::vector<SlotPtr>> entries;         // a stack each, never empty: the last answers
    std::map<uint32_t, std::vector<SlotPtr>> providers;  // the first answers
    std::vector<Recorded> failures;
  };
  // A change under the mutex: whole once done() is called, else everything is as it was.
  class Change {
   public:
    explicit Change(Names& names) : names_(names), before_(names) {}
    ~Change() {
      if (!done_) std::swap(names_, before_);
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    void done() { done_ = true; }

   private:
    Names& names_;
    Names before_;
    bool done_ = false;
  };

  // Each takes the mutex itself.
  std::optional<Failure> open(const SlotPtr& slot);
  std::optional<Failure> add_one(Candidate candidate, const Key* wanted = nullptr);  // wanted: a key it must bring
  void register_file(const Key& key, const std::string& path);
  void register_plugin(const Key& key, const std::string& id);
  [[noreturn]] void fail_name(const Failure& failure, const Key& key);  // asked again, the key says this failure
  void settle(const Key& key);                                          // a call decided who has the key: new generation

  // The caller holds the mutex.
  std::optional<Failure> check_names(const Slot& slot, const std::vector<Key>& names) const;
  void insert(const SlotPtr& slot, const Key& key);
  void drop(const SlotPtr& slot);
  void record(Failure failure, std::vector<Key> names, std::vector<uint32_t> providers);
  void forget_failures(const Slot& slot);
  bool may_override(const std::string& name, const std::string& plugin) const;
  bool holds_name(const Recorded& recorded, const Key& key) const;
  SlotPtr find_plugin(const std::string& id) const;
  State plugin_state(const SlotPtr& slot) const;

  const std::map<std::string, std::string> override_owner_;
  const OpenFn open_;
  const InspectFn inspect_;

  mutable std::shared_mutex mutex_;  // guards everything below; never held while a plugin is opened
  uint64_t generation_;
  Names now_;
};

}  // namespace anyattn::registry
