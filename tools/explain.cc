// SPDX-License-Identifier: Apache-2.0
// anyattn explain: the problem as understood for each kind of layer, and every candidate with its stage and its reasons.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "anyattn/models.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "problem_flags.h"
#include "verbs.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

// One kind of layer to explain.
struct Layer {
  std::string kind;
  uint32_t num_layers = 1;
  std::string unsupported;  // why no problem describes it
  Problem problem;          // not read where unsupported
};

struct Question {
  std::string model;  // empty: a problem from flags
  std::vector<Layer> layers;
};

Question question_of_model(const ExplainOptions& options) {
  if (!options.problem.empty()) {
    throw Failure(kExitUsage,
                  fmt::format("--model and fields of a problem (here {}) exclude each other", options.problem[0].first));
  }
  anyattn_model* loaded = nullptr;
  const char* file = options.models_file.empty() ? nullptr : options.models_file.c_str();
  try {
    check(anyattn_model_load, file, options.model.c_str(), dtype_of(options.target.dtype, ANYATTN_DTYPE_NONE), &loaded);
  } catch (const RuntimeError& error) {
    throw Failure(kExitUsage, error.what());
  }
  const std::unique_ptr<anyattn_model, void (*)(anyattn_model*)> model(loaded, anyattn_model_destroy);
  anyattn_model_info info{};
  info.struct_size = ANYATTN_MODEL_INFO_SIZE;
  check(anyattn_model_get_info, loaded, &info);
  Question question{info.id, {}};
  for (uint32_t i = 0; i < info.num_layer_kinds; ++i) {
    anyattn_layer_kind kind{};
    kind.struct_size = ANYATTN_LAYER_KIND_SIZE;
    check(anyattn_model_get_layer_kind, loaded, i, &kind);
    Layer layer{kind.label, kind.num_layers, kind.unsupported ? kind.unsupported : "", {}};
    if (kind.problem) layer.problem = on_target(Problem(*kind.problem), options.target);
    question.layers.push_back(std::move(layer));
  }
  return question;
}

// {kind, layers, problem, device, chosen, origin, candidates}.
ordered_json explain_layer(const Runtime& runtime, const Layer& layer, const std::string& device) {
  ordered_json answer{{"kind", layer.kind}, {"layers", layer.num_layers}};
  if (layer.unsupported.empty()) {
    answer.update(parse(runtime.explain(layer.problem.view(), device)));
  } else {
    answer.update({{"problem", nullptr},
                   {"device", device},
                   {"chosen", nullptr},
                   {"origin", nullptr},
                   {"unsupported", layer.unsupported},
                   {"candidates", ordered_json::array()}});
  }
  return answer;
}

