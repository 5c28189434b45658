// SPDX-License-Identifier: Apache-2.0
#include "config/config_schema.h"

#include "config/forms.h"
#include "config/names.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

Schema plugins() {
  const Schema options{
      .type = Type::kMap, .form = filled_form(), .element = {{.type = Type::kAnyText}}, .example = "{isa: auto}"};
  const Schema entry{
      .type = Type::kMapping,
      .fields = fields(
          {{"id", text(plugin_id_form()), "The plugin's id, as its sidecar says.", "", true},
           {"file", text(filled_form()), "Its file, relative to this one; null = whichever in search has the id.", "null"},
           {"required", {.type = Type::kBoolean}, "It loads, or the start fails with its text.", "false"},
           {"hash", text(hash_form()), "What its content, or the manifest of its bundle, must hash to; null = anything.",
            "null"},
           {"version", text(filled_form()), "Range its version must lie in, as in >=1.2 <2; null = any.", "null"},
           {"key", text(filled_form()), "Id of the key that must have signed its bundle; null = any trusted one.", "null"},
           {"options", options, "Given to the plugin as text; its documentation names the keys.", "{}"}}),
      .example = "{id: org.anyattn.cpu, required: true}"};
  return {.type = Type::kMapping,
          .fields = fields(
              {{"search", list_of(text(filled_form()), true, "[plugins]"),
                "Folders that are searched, with their direct subfolders, in this order; relative to this file.", "[plugins]"},
               {"entries", list_of(entry, false, "[{id: org.anyattn.cpu, required: true}]"),
                "Pins single plugins: their file, whether they must load, their options.", "[]"},
               {"max_contents", integer(1, 1000),
                "Contents of one plugin file that a process opens one after another (reloads).", "8"}})};
}

Schema registry() {
  const Schema override_owner{.type = Type::kMap,
                              .form = backend_name_form(),
                              .element = {text(plugin_id_form())},
                              .example = "{FLASH_ATTN: com.acme.attn}"};
  return {.type = Type::kMapping,
          .fields = fields({{"override", override_owner,
                             "Backend names that a plugin may take from another, and the id of that plugin.", "{}"}})};
}

Schema selection(const std::vector<std::string>& rule_fields) {
  Schema when{.type = Type::kMap,
              .choices = rule_fields,
              .element = {{.type = Type::kAnyText}},
              .filled = true,
              .example = "{kv_lora_rank: 512, device: cpu}"};
  when.form = filled_form();
  const Schema rule{
      .type = Type::kMapping,
      .fields = fields({{"when", when, "Problem fields or features and device, all of which must hold.", "", true},
                        {"backend", text(backend_name_form()), "The backend that such layers must have.", "", true}}),
      .example = "{when: {kv_lora_rank: 512}, backend: CPU_MLA}"};
  const Schema names = list_of(text(backend_name_form()), true, "[CPU_ATTN]");
  const Schema order{
      .type = Type::kMapping,
      .fields = fields({{"cuda", names, "NVIDIA devices.", "[FLASH_ATTN, FLASH_MLA, PORTABLE_ATTN, PORTABLE_MLA]"},
                        {"hip", names, "AMD devices.", "[PORTABLE_ATTN, PORTABLE_MLA]"},
                        {"cpu", names, "The processor.", "[CPU_ATTN, CPU_MLA, PORTABLE_ATTN, PORTABLE_MLA]"}}),
      .example = "{cpu: [CPU_ATTN]}"};
  return {.type = Type::kMapping,
          .fields = fields(
              {{"backend", text(backend_name_form()), "A must for every layer it is asked about; null = none.", "null"},
               {"rules", list_of(rule, false, "[{when: {kv_lora_rank: 512}, backend: CPU_MLA}]"),
                "Musts for layers that match; the first match wins, and wins over backend.", "[]"},
               {"order", order, "Which backend is tried first, per kind of device; the others follow by plugin id, then name.",
                "{}"},
               {"allow_fallback", list_of(choice(device_kind_names()), true, "[cpu]"),
                "Kinds of device that an automatic choice may fall to.", "[]"},
               {"quarantine_after", integer(0, 1000),
                "Failing calls in a row after which a group leaves an automatically chosen backend; 0 = never.", "3"},
               {"lock", text(filled_form()),
                "File of anyattn lock: another outcome than it says is refused; relative to this file; null = none.", "null"},
               {"profile", text(filled_form()),
                "File of anyattn tune: measured times that go before order; relative to this file; null = none.", "null"}}),
          .example = "{backend: CPU_ATTN}"};
}

Schema trust() {
  return {.type = Type::kMapping,
          .fields = fields({{"level", choice({kTrustLevels.begin(), kTrustLevels.end()}),
                             "What a plugin needs before it is opened.", "none"},
                            {"keys", list_of(text(filled_form()), true, "[acme.pub]"),
                             "Files with public keys whose signature is trusted; relative to this file.", "[]"}}),
          .example = "{level: none}"};
}

Schema probe() {
  return {.type = Type::kMapping,
          .fields =
              fields({{"enabled", {.type = Type::kBoolean}, "First contact with a plugin happens in a child process.", "true"},
                      {"timeout_ms", integer(1, 3600000), "After this the child counts as hung.", "10000"},
                      {"cache", text(filled_form()),
                       "Folder where verdicts are kept; relative to this file; null = the user's own.", "null"}}),
          .example = "{enabled: false}"};
}

Schema log() {
  return {.type = Type::kMapping,
          .fields = fields({{"level", choice(log_levels()), "The least severe message that is written.", "info"}}),
          .example = "{level: info}"};
}

}  // namespace

std::vector<std::string> log_levels() { return {"debug", "info", "warning", "error", "off"}; }

FileSchema config_schema(const std::vector<std::string>& rule_fields) {
  return {.what = "a configuration",
          .version = {.key = "version", .known = 1},
          .root = {.type = Type::kMapping,
                   .fields = fields({{"version", integer(1, 1), "Version of this schema.", "1"},
                                     {"plugins", plugins(), "Where plugins are found.", "{}"},
                                     {"registry", registry(), "Who may replace whom.", "{}"},
                                     {"selection", selection(rule_fields), "Which backend a layer gets.", "{}"},
                                     {"trust", trust(), "What is checked before a plugin is opened.", "{}"},
                                     {"probe", probe(), "First contact with a plugin.", "{}"},
                                     {"log", log(), "Messages of the core and of plugins.", "{}"}})}};
}

}  // namespace anyattn::config
