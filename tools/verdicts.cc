// SPDX-License-Identifier: Apache-2.0
// anyattn verdicts: what opening plugins in a child process showed.
#include <anyattn/verdicts.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/json_output.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "vendor_verbs.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

const char* path_or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

// An id stays as it is; a file is named as verdicts name it.
std::string subject_of(const std::string& which) {
  if (which.find('/') == std::string::npos && !which.ends_with(".so")) return which;
  std::error_code error;
  const std::string path = std::filesystem::canonical(which, error).string();
  return error ? which : path;
}

Colour colour_of(const std::string& outcome) { return outcome == "ok" ? Colour::kGreen : Colour::kRed; }

std::string age(const ordered_json& verdict) {
  const auto seconds = verdict.at("age_s").get<int64_t>();
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  return fmt::format("{} h", seconds / 3600);
}

std::string kept_for(const ordered_json& verdict) {
  if (!verdict.at("transient").get<bool>()) return "until the file or the machine changes";
  return verdict.at("expired").get<bool>() ? "no longer" : "for a while";
}

void print_list(const ordered_json& whole, const ordered_json& verdicts) {
  if (verdicts.empty()) {
    fmt::print("no verdict is kept in {}\n", text_of(whole, "folder"));
    return;
  }
  Table table({{"verdict"}, {"stage"}, {"plugin"}, {"path"}, {"age", Align::kRight}, {"holds"}});
  for (const ordered_json& verdict : verdicts) {
    const std::string outcome = text_of(verdict, "outcome");
    table.add({{outcome, colour_of(outcome)},
               text_of(verdict, "stage"),
               text_of(verdict, "plugin"),
               text_of(verdict, "path"),
               age(verdict),
               kept_for(verdict)});
  }
  fmt::print("{}", table.render(terminal_of(1)));
}

void print_why(const ordered_json& verdicts) {
  for (const ordered_json& verdict : verdicts) {
    const std::string id = text_of(verdict, "plugin"), path = text_of(verdict, "path");
    fmt::print("{}\n", printable(id.empty() ? path : fmt::format("{} ({})", id, path)));
    Table table({{""}, {""}});
    const std::string outcome = text_of(verdict, "outcome");
    table.add({"verdict", {outcome, colour_of(outcome)}});
    for (const char* key : {"stage", "reason", "remedy"})
      if (const std::string text = text_of(verdict, key); !text.empty()) table.add({key, text});
    for (const ordered_json& note : verdict.at("notes")) table.add({"loading it", text_of(note)});
    if (outcome == "ok" && verdict.at("notes").empty())
      table.add({"loading it",
                 "starts no thread, leaves no file open, changes no signal handler, locale, environment, folder or rounding"});
    table.add({"age", age(verdict)});
    table.add({"holds", kept_for(verdict)});
    fmt::print("{}", table.render(terminal_of(1), 2));
  }
}

}  // namespace

int verdicts(const VerdictsOptions& options) {
  const JsonOutput output(options.common.json);
  const char* config = path_or_null(options.common.config_file);
  const std::string which = subject_of(options.which);
  if (options.action == "why" && which.empty()) throw Failure(kExitUsage, "why: name a plugin's id or file; 'list' shows them");
  if (options.action == "clear") {
    uint64_t count = 0;
    check(anyattn_verdicts_forget, config, path_or_null(which), &count);
    if (output.table()) fmt::print("{} verdict{} forgotten\n", count, count == 1 ? "" : "s");
    output.write({{"forgotten", count}});
    return kExitOk;
  }
  char* text = nullptr;
  check(anyattn_verdicts_list, config, &text);
  ordered_json whole = parse(take_text(text));
  ordered_json chosen = ordered_json::array();
  for (const ordered_json& verdict : whole.at("verdicts"))
    if (which.empty() || text_of(verdict, "plugin") == which || text_of(verdict, "path") == which) chosen.push_back(verdict);
  if (!which.empty() && chosen.empty())
    throw Failure(kExitFailed, fmt::format("no verdict on {} is kept in {}; it is made when the plugin is first opened", which,
                                           text_of(whole, "folder")));
  if (output.table()) options.action == "why" ? print_why(chosen) : print_list(whole, chosen);
  whole["verdicts"] = std::move(chosen);
  output.write(whole);
  return kExitOk;
}

}  // namespace anyattn::tools