// The fields that say something: not null, 0, false, -1 or empty.
std::string problem_text(const ordered_json& problem) {
  std::vector<std::string> words;
  for (const auto& [name, value] : problem.items()) {
    if (value.is_null() || value == 0 || value == -1 || value == false || value.empty()) continue;
    words.push_back(value == true ? name : fmt::format("{} {}", name, text_of(value)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

// "head_size=260; allowed: multiples of 8 up to 256 (pad to 264)".
std::string reason_text(const ordered_json& reason) {
  const std::string wanted = text_of(reason, "wanted"), allowed = text_of(reason, "allowed");
  std::string hint = text_of(reason, "hint");
  if (wanted.empty() && allowed.empty() && !hint.empty()) return hint;  // a whole sentence
  std::string text = text_of(reason, "field");
  if (!wanted.empty()) text += fmt::format("{}{}", text.empty() ? "" : "=", wanted);
  if (!allowed.empty()) text += fmt::format("{}allowed: {}", text.empty() ? "" : "; ", allowed);
  return hint.empty() ? text : fmt::format("{} ({})", text, hint);
}

// What selection.profile did; empty where none is named, or one for another kind of device.
std::string profile_text(const ordered_json& profile) {
  const std::string file = text_of(profile, "file"), stale = text_of(profile, "stale");
  if (file.empty()) return "";
  if (!stale.empty()) return fmt::format("{} is ignored: {}", file, stale);
  return file + (profile.at("found").get<bool>() ? "" : " has no times of this problem");
}

// "decode 1 x 512: 84.2 us (80.1 to 90.3)", a line a shape.
std::string measured_text(const ordered_json& measured) {
  std::vector<std::string> lines;
  for (const ordered_json& one : measured)
    lines.push_back(fmt::format("{}: {:.1f} us ({:.1f} to {:.1f})", text_of(one, "shape"), one.at("median_us").get<double>(),
                                one.at("fastest_us").get<double>(), one.at("slowest_us").get<double>()));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// Why not, a line a reason; of a backend that would do it, what runs.
std::string findings_text(const ordered_json& candidate) {
  if (const ordered_json& report = candidate.at("report"); !report.is_null()) {
    const std::string kernels = text_of(report, "kernels");
    return kernels.empty() ? "" : "kernels: " + kernels;
  }
  std::vector<std::string> lines;
  for (const ordered_json& reason : candidate.at("reasons")) lines.push_back(reason_text(reason));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

Colour colour_of_verdict(const std::string& verdict) {
  if (verdict == "chosen") return Colour::kGreen;
  if (verdict == "failed") return Colour::kRed;
  return verdict == "refused" ? Colour::kYellow : Colour::kPlain;
}

void print_layer(const ordered_json& layer, const std::string& model, const Terminal& terminal) {
  const std::string of = model.empty() ? "" : fmt::format(" of {}: {} layers", model, text_of(layer, "layers"));
  fmt::print("{}{}\n", terminal.paint(text_of(layer, "kind"), Colour::kBold), printable(of));
  if (layer.contains("unsupported")) {
    fmt::print("  no backend can be asked: {}\n", printable(text_of(layer, "unsupported")));
    return;
  }
  Table facts({{""}, {""}});
  facts.add({"problem", problem_text(layer.at("problem"))});
  facts.add({"device", text_of(layer, "device")});
  const std::string chosen = text_of(layer, "chosen"), origin = text_of(layer, "origin");
  facts.add({"chosen", chosen.empty() ? Cell("nothing", Colour::kRed) : Cell(chosen, Colour::kGreen)});
  if (!origin.empty()) facts.add({"origin", origin});
  if (const std::string profile = profile_text(layer.at("profile")); !profile.empty()) facts.add({"profile", profile});
  const std::string block_size_origin = text_of(layer, "block_size_origin"), error = text_of(layer, "error");
  if (!block_size_origin.empty()) facts.add({"block size", "chosen by the " + block_size_origin});
  if (!error.empty()) facts.add({"error", {error, Colour::kRed}});
  fmt::print("{}", facts.render(terminal, 2));

  const bool is_measured =
      std::ranges::any_of(layer.at("candidates"), [](const ordered_json& one) { return !one.at("measured").empty(); });
  std::vector<Column> columns{{"backend"}, {"plugin"}, {"stage"}, {"verdict"}, {"reasons, or kernels"}};
  if (is_measured) columns.push_back({"measured"});
  Table candidates(columns);
  for (const ordered_json& candidate : layer.at("candidates")) {
    const std::string verdict = text_of(candidate, "verdict");
    std::vector<Cell> row{text_of(candidate, "backend"),
                          text_of(candidate, "plugin"),
                          text_of(candidate, "stage"),
                          {verdict, colour_of_verdict(verdict)},
                          findings_text(candidate)};
    if (is_measured) row.emplace_back(measured_text(candidate.at("measured")));
    candidates.add(std::move(row));
  }
  fmt::print("{}", candidates.empty() ? "  no candidate for this device\n" : candidates.render(terminal, 2));
}

// [{backend, layers}]: how many layers each answer gets, null for nobody.
ordered_json layers_by_backend(const ordered_json& layers) {
  ordered_json sums = ordered_json::array();
  for (const ordered_json& layer : layers) {
    const auto same =
        std::find_if(sums.begin(), sums.end(), [&](const ordered_json& sum) { return sum["backend"] == layer["chosen"]; });
    if (same == sums.end()) {
      sums.push_back({{"backend", layer["chosen"]}, {"layers", layer["layers"]}});
    } else {
      (*same)["layers"] = (*same)["layers"].get<uint32_t>() + layer["layers"].get<uint32_t>();
    }
  }
  return sums;
}

void print(const ordered_json& answer, const std::string& model) {
  const Terminal terminal = terminal_of(1);
  for (const ordered_json& layer : answer["layers"]) {
    print_layer(layer, model, terminal);
    fmt::print("\n");
  }
  std::vector<std::string> sums;
  for (const ordered_json& sum : answer["backends"]) {
    const std::string backend = text_of(sum, "backend");
    sums.push_back(fmt::format("{} by {}", text_of(sum, "layers"), backend.empty() ? "nobody" : backend));
  }
  fmt::print("layers: {}\n", fmt::join(sums, ", "));
}

// Built in steps: g++ 12 destroys an element of a braced list twice when a later one throws inside a conditional.
Question question_of_flags(const ExplainOptions& options) {
  Problem problem = problem_of(options.problem, options.target);
  Question question;
  question.layers.push_back({"asked", 1, "", std::move(problem)});
  return question;
}

}  // namespace

ordered_json explained(const ExplainOptions& options) {
  const Question question = options.model.empty() ? question_of_flags(options) : question_of_model(options);
  const Runtime runtime = open_runtime(options.common, options.target.backend);
  ordered_json answer{{"model", question.model.empty() ? ordered_json(nullptr) : ordered_json(question.model)},
                      {"layers", ordered_json::array()}};
  for (const Layer& layer : question.layers) answer["layers"].push_back(explain_layer(runtime, layer, options.target.device));
  answer["backends"] = layers_by_backend(answer["layers"]);
  return answer;
}

int explain(const ExplainOptions& options) {
  const JsonOutput output(options.common.json);
  const ordered_json answer = explained(options);
  const bool all_chosen =
      std::ranges::none_of(answer.at("layers"), [](const ordered_json& layer) { return layer.at("chosen").is_null(); });
  if (output.table()) print(answer, text_of(answer, "model"));
  output.write(answer);
  return all_chosen ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
