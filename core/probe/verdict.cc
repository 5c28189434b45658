// SPDX-License-Identifier: Apache-2.0
#include "probe/verdict.h"

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace anyattn::probe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<Outcome, const char*>, 6> kNames{{{Outcome::kOk, "ok"},
                                                                 {Outcome::kRefused, "refused"},
                                                                 {Outcome::kCrash, "crash"},
                                                                 {Outcome::kHang, "hang"},
                                                                 {Outcome::kExit, "exit"},
                                                                 {Outcome::kNoProbe, "no_probe"}}};
constexpr int kFormat = 1;  // of the stored text; another number is read as no verdict

std::string at_stage(const Verdict& verdict) { return verdict.stage.empty() ? "" : " at stage " + verdict.stage; }

std::string said(const Verdict& verdict) { return verdict.said.empty() ? "" : fmt::format("; it said: {}", verdict.said); }

}  // namespace

const char* outcome_name(Outcome outcome) {
  for (const auto& [value, name] : kNames)
    if (value == outcome) return name;
  return "unknown";
}

std::string reason_text(const Verdict& verdict) {
  switch (verdict.outcome) {
    case Outcome::kOk:
      return "opens and answers";
    case Outcome::kCrash:
      return fmt::format("a trial in a child process crashed with signal {} ({}){}{}", verdict.signal,
                         ::strsignal(verdict.signal), at_stage(verdict), said(verdict));
    case Outcome::kHang:
      return fmt::format("a trial in a child process did not end within {:.1f} s{}{}", verdict.seconds, at_stage(verdict),
                         said(verdict));
    case Outcome::kExit:
      return fmt::format("a trial in a child process ended by itself with status {}{}{}", verdict.exit_code, at_stage(verdict),
                         said(verdict));
    case Outcome::kRefused:
    case Outcome::kNoProbe:
      return verdict.reason;
  }
  return "unknown";
}

std::string remedy_text(const Verdict& verdict) {
  const bool constructors = verdict.stage == "open";
  switch (verdict.outcome) {
    case Outcome::kCrash:
      return verdict.signal == SIGILL ? "install the plugin's build for this processor; its static constructors must run on "
                                        "any (list the instruction "
                                        "sets in NEEDS_CPU)"
             : constructors           ? "ask the plugin's vendor: its static constructors or those of its libraries crash"
                                      : "ask the plugin's vendor for a build that answers without crashing";
    case Outcome::kHang:
      return constructors
                 ? "ask the plugin's vendor: its static constructors wait for something; raise probe.timeout_ms if they "
                   "are only slow"
                 : "raise probe.timeout_ms if the plugin is only slow, else ask its vendor";
    case Outcome::kExit:
      return "ask the plugin's vendor: a plugin answers a status and never ends the process";
    default:
      return verdict.remedy;
  }
}

std::string to_text(const Verdict& verdict) {
  const Json json = {{"format", kFormat},
                     {"outcome", outcome_name(verdict.outcome)},
                     {"stage", verdict.stage},
                     {"signal", verdict.signal},
                     {"exit_code", verdict.exit_code},
                     {"seconds", verdict.seconds},
                     {"status", verdict.status},
                     {"reason", verdict.reason},
                     {"remedy", verdict.remedy},
                     {"said", verdict.said},
                     {"notes", verdict.notes},
                     {"transient", verdict.transient},
                     {"id", verdict.id},
                     {"path", verdict.path},
                     {"content", verdict.content},
                     {"when", verdict.when}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Verdict> from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    if (json.at("format").get<int>() != kFormat) return std::nullopt;
    Verdict verdict;
    const std::string name = json.at("outcome").get<std::string>();
    bool known = false;
    for (const auto& [value, word] : kNames) {
      if (name != word) continue;
      verdict.outcome = value;
      known = true;
    }
    if (!known) return std::nullopt;
    json.at("stage").get_to(verdict.stage);
    json.at("signal").get_to(verdict.signal);
    json.at("exit_code").get_to(verdict.exit_code);
    json.at("seconds").get_to(verdict.seconds);
    json.at("status").get_to(verdict.status);
    json.at("reason").get_to(verdict.reason);
    json.at("remedy").get_to(verdict.remedy);
    json.at("said").get_to(verdict.said);
    json.at("notes").get_to(verdict.notes);
    json.at("transient").get_to(verdict.transient);
    json.at("id").get_to(verdict.id);
    json.at("path").get_to(verdict.path);
    json.at("content").get_to(verdict.content);
    json.at("when").get_to(verdict.when);
    return verdict;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace anyattn::probe
