// SPDX-License-Identifier: Apache-2.0
#include "warm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "anyattn/step.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "common/terminal.h"
#include "serving/model_kinds.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

// Kernels follow from the problem; these only size memory that is given back at once.
anyattn_limits small_limits() { return {ANYATTN_LIMITS_SIZE, 64, 2048, 2048, 4096, 0}; }

// "always", or the number of a level that this tool does not know.
std::string level_name(uint32_t level) {
  switch (level) {
    case ANYATTN_GRAPH_NEVER:
      return "never";
    case ANYATTN_GRAPH_SINGLE_TOKEN_DECODE:
      return "single-token decode";
    case ANYATTN_GRAPH_UNIFORM_BATCH:
      return "uniform batch";
    case ANYATTN_GRAPH_ALWAYS:
      return "always";
    default:
      return fmt::format("{}", level);
  }
}

// {model, kind, layers, backend, plugin, kv_cache_dtype, block_size, graph_level, seconds, error}: error null where all is well,
// else what stands before it is null.
ordered_json warm_kind(const Runtime& runtime, const WarmOptions& options, const std::string& model, const KindSpec& kind) {
  ordered_json row{{"model", model}, {"kind", kind.label}, {"layers", kind.num_layers}};
  for (const char* key : {"backend", "plugin", "kv_cache_dtype", "block_size", "graph_level", "seconds", "error"})
    row[key] = nullptr;
  Group::Options group_options;
  group_options.problem = kind.problem;
  group_options.limits = small_limits();
  group_options.device = options.target.device;
  group_options.label = kind.label;
  const auto from = std::chrono::steady_clock::now();
  try {
    const Group group(runtime, group_options);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - from;
    const anyattn_group_info info = group.info();
    const std::string prefill = info.backend, decode = info.decode_backend;
    row["backend"] = prefill == decode ? prefill : prefill + " + " + decode;
    row["plugin"] = info.plugin;
    row["kv_cache_dtype"] = info.kv_cache_dtype;
    row["block_size"] = info.block_size;
    row["graph_level"] = level_name(info.graph_level);
    row["seconds"] = seconds.count();
  } catch (const RuntimeError& error) {
    row["error"] = error.what();
  }
  return row;
}

void print(const ordered_json& rows, const std::string& device) {
  const Terminal terminal = terminal_of(1);
  Table table({{"layers"}, {"backend"}, {"plugin"}, {"cache"}, {"block", Align::kRight}, {"graphs"}, {"s", Align::kRight}});
  Table refused({{"not ready"}, {"because"}});
  for (const ordered_json& row : rows) {
    const std::string layers = fmt::format("{} x {} of {}", row["layers"].dump(), text_of(row, "kind"), text_of(row, "model"));
    if (!row["error"].is_null()) {
      refused.add({layers, printable(text_of(row, "error"))});
      continue;
    }
    table.add({layers,
               {text_of(row, "backend"), Colour::kBold},
               text_of(row, "plugin"),
               text_of(row, "kv_cache_dtype"),
               row["block_size"].dump(),
               text_of(row, "graph_level"),
               fmt::format("{:.2f}", row["seconds"].get<double>())});
  }
  if (!table.empty()) fmt::print("ready on {}\n{}", device, table.render(terminal));
  if (!refused.empty()) fmt::print("{}{}", table.empty() ? "" : "\n", refused.render(terminal));
}

}  // namespace

int warm(const WarmOptions& options) {
  const JsonOutput output(options.common.json);
  const Runtime runtime = open_runtime(options.common, options.target.backend);
  runtime.resolve_device(options.target.device);  // one sentence where it is not there
  ordered_json rows = ordered_json::array();
  for (const std::string& id : options.models) {
    const ModelKinds model = load_model_kinds({id, options.models_file, dtype_of(options.target.dtype, ANYATTN_DTYPE_NONE),
                                               options.target.kv_cache_dtype, options.target.block_size, 0});
    for (const auto& kind : model.kinds) rows.push_back(warm_kind(runtime, options, model.id, *kind));
  }
  const bool ready = std::all_of(rows.begin(), rows.end(), [](const ordered_json& row) { return row["error"].is_null(); });
  if (output.table()) print(rows, options.target.device);
  output.write({{"device", options.target.device}, {"ready", ready}, {"layers", std::move(rows)}});
  return ready ? kExitOk : kExitFailed;
}

}  // namespace anyattn::tools
