// SPDX-License-Identifier: Apache-2.0
#include "config/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "config/config.h"
#include "config/forms.h"
#include "config/names.h"
#include "config/place.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

// Of a file that strangers send: smaller than a configuration.
constexpr YamlLimits kLimits{.bytes = 1u << 20, .nodes = 20000, .depth = 6};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

TextForm path_form() {
  return {"a relative path of letters, digits and ._+- whose parts do not begin with a dot", "", is_bundle_path};
}

FileSchema manifest_schema() {
  const Schema file{.type = Type::kMapping,
                    .fields = fields({{"path", text(path_form()), "Relative to the bundle.", "", true},
                                      {"hash", text(hash_form()), "BLAKE2b-256 of its content.", "", true}}),
                    .example = "{path: anyattn_acme.so, hash: ...}"};
  const Schema target{
      .type = Type::kMapping,
      .fields = fields({{"os", choice({"linux"}), "Operating system.", "", true},
                        {"machine", choice({"x86-64", "aarch64"}), "Processor.", "", true},
                        {"needs_cpu", list_of(choice(cpu_isa_names()), true, "[avx2]"), "Instruction sets it needs.", "[]"},
                        {"accelerator", choice({"none", "cuda", "hip"}), "Kind of device it is for.", "none"},
                        {"architectures", list_of(text(filled_form()), true, "[sm_90a]"), "Device code it holds.", "[]"},
                        {"driver", integer(0, 1000000), "Lowest driver version, as its vendor counts; 0 = any.", "0"},
                        {"glibc", text(filled_form()), "Lowest version of the C library.", "", true}}),
      .example = "{os: linux, machine: x86-64, glibc: \"2.34\"}"};
  return {.what = "a manifest",
          .version = {.key = "manifest", .known = 1, .required = true},
          .root = {.type = Type::kMapping,
                   .fields = fields(
                       {{"manifest", integer(1, 1), "Version of this format.", "", true},
                        {"id", text(plugin_id_form()), "Of the bundle and its plugins.", "", true},
                        {"version", {.type = Type::kAnyText}, "Of the bundle.", "", true},
                        {"vendor", text(filled_form()), "Who made it.", "", true},
                        {"license", text(filled_form()), "SPDX expression.", "", true},
                        {"plugins", list_of(text(path_form()), true, "[anyattn_acme.so]"), "Its plugin files.", "", true},
                        {"target", target, "Machines it is for.", "", true},
                        {"files", list_of(file, false, "[{path: anyattn_acme.so, hash: ...}]"), "Every file.", "", true}})}};
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

const Manifest::File* Manifest::find(std::string_view path) const {
  const auto found = std::ranges::find(files, path, &File::path);
  return found == files.end() ? nullptr : &*found;
}

bool is_bundle_path(std::string_view path) {
  if (path.empty() || path.size() > 200) return false;
  bool starts_part = true;
  for (const char c : path) {
    const bool is_word = is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' || c == '-';
    if (c == '/') {
      if (starts_part) return false;
      starts_part = true;
    } else if (is_word || (c == '.' && !starts_part)) {
      starts_part = false;
    } else {
      return false;
    }
  }
  return !starts_part;
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  Document document = parse_yaml(text, path, kLimits);
  check(document, manifest_schema());
  const YamlNode& root = document.root;
  Manifest out;
  out.id = text_of(at(root, "id"));
  out.version = text_of(at(root, "version"));
  out.vendor = text_of(at(root, "vendor"));
  out.license = text_of(at(root, "license"));
  out.plugins = texts_of(at(root, "plugins"));
  const YamlNode& target = at(root, "target");
  out.target.machine = text_of(at(target, "machine"));
  for (const std::string& name : texts_of(at(target, "needs_cpu")))
    for (const CpuIsaName& isa : kCpuIsas)
      if (name == isa.name) out.target.needs_cpu |= isa.bit;
  out.target.accelerator = text_of(at(target, "accelerator"));
  out.target.architectures = texts_of(at(target, "architectures"));
  out.target.driver = static_cast<uint32_t>(integer_of(at(target, "driver")));
  out.target.glibc = text_of(at(target, "glibc"));
  const YamlNode& files = at(root, "files");
  for (size_t i = 0; i < files.items.size(); ++i) {
    Manifest::File file{text_of(at(files.items[i], "path")), text_of(at(files.items[i], "hash"))};
    if (out.find(file.path))
      fail(path, files.items[i].mark, join_path("files", i), fmt::format("{} is listed twice; keep one", file.path));
    out.files.push_back(std::move(file));
  }
  const YamlNode& plugins = at(root, "plugins");
  if (out.plugins.empty()) fail(path, plugins.mark, "plugins", "the bundle holds no plugin; name at least one");
  for (size_t i = 0; i < out.plugins.size(); ++i)
    if (!out.find(out.plugins[i]))
      fail(path, plugins.items[i].mark, join_path("plugins", i), fmt::format("{} is not among files", out.plugins[i]));
  return out;
}

std::string write_manifest(const Manifest& manifest) {
  std::vector<std::string_view> needs_cpu;
  for (const CpuIsaName& isa : kCpuIsas)
    if ((manifest.target.needs_cpu & isa.bit) != 0) needs_cpu.push_back(isa.name);
  const Manifest::Target& target = manifest.target;
  std::string text = fmt::format(
      "# What this bundle is, for which machines, and the hash of every file in it (b2sum -l 256).\n"
      "manifest: 1\nid: {}\nversion: {}\nvendor: {}\nlicense: {}\nplugins: [{}]\n"
      "target:\n  os: linux\n  machine: {}\n  needs_cpu: [{}]\n  accelerator: {}\n  architectures: [{}]\n  driver: {}\n"
      "  glibc: {}\nfiles:\n",
      manifest.id, quoted(manifest.version), quoted(manifest.vendor), quoted(manifest.license),
      fmt::join(manifest.plugins, ", "), target.machine, fmt::join(needs_cpu, ", "), target.accelerator,
      fmt::join(target.architectures, ", "), target.driver, quoted(target.glibc));
  for (const Manifest::File& file : manifest.files)
    text += fmt::format("  - {{path: {}, hash: \"{}\"}}\n", file.path, file.hash);
  return text;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto part = [](std::string_view& text) {
    const size_t dot = std::min(text.find('.'), text.size());
    const std::string_view first = text.substr(0, dot);
    text.remove_prefix(std::min(dot + 1, text.size()));
    return first;
  };
  while (!a.empty() || !b.empty()) {
    std::string_view one = part(a), other = part(b);
    const bool numbers = std::ranges::all_of(one, is_digit) && std::ranges::all_of(other, is_digit);
    if (numbers) {
      const auto bare = [](std::string_view digits) {
        return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
      };
      one = bare(one), other = bare(other);
      if (one.size() != other.size()) return one.size() < other.size() ? -1 : 1;
    }
    if (const int order = one.compare(other); order != 0) return order;
  }
  return 0;
}

bool version_in_range(std::string_view version, std::string_view range) {
  constexpr std::string_view kOperators[] = {">=", "<=", "==", ">", "<"};
  for (size_t begin = range.find_first_not_of(' '); begin != std::string_view::npos;
       begin = range.find_first_not_of(' ', begin)) {
    const size_t end = std::min(range.find(' ', begin), range.size());
    const std::string_view term = range.substr(begin, end - begin);
    begin = end;
    const auto sign = std::ranges::find_if(kOperators, [&](std::string_view one) { return term.starts_with(one); });
    if (sign == std::end(kOperators) || term.size() == sign->size())
      throw std::invalid_argument(
          fmt::format("'{}' in '{}': allowed: >=, <=, ==, > or < and a version, as in \">=1.2 <2\"", term, range));
    const int order = compare_versions(version, term.substr(sign->size()));
    const bool holds = *sign == ">="   ? order >= 0
                       : *sign == "<=" ? order <= 0
                       : *sign == "==" ? order == 0
                       : *sign == ">"  ? order > 0
                                       : order < 0;
    if (!holds) return false;
  }
  return true;
}

}  // namespace anyattn::config
