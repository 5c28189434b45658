// SPDX-License-Identifier: Apache-2.0
#include "anyattn/verdicts.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "api/guard.h"
#include "api/library_path.h"
#include "api/runtime_object.h"
#include "device/cpu_facts.h"
#include "discovery/discovery.h"
#include "inspect/libraries.h"
#include "probe/prober.h"

namespace anyattn::api {
namespace {

using Json = nlohmann::ordered_json;

probe::Prober prober_of(const char* config_path) {
  anyattn_runtime_options options{};
  options.config_path = config_path;
  const config::Config config = load_config(options);
  return probe::Prober({probe_program(), config.probe_cache.empty() ? verdict_folder() : config.probe_cache, 0});
}

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json row(const probe::Verdict& verdict) {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const bool is_ok = verdict.outcome == probe::Outcome::kOk;
  return {{"plugin", or_null(verdict.id)},
          {"path", verdict.path},
          {"outcome", probe::outcome_name(verdict.outcome)},
          {"stage", or_null(verdict.stage)},
          {"signal", verdict.signal},
          {"exit_code", verdict.exit_code},
          {"seconds", verdict.seconds},
          {"reason", is_ok ? Json(nullptr) : Json(reason_text(verdict))},
          {"remedy", is_ok ? Json(nullptr) : Json(remedy_text(verdict))},
          {"said", or_null(verdict.said)},
          {"notes", verdict.notes},
          {"transient", verdict.transient},
          {"expired", probe::has_expired(verdict)},
          {"age_s", std::max<int64_t>(0, now - verdict.when)}};
}

}  // namespace
}  // namespace anyattn::api

int32_t anyattn_verdicts_list(const char* config_path, char** json, anyattn_error* error) {
  return anyattn::api::guarded("anyattn_verdicts_list", error, [&] {
    anyattn::api::require_given(json, "anyattn_verdicts_list", "json");
    *json = nullptr;
    const anyattn::probe::Prober prober = anyattn::api::prober_of(config_path);
    anyattn::api::Json whole = {{"folder", prober.cache().folder()}, {"verdicts", anyattn::api::Json::array()}};
    for (const auto& kept : prober.cache().all()) whole["verdicts"].push_back(anyattn::api::row(kept.verdict));
    const std::string text = whole.dump(2, ' ', false, anyattn::api::Json::error_handler_t::replace);
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *json = copy;
  });
}

int32_t anyattn_verdicts_forget(const char* config_path, const char* which, uint64_t* count, anyattn_error* error) {
  return anyattn::api::guarded("anyattn_verdicts_forget", error, [&] {
    anyattn::probe::Prober prober = anyattn::api::prober_of(config_path);
    const uint64_t forgotten = prober.forget(which ? which : "");
    if (count) *count = forgotten;
  });
}

// The file as if a configuration named it, except that a verdict which is kept counts for nothing.
int32_t anyattn_verdicts_try(const char* config_path, const char* path, char** json, anyattn_error* error) {
  using anyattn::api::Json;
  return anyattn::api::guarded("anyattn_verdicts_try", error, [&] {
    anyattn::api::require_given(path, "anyattn_verdicts_try", "path");
    anyattn::api::require_given(json, "anyattn_verdicts_try", "json");
    anyattn_runtime_options options{};
    options.config_path = config_path;
    const anyattn::config::Config config = anyattn::api::load_config(options);
    anyattn::inspect::LibrarySearch search(
        {.library_path = config.library_path, .loaded = anyattn::inspect::loaded_libraries()});
    anyattn::config::PluginEntry entry;
    entry.file = path;
    entry.origin.text = "call";
    const anyattn::discovery::Host host{.cpu = &anyattn::device::cpu_facts(), .libraries = &search};
    const anyattn::discovery::Found found = anyattn::discovery::discover_file(entry, config, host);
    Json whole = {{"path", path}, {"stage", nullptr}, {"reason", nullptr}, {"remedy", nullptr}, {"warnings", found.warnings}};
    if (found.candidates.empty()) {
      const anyattn::discovery::Skip& skip = found.skips.at(0);
      whole["stage"] = anyattn::discovery::stage_name(skip.stage);
      whole["reason"] = skip.reason;
      whole["remedy"] = skip.remedy;
    } else {
      const anyattn::discovery::Candidate& candidate = found.candidates[0];
      anyattn::probe::Prober prober({anyattn::api::probe_program(), "", config.probe_timeout_ms});
      const anyattn::probe::Verdict verdict =
          prober.verdict({candidate.id, candidate.path, candidate.content, {}, candidate.libraries});
      whole["content"] = candidate.content;
      whole["libraries"] = candidate.libraries;
      whole["device_code"] = candidate.device_code;
      whole["verdict"] = anyattn::api::row(verdict);
      if (verdict.outcome != anyattn::probe::Outcome::kOk) {
        whole["stage"] = verdict.stage.empty() ? "probe" : verdict.stage;
        whole["reason"] = reason_text(verdict);
        whole["remedy"] = remedy_text(verdict);
      }
    }
    const std::string text = whole.dump(2, ' ', false, Json::error_handler_t::replace);
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *json = copy;
  });
}
