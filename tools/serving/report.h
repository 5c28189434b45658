// SPDX-License-Identifier: Apache-2.0
// What a run has measured, as JSON for scripts and as tables for people. Included by run and its tests.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "anyattn/kv_pool.h"
#include "common/terminal.h"
#include "serving/row_checks.h"

namespace anyattn::tools {

struct KindReport {
  std::string layer_kind;
  std::string backend;
  std::string plugin;
  std::string kv_cache_dtype;
  uint32_t layers = 0;
  uint32_t block_size = 0;
  double attention_s = 0;
  double flops = 0;
  double bytes = 0;
};

struct RunReport {
  std::string model, trace, device, dtype;
  uint64_t seed = 0;
  bool interrupted = false;
  uint64_t requests_wanted = 0, requests_done = 0, requests_skipped = 0;
  uint64_t prefill_tokens = 0, decode_tokens = 0, preemptions = 0;
  std::vector<double> step_ms;
  uint64_t replayed_steps = 0;         // of them, each kind of layer as one replay of a captured graph of all its layers
  uint64_t captured_graphs = 0;        // one a kind and number of rows; capturing is no part of a step's time
  std::vector<double> outside_shares;  // [steps] of a step's time, as outside_kernels
  double virtual_s = 0;                // the clock that admits requests: step times and the waits between
  double busy_s = 0;                   // step times alone
  double attention_s = 0;              // of them in metadata updates, cache updates and attention: the next four
  double metadata_s = 0, cache_update_s = 0, kernels_s = 0;  // of the device
  double waits_s = 0;                                        // for calls, beyond the device's time: launches and waits
  double scheduling_s = 0;  // of the step times: which requests run, their blocks; giving finished ones back
  double tables_s = 0;      // of the step times: order, lengths, block tables, slots, and their copies
  double draw_s = 0;        // making up inputs, MLA's projections among them; no part of a step's time
  double copy_s = 0;        // waiting until inputs are on the device; likewise
  double verify_s = 0;      // recomputing rows; likewise
  anyattn_kv_pool_stats kv{};
  std::vector<KindReport> kinds;
  CheckTally checks;
};

// What steps spend beside kernels and cache updates, of their whole time: scheduling, tables, metadata, launches and waits.
double outside_kernels(const RunReport& report);

// Nearest-rank percentile of unsorted values; 0 for none. share in (0, 1].
double percentile(std::vector<double> values, double share);

nlohmann::ordered_json report_json(const RunReport& report);
std::string report_text(const RunReport& report, const Terminal& terminal);

}  // namespace anyattn::tools
