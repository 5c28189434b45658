// SPDX-License-Identifier: Apache-2.0
#include "config/profile.h"

#include <fmt/format.h>

#include <limits>

#include "config/forms.h"
#include "config/names.h"
#include "config/schema.h"

namespace anyattn::config {
namespace {

using Type = Schema::Type;

constexpr int64_t kMostNumber = std::numeric_limits<uint32_t>::max();

FileSchema profile_schema() {
  const Schema microseconds{.type = Type::kNumber, .min = 0, .max = int64_t{1} << 40};
  const Schema times{.type = Type::kMapping,
                     .fields = fields({{"backend", text(backend_name_form()), "Who was measured.", "", true},
                                       {"fastest_us", microseconds, "Of the rounds.", "", true},
                                       {"median_us", microseconds, "Of the rounds.", "", true},
                                       {"slowest_us", microseconds, "Of the rounds.", "", true}}),
                     .example = "{backend: CPU_ATTN, fastest_us: 9, median_us: 10, slowest_us: 11}"};
  Schema all_times = list_of(times, false, "[" + times.example + "]");
  all_times.filled = true;
  const Schema shape{.type = Type::kMapping,
                     .fields = fields({{"shape", text(filled_form()), "The batch.", "", true},
                                       {"times", all_times, "One a backend.", "", true}}),
                     .example = "{shape: decode 1 x 2048, times: [...]}"};
  Schema shapes = list_of(shape, false, "[" + shape.example + "]");
  shapes.filled = true;
  const Schema entry{.type = Type::kMapping,
                     .fields = fields({{"problem", text(hash_form()), "Digest of problem and kind of device.", "", true},
                                       {"layers", text(filled_form()), "Whose layers, for people.", "null"},
                                       {"shapes", shapes, "What was measured.", "", true}}),
                     .example = "{problem: 64 digits, shapes: [...]}"};
  const Schema plugin{.type = Type::kMapping,
                      .fields = fields({{"id", text(plugin_id_form()), "The plugin's id.", "", true},
                                        {"version", {.type = Type::kAnyText}, "Its own version.", "", true},
                                        {"content", text(hash_form()), "Hash of its file.", "", true}}),
                      .example = "{id: org.anyattn.cpu, version: \"1\", content: 64 digits}"};
  const Schema device{.type = Type::kMapping,
                      .fields = fields({{"kind", choice(device_kind_names()), "Its kind.", "", true},
                                        {"name", {.type = Type::kAnyText}, "Its name.", "", true},
                                        {"architecture", {.type = Type::kAnyText}, "Its architecture.", "", true},
                                        {"num_multiprocessors", integer(0, kMostNumber), "Cores that may be used.", "", true},
                                        {"driver_version", integer(0, kMostNumber), "0 where it has no driver.", "", true}}),
                      .example = "{kind: cpu, name: ...}"};
  return {.what = "a profile",
          .version = {.key = "profile", .known = 1, .required = true},
          .root = {.type = Type::kMapping,
                   .fields = fields(
                       {{"profile", integer(1, 1), "Version of this format.", "", true},
                        {"anyattn", {.type = Type::kAnyText}, "Version of the writer.", "null"},
                        {"date", {.type = Type::kAnyText}, "When it was measured.", "null"},
                        {"threads", integer(1, kMostNumber), "Of the runtime that was measured.", "null"},
                        {"rounds", integer(1, kMostNumber), "In which all were measured in turn.", "null"},
                        {"device", device, "What was measured on.", "", true},
                        {"plugins", list_of(plugin, false, "[{id: org.anyattn.cpu, ...}]"),
                         "Those whose backends were measured.", "", true},
                        {"entries", list_of(entry, false, "[{problem: ..., shapes: [...]}]"), "One a problem.", "", true}})}};
}

class Binder {
 public:
  explicit Binder(Document document) : document_(std::move(document)) { check(document_, profile_schema()); }

  Profile bind() const {
    const YamlNode& root = document_.root;
    Profile profile;
    profile.file = document_.file;
    if (!is_null(at(root, "date"))) profile.date = text_of(at(root, "date"));
    const YamlNode& device = at(root, "device");
    profile.device = {*device_kind_from_name(text_of(at(device, "kind"))), text_of(at(device, "name")),
                      text_of(at(device, "architecture")), number(at(device, "num_multiprocessors")),
                      number(at(device, "driver_version"))};
    for (const YamlNode& plugin : at(root, "plugins").items)
      profile.plugins.push_back({text_of(at(plugin, "id")), text_of(at(plugin, "version")), text_of(at(plugin, "content"))});
    const std::vector<YamlNode>& entries = at(root, "entries").items;
    for (size_t i = 0; i < entries.size(); ++i) {
      const std::string path = join_path("entries", i);
      const bool is_new =
          profile.entries.emplace(text_of(at(entries[i], "problem")), bind_entry(at(entries[i], "shapes"), path)).second;
      if (!is_new) fail(document_.file, entries[i].mark, path, "its problem has an entry already; keep one");
    }
    return profile;
  }

 private:
  static uint32_t number(const YamlNode& node) { return static_cast<uint32_t>(integer_of(node)); }

  Profile::Entry bind_entry(const YamlNode& shapes, const std::string& entry_path) const {
    Profile::Entry entry;
    for (size_t i = 0; i < shapes.items.size(); ++i) {
      Profile::Shape shape{text_of(at(shapes.items[i], "shape")), {}};
      const std::string path = join_path(entry_path + ".shapes", i) + ".times";
      const std::vector<YamlNode>& times = at(shapes.items[i], "times").items;
      for (size_t j = 0; j < times.size(); ++j) {
        const std::string& backend = text_of(at(times[j], "backend"));
        if (!shape.times.emplace(backend, bind_times(times[j], join_path(path, j))).second)
          fail(document_.file, times[j].mark, join_path(path, j), fmt::format("{} has times already; keep one", backend));
      }
      entry.shapes.push_back(std::move(shape));
    }
    return entry;
  }

  Profile::Times bind_times(const YamlNode& node, const std::string& path) const {
    const Profile::Times times{number_of(at(node, "fastest_us")), number_of(at(node, "median_us")),
                               number_of(at(node, "slowest_us"))};
    if (!(times.fastest_us > 0 && times.fastest_us <= times.median_us && times.median_us <= times.slowest_us))
      fail(document_.file, node.mark, path,
           fmt::format("fastest_us {}, median_us {}, slowest_us {}: wanted: above 0 and in this order", times.fastest_us,
                       times.median_us, times.slowest_us));
    return times;
  }

  Document document_;
};

template <class Read>
Profile read_with_remedy(Read&& read) {
  try {
    return Binder(read()).bind();
  } catch (const ConfigError& error) {
    throw ConfigError(
        fmt::format("{} (selection.profile names it; write it anew with 'anyattn tune' under a configuration "
                    "that does not)",
                    error.what()));
  }
}

}  // namespace

Profile read_profile(const std::string& path) {
  return read_with_remedy([&] { return read_yaml(path); });
}

Profile parse_profile(std::string_view text, const std::string& path) {
  return read_with_remedy([&] { return parse_yaml(text, path); });
}

}  // namespace anyattn::config
