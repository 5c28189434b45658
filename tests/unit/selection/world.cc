// SPDX-License-Identifier: Apache-2.0
#include "unit/selection/world.h"

#include <algorithm>
#include <stdexcept>

#include "config/names.h"

namespace anyattn::test {
namespace {

// What the fake's host table points to: a plugin's functions get no other context.
Behaviour& behaviour_of(const anyattn_host* host) { return *static_cast<Behaviour*>(host->context); }

int32_t supports(const anyattn_host* host, const anyattn_device_facts*, const anyattn_problem* problem,
                 const anyattn_reason_sink* reasons, anyattn_support_report* report, anyattn_error* error) {
  Behaviour& own = behaviour_of(host);
  ++own.asked;
  if (own.supports_fails) return own.supports_fails(error);
  bool refused = false;
  const Refuse refuse = [&](uint32_t id, const char* field, const std::string& wanted, const std::string& allowed) {
    const anyattn_reason reason{ANYATTN_REASON_SIZE, id, field, wanted.c_str(), allowed.c_str(), nullptr};
    reasons->add(reasons->context, &reason);
    refused = true;
  };
  if (own.refuse) own.refuse(*problem, refuse);
  const bool paged = problem->key_source == ANYATTN_KEYS_PAGED;
  const uint32_t size = problem->block_size;
  const bool takes_size = size == 0 || (own.block_size_multiple && size % own.block_size_multiple == 0) ||
                          std::ranges::find(own.block_sizes, size) != own.block_sizes.end();
  if (paged && !takes_size) {
    std::string allowed;
    for (const uint32_t one : own.block_sizes) allowed += (allowed.empty() ? "" : ", ") + std::to_string(one);
    if (own.block_size_multiple) allowed = "multiples of " + std::to_string(own.block_size_multiple);
    refuse(ANYATTN_REASON_BLOCK_SIZE, "block_size", std::to_string(size), allowed);
  }
  if (refused) return ANYATTN_OK;
  report->supported = 1;
  report->block_size = !paged ? 0 : size ? size : own.preferred_block_size;
  report->block_size_multiple = own.block_size_multiple;
  report->num_block_sizes = static_cast<uint32_t>(own.block_sizes.size());
  std::ranges::copy(own.block_sizes, report->block_sizes);
  report->query_lengths = ANYATTN_QUERY_ANY;
  report->graph_level = ANYATTN_GRAPH_ALWAYS;
  report->lse_bases = anyattn_problem_has(problem, ANYATTN_FEATURE_LSE) ? ANYATTN_LSE_NATURAL : 0;
  if (own.touch_report) own.touch_report(*problem, *report);
  return ANYATTN_OK;
}

int32_t kv_cache_spec(const anyattn_host* host, const anyattn_device_facts*, const anyattn_problem* problem,
                      anyattn_spec_fn accept, void* context, anyattn_error* error) {
  Behaviour& own = behaviour_of(host);
  if (own.spec_fails) return own.spec_fails(error);
  for (const std::string& layout : own.layouts) {
    const int64_t tokens = problem->block_size;
    const int64_t heads = problem->num_kv_heads;
    const int64_t row = problem->head_size * 4;
    const int64_t bytes = tokens * heads * row;
    const bool head_major = layout == "HND";
    anyattn_plane plane{ANYATTN_PLANE_SIZE,
                        ANYATTN_PLANE_K,
                        ANYATTN_DTYPE_FLOAT32,
                        4,
                        {0, tokens, heads, problem->head_size, 0},
                        {bytes, head_major ? row : heads * row, head_major ? tokens * row : row, 4, 0},
                        0};
    anyattn_kv_cache_spec spec{ANYATTN_KV_CACHE_SPEC_SIZE,
                               problem->block_size,
                               static_cast<uint64_t>(bytes),
                               16,
                               1,
                               sizeof plane,
                               0,
                               &plane,
                               layout.c_str(),
                               0};
    spec.digest = anyattn_kv_cache_spec_digest(&spec);
    if (own.touch_spec) own.touch_spec(spec);
    accept(context, &spec);
  }
  return ANYATTN_OK;
}

int32_t kv_cache_update(anyattn_impl*, const anyattn_kv_cache_update_args*, anyattn_error*) { return ANYATTN_OK; }
int32_t forward(anyattn_impl*, const anyattn_metadata*, const anyattn_forward_args*, anyattn_error*) { return ANYATTN_OK; }
int32_t forward_mqa(anyattn_impl*, const anyattn_metadata*, const anyattn_mqa_args*, anyattn_error*) { return ANYATTN_OK; }
int32_t merge_states(anyattn_impl*, const anyattn_merge_args*, anyattn_error*) { return ANYATTN_OK; }

// The fake behind one OpenPlugin: names and host table that the C structs point to.
struct Loaded {
  FakePlugin plugin;
  anyattn_host host{};
};

}  // namespace

registry::Key cpu(const std::string& name) { return {name, ANYATTN_DEVICE_CPU}; }
registry::Key cuda(const std::string& name) { return {name, ANYATTN_DEVICE_CUDA}; }

World::World(const std::string& override_name, const std::string& owner) {
  std::map<std::string, std::string> override_owner;
  if (!override_name.empty()) override_owner[override_name] = owner;
  registry = std::make_unique<registry::Registry>(
      std::move(override_owner), [this](const registry::Candidate& c) { return open(c); },
      [this](const std::string& path) { return candidate(path); });
  log::set_level(log::Level::kDebug);
  log::set_sink([this](log::Level, std::string_view line) { log_lines.emplace_back(line); });
}

World::~World() {
  log::set_sink({});
  log::set_level(log::Level::kInfo);
}

std::string World::put(FakePlugin plugin) {
  if (plugin.path.empty()) plugin.path = "/plugins/" + plugin.id + ".so";
  const std::string path = plugin.path;
  opened[path];
  files_[path] = std::move(plugin);
  return path;
}

void World::add(std::vector<FakePlugin> plugins) {
  std::vector<registry::Candidate> candidates;
  for (FakePlugin& plugin : plugins) candidates.push_back(candidate(put(std::move(plugin))));
  registry->add(std::move(candidates));
}

registry::Candidate World::candidate(const std::string& path) const {
  const auto found = files_.find(path);
  if (found == files_.end())
    throw registry::OpenError(
        {registry::Stage::kDiscover, ANYATTN_NOT_FOUND, "", path, "no such file", "name a file that is there"});
  const FakePlugin& plugin = found->second;
  registry::Candidate candidate;
  candidate.path = path;
  candidate.origin = "search /plugins";
  candidate.required = plugin.required;
  candidate.has_sidecar = plugin.has_sidecar;
  candidate.content = plugin.content;
  if (!plugin.has_sidecar) return candidate;
  candidate.id = plugin.id;
  candidate.backends = plugin.backends;
  candidate.providers = plugin.providers;
  return candidate;
}

std::shared_ptr<const registry::OpenPlugin> World::open(const registry::Candidate& candidate) {
  ++opened.at(candidate.path);
  const auto loaded = std::make_shared<Loaded>();
  loaded->plugin = files_.at(candidate.path);
  const FakePlugin& plugin = loaded->plugin;
  if (!plugin.fails.empty())
    throw registry::OpenError({registry::Stage::kOpen, ANYATTN_INTERNAL, plugin.id, candidate.path, plugin.fails, ""});
  loaded->host.struct_size = ANYATTN_HOST_SIZE;
  loaded->host.context = plugin.behaviour.get();

  auto open = std::make_shared<registry::OpenPlugin>();
  open->id = plugin.id;
  open->path = candidate.path;
  open->version = "1.0";
  for (const registry::Key& key : plugin.backends) {
    anyattn_backend table{};
    table.struct_size = ANYATTN_BACKEND_SIZE;
    table.device_kind = key.device_kind;
    table.name = key.name.c_str();
    table.supports = supports;
    table.kv_cache_spec = kv_cache_spec;
    table.kv_cache_update = kv_cache_update;
    if (plugin.is_mla) table.forward_mqa = forward_mqa;
    if (!plugin.is_mla) table.forward = forward;
    if (plugin.has_merge_states) table.merge_states = merge_states;
    if (plugin.touch_table) plugin.touch_table(table);
    open->backends.push_back(table);
  }
  for (const uint32_t kind : plugin.providers) {
    anyattn_device_provider provider{};
    provider.struct_size = ANYATTN_DEVICE_PROVIDER_SIZE;
    provider.device_kind = kind;
    open->providers.push_back(provider);
  }
  open->host = &loaded->host;
  open->loaded = loaded;
  return open;
}

anyattn_device_facts World::device(uint32_t kind) const {
  anyattn_device_facts facts{};
  facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
  facts.device_kind = kind;
  facts.architecture = "fake";
  facts.name = "fake";
  return facts;
}

selector::Decision World::select(const anyattn_problem& problem, const std::string& backend, bool ask_all) {
  const anyattn_device_facts facts = device(device_kind);
  std::vector<anyattn_device_facts> fallback;
  for (const uint32_t kind : fallback_kinds) fallback.push_back(device(kind));
  selector::Request request{&problem, &facts, {}, backend, ask_all};
  if (profile) request.profile = &*profile;
  for (const anyattn_device_facts& one : fallback) request.fallback_devices.push_back(&one);
  return selector::select(request, config, *registry);
}

std::string World::answerer(const registry::Key& key) {
  const registry::Registry::Acquired acquired = registry->acquire(key);
  if (acquired.backend) return acquired.backend->plugin->id;
  return acquired.failure ? describe(*acquired.failure) : "nobody";
}

std::vector<std::string> World::list() const {
  std::vector<std::string> lines;
  for (const registry::Snapshot::Row& row : registry->snapshot().backends) {
    std::string line = describe(row.key) + " " + row.plugin + " " + row.path + " " + std::string(state_name(row.state)) +
                       " overrides=" + row.overrides + " overridden_by=" + row.overridden_by;
    for (const auto& below : row.beneath) line += " beneath=" + below.plugin + ":" + std::string(state_name(below.state));
    lines.push_back(line);
  }
  return lines;
}

bool World::logged(const std::string& part) const {
  return std::ranges::any_of(log_lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

Problem::Problem() {
  c.struct_size = ANYATTN_PROBLEM_SIZE;
  c.num_feature_words = 1;
  c.num_q_heads = 8;
  c.num_kv_heads = 2;
  c.head_size = 64;
  c.head_size_v = 64;
  c.q_dtype = ANYATTN_DTYPE_BFLOAT16;
  c.out_dtype = ANYATTN_DTYPE_BFLOAT16;
}

Problem& Problem::with(uint32_t feature) {
  features[0] |= uint64_t{1} << feature;
  return *this;
}

Problem& Problem::ragged() {
  c.key_source = ANYATTN_KEYS_RAGGED;
  return *this;
}

Problem& Problem::mla() {
  with(ANYATTN_FEATURE_MLA);
  c.num_kv_heads = 1;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.head_size = 576;
  c.head_size_v = 512;
  return *this;
}

FakePlugin plain_plugin(const std::string& id, const std::string& name) {
  FakePlugin plugin;
  plugin.id = id;
  plugin.backends = {cpu(name)};
  return plugin;
}

FakePlugin plugin_for(const std::string& id, const std::string& name, const std::string& field, const std::string& allowed) {
  FakePlugin plugin = plain_plugin(id, name);
  const selector::Field* row = selector::find_field(field);
  if (!row) throw std::invalid_argument("no field " + field);
  plugin.behaviour->refuse = [row, allowed](const anyattn_problem& problem, const Refuse& refuse) {
    const std::string wanted = row->text(problem);
    if (wanted != allowed) refuse(ANYATTN_REASON_PARAMETER, std::string(row->name).c_str(), wanted, allowed);
  };
  return plugin;
}

}  // namespace anyattn::test
