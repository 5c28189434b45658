// SPDX-License-Identifier: Apache-2.0
// anyattn list: every backend with its plugin, and every file that was skipped with the reason.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

Colour colour_of_state(const std::string& state) {
  if (state == "open") return Colour::kGreen;
  if (state == "listed") return Colour::kPlain;
  return Colour::kDim;
}

// "overrides com.acme.attn (draining)", nearest first, or nothing.
std::string relation(const ordered_json& backend) {
  std::string text = text_of(backend, "quarantined");
  if (!text.empty()) return "quarantined: " + text;
  for (const ordered_json& under : backend.at("beneath"))
    text += fmt::format("{}{} ({})", text.empty() ? "overrides " : ", ", text_of(under, "plugin"), text_of(under, "state"));
  return text;
}

void print(const ordered_json& listing) {
  const Terminal terminal = terminal_of(1);
  Table backends({{"backend"}, {"device"}, {"state"}, {"plugin"}, {"path"}, {"note"}});
  for (const ordered_json& backend : listing.at("backends")) {
    const std::string state = text_of(backend, "state");
    backends.add({{text_of(backend, "name"), Colour::kBold},
                  text_of(backend, "device"),
                  {state, colour_of_state(state)},
                  text_of(backend, "plugin"),
                  text_of(backend, "path"),
                  relation(backend)});
  }
  if (backends.empty()) {
    fmt::print("{}\n", listing.at("skipped").empty()
                           ? "no backend was found in the folders of plugins.search; 'anyattn doctor' names them"
                           : "no backend: every plugin that was found is skipped");
  }
  fmt::print("{}", backends.render(terminal));

  Table draining({{"draining"}, {"version"}, {"path"}});
  for (const ordered_json& plugin : listing.at("plugins"))
    if (text_of(plugin, "state") == "draining")
      draining.add({text_of(plugin, "id"), text_of(plugin, "version"), text_of(plugin, "path")});
  if (!draining.empty()) fmt::print("\n{}", draining.render(terminal));

  Table skipped({{"skipped"}, {"stage"}, {"reason"}, {"remedy"}});
  for (const ordered_json& skip : listing.at("skipped")) {
    skipped.add(
        {text_of(skip, "path"), text_of(skip, "stage"), {text_of(skip, "reason"), Colour::kYellow}, text_of(skip, "remedy")});
  }
  if (!skipped.empty()) fmt::print("\n{}", skipped.render(terminal));
}

}  // namespace

int list(const CommonOptions& options) {
  const JsonOutput output(options.json);
  const Runtime runtime = open_runtime(options, "");
  const ordered_json listing = parse(runtime.list());
  if (output.table()) print(listing);
  output.write(listing);
  return kExitOk;
}

}  // namespace anyattn::tools
