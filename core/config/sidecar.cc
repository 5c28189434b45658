// SPDX-License-Identifier: Apache-2.0
#include "config/sidecar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/forms.h"
#include "config/names.h"
#include "config/schema.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

// A sidecar is a dozen lines: what is larger is something else.
constexpr YamlLimits kLimits{.bytes = 64u << 10, .nodes = 2000, .depth = 8};

FileSchema sidecar_schema() {
  const Schema backend{.type = Type::kMapping,
                       .fields = fields({{"name", text(backend_name_form()), "The backend's name.", "", true},
                                         {"device", choice(device_kind_names()), "The kind of device it runs on.", "", true}}),
                       .example = "{name: ACME_ATTN, device: cpu}"};
  const Schema abi{.type = Type::kMapping,
                   .fields = fields({{"min", text(abi_version_form()), "Lowest ABI version the plugin speaks.", "", true},
                                     {"max", text(abi_version_form()), "Highest.", "", true}}),
                   .example = "{min: \"0.1\", max: \"0.1\"}"};
  return {
      .what = "a sidecar",
      .version = {.key = "sidecar", .known = 1, .required = true},
      .root = {.type = Type::kMapping,
               .fields = fields(
                   {{"sidecar", integer(1, 1), "Version of this format.", "", true},
                    {"id", text(plugin_id_form()), "The plugin's id.", "", true},
                    {"vendor", text(filled_form()), "Who made it.", "", true},
                    {"version", text(filled_form()), "The plugin's own version.", "", true},
                    {"license", text(filled_form()), "SPDX expression.", "", true},
                    {"abi", abi, "Range of ABI versions.", "", true},
                    {"backends", list_of(backend, false, "[{name: ACME_ATTN, device: cpu}]"), "What it brings.", "", true},
                    {"providers", list_of(choice(device_kind_names()), true, "[cuda]"), "Kinds of device it provides.", "[]"},
                    {"needs_cpu", list_of(choice(cpu_isa_names()), true, "[avx2, fma]"), "Instruction sets it needs.", "[]"},
                    {"architectures", list_of(text(filled_form()), true, "[sm_80]"), "Device code it holds.", "[]"}})}};
}

uint32_t abi_word(const std::string& text) {
  uint16_t numbers[2] = {0, 0};
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, numbers[0]);
  std::from_chars(major.ptr + 1, end, numbers[1]);
  return ANYATTN_ABI_VERSION(numbers[0], numbers[1]);
}

Sidecar bind(Document document) {
  static const FileSchema schema = sidecar_schema();  // a start reads dozens
  check(document, schema);
  const YamlNode& root = document.root;
  Sidecar out;
  out.path = document.file;
  out.id = text_of(at(root, "id"));
  out.vendor = text_of(at(root, "vendor"));
  out.version = text_of(at(root, "version"));
  out.license = text_of(at(root, "license"));
  const YamlNode& abi = at(root, "abi");
  out.abi_min = abi_word(text_of(at(abi, "min")));
  out.abi_max = abi_word(text_of(at(abi, "max")));
  if (out.abi_min > out.abi_max)
    fail(document.file, at(abi, "max").mark, "abi.max",
         fmt::format("is {}, which is below abi.min {}", text_of(at(abi, "max")), text_of(at(abi, "min"))));
  const YamlNode& backends = at(root, "backends");
  for (size_t i = 0; i < backends.items.size(); ++i) {
    const YamlNode& node = backends.items[i];
    Sidecar::Backend backend{text_of(at(node, "name")), *device_kind_from_name(text_of(at(node, "device")))};
    const bool twice = std::any_of(out.backends.begin(), out.backends.end(), [&](const Sidecar::Backend& other) {
      return other.name == backend.name && other.device_kind == backend.device_kind;
    });
    if (twice)
      fail(document.file, node.mark, join_path("backends", i),
           fmt::format("{} on {} is listed twice; keep one", backend.name, device_kind_name(backend.device_kind)));
    out.backends.push_back(std::move(backend));
  }
  for (const std::string& name : texts_of(at(root, "providers"))) out.providers.push_back(*device_kind_from_name(name));
  for (const CpuIsaName& isa : kCpuIsas)
    for (const std::string& name : texts_of(at(root, "needs_cpu")))
      if (name == isa.name) out.needs_cpu |= isa.bit;
  out.architectures = texts_of(at(root, "architectures"));
  if (out.backends.empty() && out.providers.empty())
    fail(document.file, backends.mark, "backends",
         "the plugin brings neither a backend nor a device provider; name what it brings");
  return out;
}

}  // namespace

Sidecar read_sidecar(const std::string& path) { return bind(read_yaml(path, kLimits)); }

Sidecar parse_sidecar(std::string_view text, const std::string& path) { return bind(parse_yaml(text, path, kLimits)); }

}  // namespace anyattn::config
