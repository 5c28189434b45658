// SPDX-License-Identifier: Apache-2.0
#include "serving/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/table.h"

namespace anyattn::tools {
namespace {

using Json = nlohmann::ordered_json;

double per_second(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

double reuse_share(const anyattn_kv_pool_stats& kv) {
  return kv.begun_tokens == 0 ? 0 : static_cast<double>(kv.reused_tokens) / static_cast<double>(kv.begun_tokens);
}

Json kinds_json(const RunReport& report) {
  Json kinds = Json::array();
  for (const KindReport& kind : report.kinds) {
    kinds.push_back({{"layer_kind", kind.layer_kind},
                     {"backend", kind.backend},
                     {"plugin", kind.plugin},
                     {"layers", kind.layers},
                     {"block_size", kind.block_size},
                     {"kv_cache_dtype", kind.kv_cache_dtype},
                     {"attention_s", kind.attention_s},
                     {"gb_per_s", per_second(kind.bytes * 1e-9, kind.attention_s)},
                     {"gflop_per_s", per_second(kind.flops * 1e-9, kind.attention_s)}});
  }
  return kinds;
}

std::string mib(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

double outside_kernels(const RunReport& r) {
  return r.busy_s > 0 ? (r.scheduling_s + r.tables_s + r.metadata_s + r.waits_s) / r.busy_s : 0;
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Json report_json(const RunReport& r) {
  double flops = 0, bytes = 0;
  for (const KindReport& kind : r.kinds) {
    flops += kind.flops;
    bytes += kind.bytes;
  }
  return {
      {"model", r.model},
      {"trace", r.trace},
      {"device", r.device},
      {"dtype", r.dtype},
      {"seed", r.seed},
      {"interrupted", r.interrupted},
      {"requests_wanted", r.requests_wanted},
      {"requests_done", r.requests_done},
      {"requests_skipped", r.requests_skipped},
      {"prefill_tokens", r.prefill_tokens},
      {"decode_tokens", r.decode_tokens},
      {"prefill_tokens_per_s", per_second(static_cast<double>(r.prefill_tokens), r.busy_s)},
      {"decode_tokens_per_s", per_second(static_cast<double>(r.decode_tokens), r.busy_s)},
      {"steps", r.step_ms.size()},
      {"replayed_steps", r.replayed_steps},
      {"captured_graphs", r.captured_graphs},
      {"step_ms",
       {{"p50", percentile(r.step_ms, 0.5)}, {"p90", percentile(r.step_ms, 0.9)}, {"p99", percentile(r.step_ms, 0.99)}}},
      {"seconds",
       {{"virtual", r.virtual_s},
        {"busy", r.busy_s},
        {"attention", r.attention_s},
        {"kernels", r.kernels_s},
        {"cache_update", r.cache_update_s},
        {"metadata", r.metadata_s},
        {"launches_and_waits", r.waits_s},
        {"tables", r.tables_s},
        {"scheduling", r.scheduling_s},
        {"other", r.busy_s - r.attention_s},
        {"drawing", r.draw_s},
        {"copying", r.copy_s},
        {"verifying", r.verify_s}}},
      {"outside_kernels",
       {{"all", outside_kernels(r)}, {"p50", percentile(r.outside_shares, 0.5)}, {"p99", percentile(r.outside_shares, 0.99)}}},
      {"gb_per_s", per_second(bytes * 1e-9, r.attention_s)},
      {"gflop_per_s", per_second(flops * 1e-9, r.attention_s)},
      {"kv",
       {{"pool_bytes", r.kv.pool_bytes},
        {"peak_used_bytes", r.kv.peak_used_pages * r.kv.page_bytes},
        {"page_bytes", r.kv.page_bytes},
        {"total_pages", r.kv.total_pages},
        {"peak_used_pages", r.kv.peak_used_pages},
        {"prompt_tokens", r.kv.begun_tokens},
        {"reused_tokens", r.kv.reused_tokens},
        {"reuse", reuse_share(r.kv)},
        {"evicted_blocks", r.kv.evicted_blocks}}},
      {"preemptions", r.preemptions},
      {"backends", kinds_json(r)},
      {"checked_rows", r.checks.rows},
      {"checked_rows_cached_prefix", r.checks.cached_prefix_rows},
      {"checked_rows_window_edge", r.checks.window_edge_rows},
      {"rows_outside_bound", r.checks.rows_outside},
      {"worst_error_over_bound", r.checks.worst_error_over_bound}};
}

std::string report_text(const RunReport& r, const Terminal& terminal) {
  Table kinds({{"layers"},
               {"backend"},
               {"plugin"},
               {"cache"},
               {"block", Align::kRight},
               {"attention s", Align::kRight},
               {"GB/s", Align::kRight},
               {"GFLOP/s", Align::kRight}});
  for (const KindReport& kind : r.kinds) {
    kinds.add({fmt::format("{} x {}", kind.layers, kind.layer_kind),
               {kind.backend, Colour::kBold},
               kind.plugin,
               kind.kv_cache_dtype,
               fmt::format("{}", kind.block_size),
               fmt::format("{:.2f}", kind.attention_s),
               fmt::format("{:.1f}", per_second(kind.bytes * 1e-9, kind.attention_s)),
               fmt::format("{:.1f}", per_second(kind.flops * 1e-9, kind.attention_s))});
  }
  Table figures({{"what"}, {"value"}});
  figures.add({"requests", fmt::format("{} of {} done, {} skipped{}", r.requests_done, r.requests_wanted, r.requests_skipped,
                                       r.interrupted ? "; interrupted" : "")});
  figures.add({"prefill", fmt::format("{} tokens, {:.1f} a second", r.prefill_tokens,
                                      per_second(static_cast<double>(r.prefill_tokens), r.busy_s))});
  figures.add({"decode", fmt::format("{} tokens, {:.1f} a second", r.decode_tokens,
                                     per_second(static_cast<double>(r.decode_tokens), r.busy_s))});
  figures.add({"step time", fmt::format("p50 {:.2f} ms, p90 {:.2f} ms, p99 {:.2f} ms over {} steps", percentile(r.step_ms, 0.5),
                                        percentile(r.step_ms, 0.9), percentile(r.step_ms, 0.99), r.step_ms.size())});
  if (r.captured_graphs > 0) {
    figures.add({"graphs", fmt::format("{} of {} steps replayed, of {} captured graphs", r.replayed_steps, r.step_ms.size(),
                                       r.captured_graphs)});
  }
  const auto part = [&](double seconds) {
    return fmt::format("{:.3f} s ({:.2f} %)", seconds, r.busy_s > 0 ? 100 * seconds / r.busy_s : 0);
  };
  figures.add(
      {"step time goes to",
       fmt::format("kernels {}, cache updates {}, metadata {}, launches and waits {}, tables and slots {}, scheduling {}",
                   part(r.kernels_s), part(r.cache_update_s), part(r.metadata_s), part(r.waits_s), part(r.tables_s),
                   part(r.scheduling_s))});
  figures.add({"outside kernels",
               fmt::format("{:.2f} % of all steps; of single ones p50 {:.2f} %, p99 {:.2f} %", 100 * outside_kernels(r),
                           100 * percentile(r.outside_shares, 0.5), 100 * percentile(r.outside_shares, 0.99))});
  figures.add({"time", fmt::format("{:.1f} s on the virtual clock: {:.2f} s of steps, else waiting; beside it {:.1f} s drawing "
                                   "inputs, {:.1f} s copying them to the device, {:.1f} s verifying",
                                   r.virtual_s, r.busy_s, r.draw_s, r.copy_s, r.verify_s)});
  figures.add({"KV memory",
               fmt::format("{} of {} used at the peak, {:.1f} % of {} prompt tokens reused, {} blocks evicted, {} preemptions",
                           mib(r.kv.peak_used_pages * r.kv.page_bytes), mib(r.kv.pool_bytes), 100 * reuse_share(r.kv),
                           r.kv.begun_tokens, r.kv.evicted_blocks, r.preemptions)});
  figures.add(
      {"checked",
       {fmt::format("{} rows ({} with a cached prefix, {} at a window's edge), worst error {:.3f} of its bound", r.checks.rows,
                    r.checks.cached_prefix_rows, r.checks.window_edge_rows, r.checks.worst_error_over_bound),
        r.checks.rows_outside > 0 ? Colour::kRed : Colour::kGreen}});
  std::string text = fmt::format("{} on {} in {}, {}\n\n", terminal.paint(printable(r.model), Colour::kBold), r.device, r.dtype,
                                 printable(r.trace));
  text += kinds.render(terminal) + "\n" + figures.render(terminal);
  if (r.checks.rows_outside > 0)
    text += fmt::format("\n{} rows outside their bound; the first: {}\n", r.checks.rows_outside, r.checks.first_failure);
  return text;
}

}  // namespace anyattn::tools
