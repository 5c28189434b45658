// SPDX-License-Identifier: Apache-2.0
#include "warm.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "anyattn/step.h"
#include "common/changed_config.h"
#include "common/json_text.h"
#include "common/runtime.h"
#include "common/table.h"
#include "common/terminal.h"
#include "serving/model_kinds.h"

namespace anyattn::tools {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCompilingPlugin = "org.anyattn.portable.cuda";

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

// The configuration with the device that is not here in place of those that are, and PORTABLE_* told to compile and load nothing.
// The other backends carry their code and have nothing to do.
void turn_to_absent(ChangedConfig& config, const std::string& architecture) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path provider = program.parent_path().parent_path() / "lib/anyattn/warm/anyattn_absent.so";
  if (!std::filesystem::exists(provider, error))
    throw Failure(kExitFailed, fmt::format("warm: {} is missing; it is installed with this program", provider.string()));
  config.set_entry("org.anyattn.device.absent", "file", provider.string());
  config.set_entry("org.anyattn.device.absent", "options.architecture", architecture);
  config.set_entry(kCompilingPlugin, "options.warmup", "compile");
  config.set("selection.order.cuda", "[PORTABLE_ATTN, PORTABLE_MLA]");
  config.set("selection.profile", "null");  // of a device that is here
  config.set("selection.lock", "null");
}

// One sentence where no plugin would compile anything.
void require_compiling_plugin(const WarmOptions& options, const Runtime& runtime) {
  const ordered_json listing = parse(runtime.list());
  for (const ordered_json& backend : listing.at("backends"))
    if (text_of(backend, "plugin") == kCompilingPlugin) return;
  for (const ordered_json& skip : listing.at("skipped"))
    if (skip.at("plugin") == kCompilingPlugin)
      throw Failure(kExitFailed, fmt::format("--arch {}: {}, which compiles for it, failed at {}: {}", options.architecture,
                                             kCompilingPlugin, text_of(skip, "stage"), text_of(skip, "reason")));
  throw Failure(kExitFailed,
                fmt::format("--arch {}: {}, which compiles for it, is in no folder of plugins.search; install it, or name "
                            "its folder there",
                            options.architecture, kCompilingPlugin));
}

int warm_present(const WarmOptions& options) {
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
  const std::string device = options.architecture.empty() ? options.target.device : options.architecture;
  if (output.table()) print(rows, device);
  output.write({{"device", device}, {"ready", ready}, {"layers", std::move(rows)}});
  return ready ? kExitOk : kExitFailed;
}

}  // namespace

int warm(const WarmOptions& options) {
  if (options.architecture.empty()) return warm_present(options);
  if (options.target.device != "auto")
    throw Failure(kExitUsage, fmt::format("--device {} and --arch {} exclude each other: one is here, one is not",
                                          options.target.device, options.architecture));
  std::optional<Runtime> own(open_runtime(options.common, ""));
  require_compiling_plugin(options, *own);
  ChangedConfig config(options.common, *own);
  own.reset();
  turn_to_absent(config, options.architecture);
  WarmOptions absent = options;
  absent.common = config.write();
  absent.target.device = "cuda:0";
  return warm_present(absent);
}

}  // namespace anyattn::tools
