// SPDX-License-Identifier: Apache-2.0
// The C API's descriptions: list, config, devices, explain as JSON texts that the caller owns.
#include <cstdlib>
#include <cstring>
#include <string>

#include "anyattn/runtime.h"
#include "api/guard.h"
#include "api/json_text.h"
#include "api/runtime_object.h"
#include "device/cpu_facts.h"

namespace anyattn::api {
namespace {

// Runs make(runtime) and hands its text over; anyattn_text_free releases it.
template <class Make>
int32_t hand_over(const char* function, anyattn_runtime* runtime, char** json, anyattn_error* error, Make&& make) {
  return guarded(function, error, [&] {
    require_given(runtime, function, "runtime");
    require_given(json, function, "json");
    *json = nullptr;
    const std::string text = make(*runtime->object);
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *json = copy;
  });
}

}  // namespace
}  // namespace anyattn::api

using anyattn::api::hand_over;
using anyattn::api::Runtime;

int32_t anyattn_runtime_list(anyattn_runtime* runtime, char** json, anyattn_error* error) {
  return hand_over("anyattn_runtime_list", runtime, json, error, [](Runtime& object) {
    const auto current = object.generation();
    return anyattn::api::list_json(current->source.registry().snapshot(), object.draining(), current->quarantine);
  });
}

int32_t anyattn_runtime_config(anyattn_runtime* runtime, char** json, anyattn_error* error) {
  return hand_over("anyattn_runtime_config", runtime, json, error,
                   [](Runtime& object) { return anyattn::api::config_json(*object.config()); });
}

int32_t anyattn_runtime_devices(anyattn_runtime* runtime, char** json, anyattn_error* error) {
  return hand_over("anyattn_runtime_devices", runtime, json, error, [](Runtime& object) {
    const anyattn::device::Devices& devices = object.devices();
    const auto current = object.generation();
    return anyattn::api::devices_json(devices.all(), devices.missing(), anyattn::device::cpu_facts(),
                                      current->source.registry(), current->profile ? &*current->profile : nullptr);
  });
}

int32_t anyattn_runtime_explain(anyattn_runtime* runtime, const anyattn_problem* problem, const char* device,
                                const char* backend, char** json, anyattn_error* error) {
  return hand_over("anyattn_runtime_explain", runtime, json, error, [&](Runtime& object) {
    anyattn::api::require_given(problem, "anyattn_runtime_explain", "problem");
    const auto decision = object.select(problem, device ? device : "auto", backend ? backend : "", true);
    if (decision->error == anyattn::selector::Error::kInvalidProblem) {
      throw anyattn::StatusError(decision->status, "anyattn_runtime_explain: " + decision->text);
    }
    return anyattn::api::explain_json(*decision);
  });
}
