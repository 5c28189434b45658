// SPDX-License-Identifier: Apache-2.0
#include "config/lock.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "config/forms.h"
#include "config/schema.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

FileSchema lock_schema() {
  const Schema entry{.type = Type::kMapping,
                     .fields = fields({{"problem", text(hash_form()), "Digest of problem and kind of device.", "", true},
                                       {"chosen", text(filled_form()), "Names of the backends.", "", true},
                                       {"plugins", text(filled_form()), "Id and content of the plugin of each.", "", true},
                                       {"reasons", text(hash_form()), "Digest of every candidate's reasons.", "", true},
                                       {"model", {.type = Type::kAnyText}, "For people.", "null"},
                                       {"layers", {.type = Type::kAnyText}, "For people.", "null"},
                                       {"device", {.type = Type::kAnyText}, "For people.", "null"}}),
                     .example = "{problem: 64 digits, chosen: CPU_ATTN, plugins: ID CONTENT, reasons: 64 digits}"};
  return {.what = "a selection lock",
          .version = {.key = "lock", .known = 1, .required = true},
          .root = {.type = Type::kMapping,
                   .fields = fields(
                       {{"lock", integer(1, 1), "Version of this format.", "", true},
                        {"selections", list_of(entry, false, "[" + entry.example + "]"), "One a kind of layers.", "", true}})}};
}

// "A, B" as its parts.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t end = text.find(", "); end != text.npos; end = text.find(", ", begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// "ID CONTENT", or "none" for a backend without a plugin.
bool is_plugin(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == text.npos) return text == "none";
  return plugin_id_form().matches(text.substr(0, space)) && hash_form().matches(text.substr(space + 1));
}

LockEntry bind_entry(const YamlNode& node, const std::string& path, const std::string& file) {
  LockEntry entry{text_of(at(node, "problem")), text_of(at(node, "chosen")), text_of(at(node, "plugins")),
                  text_of(at(node, "reasons"))};
  const std::vector<std::string_view> names = parts_of(entry.chosen), plugins = parts_of(entry.plugins);
  for (const std::string_view name : names)
    if (!backend_name_form().matches(name))
      fail(file, at(node, "chosen").mark, path + ".chosen",
           fmt::format("holds '{}'; allowed: {}, one or more with ', ' between them", name, backend_name_form().allowed));
  if (plugins.size() != names.size() || !std::ranges::all_of(plugins, is_plugin))
    fail(file, at(node, "plugins").mark, path + ".plugins",
         fmt::format("is '{}'; wanted: id and content of {} plugin{}", entry.plugins, names.size(),
                     names.size() == 1 ? "" : "s"));
  return entry;
}

Lock bind(Document document) {
  check(document, lock_schema());
  Lock lock;
  lock.file = document.file;
  const std::vector<YamlNode>& selections = at(document.root, "selections").items;
  for (size_t i = 0; i < selections.size(); ++i) {
    const std::string path = join_path("selections", i);
    LockEntry entry = bind_entry(selections[i], path, lock.file);
    const auto [known, is_new] = lock.entries.try_emplace(entry.problem, entry);
    // Two models may ask the same.
    if (!is_new && known->second != entry)
      fail(lock.file, selections[i].mark, path, "its problem has another selection already; keep one");
  }
  return lock;
}

template <class Read>
Lock read_with_remedy(Read&& read) {
  try {
    return bind(read());
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "{} (selection.lock names it; write it anew with 'anyattn lock' under a configuration that does not)", error.what()));
  }
}

}  // namespace

Lock read_lock(const std::string& path) {
  return read_with_remedy([&] { return read_yaml(path); });
}

Lock parse_lock(std::string_view text, const std::string& path) {
  return read_with_remedy([&] { return parse_yaml(text, path); });
}

}  // namespace anyattn::config
