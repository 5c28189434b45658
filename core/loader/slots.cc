// SPDX-License-Identifier: Apache-2.0
#include "loader/slots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "anyattn/util.h"
#include "config/names.h"

namespace anyattn::loader {
namespace {

constexpr const char* kAskVendor = "ask the plugin's vendor for a build that follows ABI.md";

struct Slot {
  const char* name;
  bool is_there;
};

// Names of the slots that are (not) there.
std::vector<const char*> select(const std::vector<Slot>& slots, bool there) {
  std::vector<const char*> names;
  for (const Slot& slot : slots)
    if (slot.is_there == there) names.push_back(slot.name);
  return names;
}

[[noreturn]] void refuse_slots(const std::string& what, const std::string& problem) {
  refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} {}", what, problem), fmt::format("{} (ABI-11)", kAskVendor));
}

void require_slots(const std::string& what, const std::vector<Slot>& slots) {
  const auto missing = select(slots, false);
  if (!missing.empty()) refuse_slots(what, fmt::format("lacks the required {}", fmt::join(missing, ", ")));
}

bool is_backend_name(const std::string& name) {
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  return !name.empty() && is_upper(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_upper(c) || (c >= '0' && c <= '9') || c == '_'; });
}

void require_known_kind(uint32_t kind, const std::string& what) {
  if (std::ranges::none_of(config::kDeviceKinds, [&](const auto& entry) { return entry.kind == kind; })) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} names the device kind {}, which this host does not know", what, kind),
           "update the host, or ask the plugin's vendor for a build without it");
  }
}

// Decides the family and checks its slots.
bool check_family(const anyattn_backend& table, const std::string& what) {
  const std::vector<Slot> mla = {{"forward_mqa", table.forward_mqa != nullptr},
                                 {"context_gather", table.context_gather != nullptr},
                                 {"forward_mha", table.forward_mha != nullptr}};
  const auto there = select(mla, true);
  if (table.forward && !there.empty()) {
    refuse_slots(what, fmt::format("has forward and {}; a backend is plain or MLA, never both", fmt::join(there, ", ")));
  }
  if (!table.forward && there.empty()) {
    refuse_slots(what, "lacks the required forward (or, for MLA, forward_mqa, context_gather, forward_mha)");
  }
  if (!table.forward) require_slots(what, mla);
  const std::vector<Slot> paged = {{"kv_cache_spec", table.kv_cache_spec != nullptr},
                                   {"kv_cache_update", table.kv_cache_update != nullptr}};
  // A backend for ragged keys only has neither; MLA keys are always paged.
  if (!table.forward || select(paged, true).size() == 1) require_slots(what, paged);
  return !table.forward;
}

}  // namespace

void refuse(int32_t status, std::string reason, std::string remedy) {
  throw Refusal{discovery::Stage::kNegotiate, status, std::move(reason), std::move(remedy)};
}

void require_size(const void* given, const std::string& what, uint32_t need) {
  uint32_t got = 0;
  std::memcpy(&got, given, sizeof got);
  if (got < need) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is too short: struct_size {}, needed at least {}", what, got, need),
           "rebuild the plugin against the SDK's headers and set struct_size to ANYATTN_..._SIZE");
  }
}

std::string read_text(const char* text, const std::string& what, bool may_be_null) {
  constexpr size_t kMaxBytes = 4096;
  if (!text && may_be_null) return {};
  if (!text) refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is null", what), kAskVendor);
  const size_t length = ::strnlen(text, kMaxBytes);
  if (length == kMaxBytes) refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is longer than {} bytes", what, kMaxBytes), kAskVendor);
  return {text, length};
}

Backend read_backend(const anyattn_backend* given, uint32_t index) {
  std::string what = fmt::format("backend {} of its table", index);
  if (!given) refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is null", what), kAskVendor);
  require_size(given, fmt::format("{} (anyattn_backend)", what), ANYATTN_END_OFFSET(anyattn_backend, forward));

  Backend backend;
  anyattn_read_struct(&backend.table, sizeof backend.table, given);
  anyattn_backend& table = backend.table;
  backend.name = read_text(table.name, fmt::format("the name of {}", what));
  if (!is_backend_name(backend.name)) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is called '{}', which is no name ([A-Z][A-Z0-9_]*)", what, backend.name),
           kAskVendor);
  }
  what = fmt::format("its backend {}", backend.name);
  backend.description = read_text(table.description, fmt::format("the description of {}", backend.name), true);
  backend.device_kind = table.device_kind;
  require_known_kind(table.device_kind, what);
  require_slots(what, {{"supports", table.supports != nullptr},
                       {"impl_create", table.impl_create != nullptr},
                       {"impl_destroy", table.impl_destroy != nullptr},
                       {"memory", table.memory != nullptr},
                       {"warmup", table.warmup != nullptr},
                       {"metadata_create", table.metadata_create != nullptr},
                       {"metadata_update", table.metadata_update != nullptr},
                       {"metadata_destroy", table.metadata_destroy != nullptr}});
  backend.is_mla = check_family(table, what);
  return backend;
}

Provider read_provider(const anyattn_device_provider* given, uint32_t index) {
  std::string what = fmt::format("device provider {} of its table", index);
  if (!given) refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is null", what), kAskVendor);
  require_size(given, fmt::format("{} (anyattn_device_provider)", what),
               ANYATTN_END_OFFSET(anyattn_device_provider, event_elapsed));

  Provider provider;
  anyattn_read_struct(&provider.table, sizeof provider.table, given);
  const anyattn_device_provider& table = provider.table;
  provider.name = read_text(table.name, fmt::format("the name of {}", what));
  provider.device_kind = table.device_kind;
  what = fmt::format("its device provider {}", provider.name);
  require_known_kind(table.device_kind, what);
  const std::string_view kind = config::device_kind_name(table.device_kind);
  if (table.device_kind == ANYATTN_DEVICE_CPU) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is for the CPU, whose provider is built into the host", what), kAskVendor);
  }
  if (provider.name != kind) {
    refuse(ANYATTN_ABI_MISMATCH, fmt::format("{} is for the device kind called {}", what, kind), kAskVendor);
  }
  require_slots(what, {{"enumerate", table.enumerate != nullptr},
                       {"facts", table.facts != nullptr},
                       {"set_current", table.set_current != nullptr},
                       {"alloc", table.alloc != nullptr},
                       {"free", table.free != nullptr},
                       {"alloc_pinned", table.alloc_pinned != nullptr},
                       {"free_pinned", table.free_pinned != nullptr},
                       {"copy", table.copy != nullptr},
                       {"fill", table.fill != nullptr},
                       {"stream_create", table.stream_create != nullptr},
                       {"stream_destroy", table.stream_destroy != nullptr},
                       {"stream_synchronize", table.stream_synchronize != nullptr},
                       {"event_create", table.event_create != nullptr},
                       {"event_destroy", table.event_destroy != nullptr},
                       {"event_record", table.event_record != nullptr},
                       {"event_wait", table.event_wait != nullptr},
                       {"event_elapsed", table.event_elapsed != nullptr}});
  const std::vector<Slot> graphs = {{"graph_capture_begin", table.graph_capture_begin != nullptr},
                                    {"graph_capture_end", table.graph_capture_end != nullptr},
                                    {"graph_launch", table.graph_launch != nullptr},
                                    {"graph_destroy", table.graph_destroy != nullptr}};
  provider.has_graphs = !select(graphs, true).empty();
  if (provider.has_graphs) require_slots(what, graphs);
  return provider;
}

}  // namespace anyattn::loader
