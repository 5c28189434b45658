// SPDX-License-Identifier: Apache-2.0
// The C API of a group's life: made from a decision, described, destroyed.
#include <algorithm>
#include <cstring>

#include "anyattn/runtime.h"
#include "api/group_object.h"
#include "api/guard.h"
#include "api/runtime_object.h"
#include "loader/call.h"
#include "log/log.h"

namespace anyattn::api {
namespace {

constexpr char kCreate[] = "anyattn_group_create";

std::shared_ptr<const selector::Decision> find_successor(Generation& generation, const anyattn_device_facts& facts,
                                                         const selector::Decision& decision,
                                                         const selector::Request::Successor& successor) {
  if (generation.lock.is_set())
    throw StatusError(ANYATTN_UNSUPPORTED, "selection.lock " + generation.config.lock + " allows no other backend");
  const anyattn_problem problem = decision.problem.view();
  selector::Request request;
  request.problem = &problem;
  request.device = &facts;
  request.quarantine = &generation.quarantine;
  request.successor = &successor;
  return std::make_shared<const selector::Decision>(selector::select(request, generation.config, generation.source.registry()));
}

GroupRequest make_request(Runtime& runtime, const anyattn_group_options& options) {
  require_given(options.problem, kCreate, "options.problem");
  require_given(options.limits, kCreate, "options.limits");
  if (options.metadata_mode > ANYATTN_METADATA_GRAPH_CAPTURE) {
    throw StatusError(ANYATTN_INVALID_ARGUMENT, std::string(kCreate) + ": metadata_mode is " +
                                                    std::to_string(options.metadata_mode) +
                                                    "; allowed: 0 normal, 1 fast, 2 graph capture");
  }
  GroupRequest request;
  request.limits = read_options(options.limits, ANYATTN_LIMITS_SIZE, kCreate);
  request.label = options.label ? options.label : "";
  request.metadata_mode = options.metadata_mode;
  request.stream = options.stream;
  const std::string device = options.device ? options.device : "auto";
  const std::shared_ptr<Generation> generation = runtime.generation();
  request.decision = runtime.select(options.problem, device, options.backend ? options.backend : "", false);
  if (!request.decision->ok()) {
    const std::string who = request.label.empty() ? std::string(kCreate) : "group \"" + request.label + "\"";
    throw StatusError(request.decision->status, who + ": " + request.decision->text);
  }
  const device::DeviceId id{request.decision->device_kind, request.decision->device_ordinal};
  request.provider = &runtime.provider(id);
  request.facts = &runtime.facts(id);
  request.scratch = &runtime.scratch(id);
  ErrorBuffer error;
  const int32_t status = loader::call({"provider", "set_current"}, error.get(), request.provider->set_current, id.ordinal);
  if (status != ANYATTN_OK) throw StatusError(status, error.text());
  request.quarantine_after = generation->config.quarantine_after;
  // Weak: a group keeps its own backends alive, not every plugin that was open when it was made.
  const std::weak_ptr<Generation> chosen_by = generation;
  request.successor = [chosen_by, facts = request.facts, decision = request.decision](const auto& successor) {
    const std::shared_ptr<Generation> alive = chosen_by.lock();
    if (!alive) throw StatusError(ANYATTN_UNSUPPORTED, "a reload replaced the configuration that chose it");
    return find_successor(*alive, *facts, *decision, successor);
  };
  request.moved = [chosen_by](const registry::Key& left, const std::string& why, const Impl& next) {
    if (const auto alive = chosen_by.lock()) alive->quarantine.add(left, why);
    log::warning("quarantine: " + registry::describe(left) + " " + why + "; " + next.name() + " (" + next.plugin() +
                 ") takes over, and no automatic choice takes the other until a reload");
  };
  return request;
}

}  // namespace
}  // namespace anyattn::api

using anyattn::api::guarded;
using anyattn::api::require_given;

int32_t anyattn_group_create(anyattn_runtime* runtime, const anyattn_group_options* options, anyattn_group** group,
                             anyattn_error* error) {
  return guarded("anyattn_group_create", error, [&] {
    require_given(runtime, "anyattn_group_create", "runtime");
    require_given(options, "anyattn_group_create", "options");
    require_given(group, "anyattn_group_create", "group");
    *group = nullptr;
    const auto own = anyattn::api::read_options(options, ANYATTN_GROUP_OPTIONS_SIZE, "anyattn_group_create");
    anyattn::api::GroupRequest request = anyattn::api::make_request(*runtime->object, own);
    request.keep = runtime->object;
    *group = new anyattn_group(request);
  });
}

void anyattn_group_destroy(anyattn_group* group) { delete group; }

int32_t anyattn_group_get_info(const anyattn_group* group, anyattn_group_info* info, anyattn_error* error) {
  return guarded("anyattn_group_get_info", error, [&] {
    require_given(group, "anyattn_group_get_info", "group");
    require_given(info, "anyattn_group_get_info", "info");
    anyattn_group_info own{};
    own.device_kind = static_cast<uint32_t>(group->expected.device_kind);
    own.device_ordinal = group->expected.device_ordinal;
    own.is_mla = group->expected.is_mla ? 1 : 0;
    own.needs_split = group->parts[ANYATTN_PHASE_BOTH].metadata ? 0 : 1;
    own.block_size = group->block_size;
    own.decode_threshold = group->decode_threshold;
    own.graph_level = group->graph_level;
    own.query_lengths = group->query_lengths;
    own.lse_bases = group->expected.lse_bases;
    // Impls keep their names while the group lives; one that took over answers both phases.
    const anyattn::api::Impl& newest = *group->writer.load(std::memory_order_acquire);
    const bool is_as_made = &newest == group->newest_as_made;
    own.backend = newest.name();
    own.decode_backend = is_as_made ? group->decode_as_made->name() : newest.name();
    own.plugin = newest.plugin();
    own.kv_cache_dtype = group->expected.is_paged ? group->kv_cache_dtype.c_str() : nullptr;
    own.label = group->label.c_str();
    own.spec = group->expected.is_paged ? &group->spec : nullptr;
    own.scratch_bytes = group->scratch_bytes;
    for (const anyattn::api::Part& part : group->parts) own.persistent_bytes += part.persistent.bytes();
    own.struct_size = std::min(info->struct_size, ANYATTN_GROUP_INFO_SIZE);
    if (own.struct_size >= sizeof own.struct_size) std::memcpy(info, &own, own.struct_size);
  });
}
