// SPDX-License-Identifier: Apache-2.0
#include "api/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "anyattn/attention.h"
#include "api/runtime_object.h"
#include "api/selection_lock.h"
#include "config/names.h"
#include "inspect/device_code.h"
#include "selector/problem_text.h"
#include "selector/profile.h"

namespace anyattn::api {
namespace {

// Keys in the order written: people read these texts too.
using Json = nlohmann::ordered_json;

// Texts of plugins may hold bytes that are no UTF-8; they are shown, not refused.
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

std::string text(std::string_view view) { return std::string(view); }
Json or_null(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

std::string abi_text(uint32_t version) { return fmt::format("{}.{}", version >> 16, version & 0xffffu); }

std::string device_text(uint32_t kind, int32_t ordinal) { return fmt::format("{}:{}", device::kind_name(kind), ordinal); }

// One row a name: who answers, and what lies beneath it, nearest first. An override so changes this one row and no other.
Json row_json(const registry::Snapshot::Row& row) {
  Json beneath = Json::array();
  for (const registry::Snapshot::Beneath& under : row.beneath)
    beneath.push_back({{"plugin", under.plugin}, {"path", under.path}, {"state", registry::state_name(under.state)}});
  return {{"name", row.key.name},
          {"device", device::kind_name(row.key.device_kind)},
          {"plugin", row.plugin},
          {"path", row.path},
          {"state", registry::state_name(row.state)},
          {"overrides", or_null(row.overrides)},
          {"overridden_by", or_null(row.overridden_by)},
          {"beneath", beneath}};
}

// A number where the field is one, so that scripts need not parse.
Json field_json(const selector::Field& field, const anyattn_problem& problem) {
  std::string value = field.text(problem);
  switch (field.type) {
    case selector::FieldType::kInteger:
    case selector::FieldType::kNumber:
    case selector::FieldType::kBool: {
      Json parsed = Json::parse(value, nullptr, false);
      return parsed.is_discarded() ? Json(value) : std::move(parsed);
    }
    default:
      return value;
  }
}

// Every field by name; null where its feature is off, so that nobody reads a parameter that is not asked.
Json problem_json(const anyattn_problem& problem) {
  Json json;
  for (const selector::Field& field : selector::fields()) {
    if (field.is_feature) continue;
    json[text(field.name)] = selector::field_is_read(field, problem) ? field_json(field, problem) : Json(nullptr);
  }
  json["features"] = selector::feature_names(problem);
  return json;
}

Json report_json(const anyattn_support_report& report) {
  Json bases = Json::array();
  if ((report.lse_bases & ANYATTN_LSE_NATURAL) != 0) bases.push_back("natural");
  if ((report.lse_bases & ANYATTN_LSE_BASE2) != 0) bases.push_back("base2");
  const uint32_t num_block_sizes = std::min<uint32_t>(report.num_block_sizes, std::size(report.block_sizes));
  return {{"block_size", report.block_size},
          {"block_size_multiple", report.block_size_multiple},
          {"block_sizes", std::vector<uint32_t>(report.block_sizes, report.block_sizes + num_block_sizes)},
          {"query_lengths", selector::query_lengths_name(report.query_lengths)},
          {"decode_threshold", report.decode_threshold},
          {"graph_level", selector::graph_level_name(report.graph_level)},
          {"lse_bases", bases},
          {"needs_host_lengths", report.needs_host_lengths != 0},
          {"cost_hint", report.cost_hint},
          {"kernels", or_null(report.kernels)}};
}

// "head_size"; the vendor's own ids keep their number.
std::string reason_id(uint32_t id) {
  return id >= ANYATTN_REASON_VENDOR ? fmt::format("vendor_{}", id) : text(selector::reason_name(id));
}

Json candidate_json(const selector::Candidate& candidate) {
  Json reasons = Json::array();
  for (const selector::Reason& reason : candidate.reasons) {
    reasons.push_back({{"id", reason_id(reason.id)},
                       {"field", or_null(reason.field)},
                       {"wanted", or_null(reason.wanted)},
                       {"allowed", or_null(reason.allowed)},
                       {"hint", or_null(reason.hint)}});
  }
  Json measured = Json::array();
  for (const selector::Measured& one : candidate.measured)
    measured.push_back({{"shape", one.shape},
                        {"fastest_us", one.times.fastest_us},
                        {"median_us", one.times.median_us},
                        {"slowest_us", one.times.slowest_us}});
  const bool has_report = candidate.verdict == selector::Verdict::kChosen || candidate.verdict == selector::Verdict::kEligible;
  return {{"backend", candidate.backend},
          {"plugin", or_null(candidate.plugin)},
          {"path", or_null(candidate.path)},
          {"device", device::kind_name(candidate.device_kind)},
          {"phase", selector::phase_name(candidate.phase)},
          {"stage", registry::stage_name(candidate.stage)},
          {"verdict", selector::verdict_name(candidate.verdict)},
          {"reasons", reasons},
          {"place", candidate.place},
          {"measured", measured},
          {"report", has_report ? report_json(candidate.report) : Json(nullptr)}};
}

// Of the device's kind: the file, and why it does not count for this device.
Json device_profile(const config::Profile* profile, const anyattn_device_facts& device, const registry::View& view) {
  if (!profile || !selector::is_about(*profile, device)) return nullptr;
  return {{"file", profile->file},
          {"date", or_null(profile->date)},
          {"problems", profile->entries.size()},
          {"stale", or_null(selector::why_stale(*profile, device, view))}};
}

// The name; with two backends "DECODE_NAME, PREFILL_NAME", which `choices` takes apart.
Json chosen_json(const selector::Decision& decision) {
  if (decision.choices.empty()) return nullptr;
  const std::string& decode = decision.decode().backend.key.name;
  const std::string& prefill = decision.prefill().backend.key.name;
  return decode == prefill ? decode : decode + ", " + prefill;
}

Json kind_names(const std::vector<uint32_t>& kinds) {
  Json names = Json::array();
  for (const uint32_t kind : kinds) names.push_back(device::kind_name(kind));
  return names;
}

// Plugins that hold code of the device's vendor, but none for this device.
Json without_code(const registry::Snapshot& plugins, const anyattn_device_facts& device) {
  Json ids = Json::array();
  const bool is_amd = device.device_kind == ANYATTN_DEVICE_HIP;
  if (!is_amd && device.device_kind != ANYATTN_DEVICE_CUDA) return ids;
  for (const registry::Snapshot::Plugin& plugin : plugins.plugins) {
    const auto& code = plugin.device_code;
    const bool has_vendors = std::ranges::any_of(code, [&](const std::string& of) { return of.starts_with("gfx") == is_amd; });
    if (has_vendors && !inspect::has_code_for(code, device.architecture)) ids.push_back(plugin.id);
  }
  return ids;
}

}  // namespace

std::string list_json(const registry::Snapshot& snapshot, const std::vector<Draining>& draining,
                      const selector::Quarantine& quarantine) {
  Json json = {
      {"generation", snapshot.generation}, {"backends", Json::array()}, {"skipped", Json::array()}, {"plugins", Json::array()}};
  for (const registry::Snapshot::Row& row : snapshot.backends) {
    Json& json_row = json["backends"].emplace_back(row_json(row));
    json_row["quarantined"] = or_null(quarantine.reason(row.key));
  }
  for (const registry::Failure& failure : snapshot.skipped) {
    json["skipped"].push_back({{"path", failure.path},
                               {"plugin", or_null(failure.plugin)},
                               {"stage", registry::stage_name(failure.stage)},
                               {"reason", failure.reason},
                               {"remedy", failure.remedy}});
  }
  for (const registry::Snapshot::Plugin& plugin : snapshot.plugins) {
    json["plugins"].push_back({{"id", plugin.id},
                               {"vendor", plugin.vendor},
                               {"version", plugin.version},
                               {"license", plugin.license},
                               {"path", plugin.path},
                               {"abi_min", abi_text(plugin.abi_min)},
                               {"abi_max", abi_text(plugin.abi_max)},
                               {"state", registry::state_name(plugin.state)},
                               {"origin", plugin.origin},
                               {"content", or_null(plugin.content)},
                               {"signed_by", or_null(plugin.signed_by)},
                               {"device_code", plugin.device_code},
                               {"providers", kind_names(plugin.providers)}});
  }
  for (const Draining& old : draining) {
    json["plugins"].push_back({{"id", old.id},
                               {"vendor", old.vendor},
                               {"version", old.version},
                               {"license", old.license},
                               {"path", old.path},
                               {"abi_min", nullptr},
                               {"abi_max", nullptr},
                               {"state", registry::state_name(registry::State::kDraining)},
                               {"origin", "an earlier generation"},
                               {"content", old.content},
                               {"signed_by", nullptr},
                               {"device_code", Json::array()},
                               {"providers", Json::array()}});
  }
  return dump(json);
}

std::string config_json(const config::Config& config) {
  Json values = Json::array();
  for (const config::Config::Value& value : config.values) {
    values.push_back({{"key", value.key}, {"value", value.value}, {"origin", value.origin}});
  }
  return dump({{"file", config.file}, {"values", values}});
}

std::string devices_json(const std::vector<anyattn_device_facts>& devices, const std::vector<device::MissingKind>& missing,
                         const anyattn_cpu_facts& cpu, const registry::Registry& registry, const config::Profile* profile) {
  const registry::Snapshot plugins = registry.snapshot();
  const registry::View view = registry.view();
  Json json = {{"devices", Json::array()}, {"missing", Json::array()}};
  for (const anyattn_device_facts& facts : devices) {
    json["devices"].push_back({{"kind", device::kind_name(facts.device_kind)},
                               {"ordinal", facts.ordinal},
                               {"name", facts.name},
                               {"architecture", facts.architecture},
                               {"memory_bytes", facts.memory_bytes},
                               {"num_multiprocessors", facts.num_multiprocessors},
                               {"warp_size", facts.warp_size},
                               {"shared_memory_per_block", facts.shared_memory_per_block},
                               {"l2_bytes", facts.l2_bytes},
                               {"arch_major", facts.arch_major},
                               {"arch_minor", facts.arch_minor},
                               {"has_graphs", (facts.features & ANYATTN_DEVICE_HAS_GRAPHS) != 0},
                               {"has_host_memory", (facts.features & ANYATTN_DEVICE_HAS_HOST_MEMORY) != 0},
                               {"driver_version", facts.driver_version},
                               {"runtime_version", facts.runtime_version},
                               {"compiler_version", facts.compiler_version},
                               {"plugins_without_code", without_code(plugins, facts)},
                               {"profile", device_profile(profile, facts, view)}});
  }
  for (const device::MissingKind& kind : missing) json["missing"].push_back({{"kind", kind.kind}, {"reason", kind.reason}});
  Json isa = Json::array();
  for (const config::CpuIsaName& known : config::kCpuIsas) {
    if ((cpu.isa & known.bit) != 0) isa.push_back(text(known.name));
  }
  json["cpu"] = {{"isa", isa},
                 {"cores", cpu.num_cores},
                 {"l1d_bytes", cpu.l1d_bytes},
                 {"l2_bytes", cpu.l2_bytes},
                 {"l3_bytes", cpu.l3_bytes}};
  return dump(json);
}

std::string explain_json(const selector::Decision& decision) {
  Json json = {{"problem", problem_json(decision.problem.view())},
               {"device", device_text(decision.device_kind, decision.device_ordinal)},
               {"generation", decision.generation},
               {"chosen", chosen_json(decision)},
               {"origin", or_null(decision.origin)},
               {"error", or_null(decision.text)},
               {"block_size_origin", or_null(decision.block_size_origin)},
               {"profile",
                {{"key", decision.profile.key},
                 {"file", or_null(decision.profile.file)},
                 {"stale", or_null(decision.profile.stale)},
                 {"found", decision.profile.found}}},
               {"choices", Json::array()},
               {"specs", Json::array()},
               {"candidates", Json::array()}};
  for (const selector::Choice& choice : decision.choices) {
    json["choices"].push_back({{"phase", selector::phase_name(choice.phase)},
                               {"backend", choice.backend.key.name},
                               {"plugin", choice.backend.plugin ? Json(choice.backend.plugin->id) : Json(nullptr)},
                               {"origin", choice.origin},
                               {"report", report_json(choice.report)}});
  }
  for (const selector::OwnedSpec& spec : decision.specs) {
    json["specs"].push_back({{"name", spec.name()},
                             {"block_size", spec.block_size()},
                             {"block_bytes", spec.block_bytes()},
                             {"digest", fmt::format("{:016x}", spec.digest())}});
  }
  for (const selector::Candidate& candidate : decision.candidates) json["candidates"].push_back(candidate_json(candidate));
  const config::LockEntry lock = lock_entry(decision);
  json["lock"] = {{"problem", lock.problem}, {"chosen", lock.chosen}, {"plugins", lock.plugins}, {"reasons", lock.reasons}};
  return dump(json);
}

}  // namespace anyattn::api
