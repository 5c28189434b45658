// SPDX-License-Identifier: Apache-2.0
#include "serving/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "common/failure.h"

namespace anyattn::tools {
namespace {

constexpr double kMemoryShare = 0.25;  // of the device, where no --blocks says how much

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - from_).count(); }

 private:
  std::chrono::steady_clock::time_point from_ = std::chrono::steady_clock::now();
};

uint64_t tokens_of(const TraceRequest& request) { return uint64_t{request.prompt_tokens} + request.output_tokens; }

// Drops what the model's context does not hold; returns how many.
uint64_t cut_to_context(Trace& trace, const ModelKinds& model) {
  if (model.max_context == 0) return 0;
  return std::erase_if(trace.requests, [&](const TraceRequest& request) { return tokens_of(request) > model.max_context; });
}

std::string kind_name(uint32_t kind) {
  return kind == ANYATTN_DEVICE_CPU    ? "cpu"
         : kind == ANYATTN_DEVICE_CUDA ? "cuda"
         : kind == ANYATTN_DEVICE_HIP  ? "hip"
                                       : "device";
}

// Bytes of a token in one layer of the kind.
double token_bytes(const anyattn_kv_cache_spec& spec) { return static_cast<double>(spec.block_bytes) / spec.block_size; }

}  // namespace

Replay::Replay(const Runtime& runtime, const ReplayOptions& options, Trace trace)
    : options_(options), trace_(std::move(trace)), chooser_(options.seed) {
  resolve_device(runtime);
  timer_ = std::make_unique<AttentionTimer>(place_);
  model_ = load_model_kinds(options.model);
  report_.requests_skipped = cut_to_context(trace_, model_);
  if (trace_.requests.empty()) {
    throw Failure(kExitUsage, fmt::format("{}: no request is left that {} can hold: its context is {} tokens", trace_.name,
                                          model_.id, model_.max_context));
  }
  for (const TraceRequest& request : trace_.requests) {
    max_seq_len_ = std::max(max_seq_len_, static_cast<uint32_t>(tokens_of(request)));
    total_tokens_ += tokens_of(request) - 1;  // the last output token is not fed back
  }
  make_layers();
  make_pool();
  StepLimits limits{options.max_num_reqs, options.token_budget, 1, 3};
  std::vector<uint32_t> thresholds;
  for (const auto& kind : kinds_) {
    thresholds.push_back(kind->info().decode_threshold);
    limits.query_lengths = std::min(limits.query_lengths, kind->info().query_lengths);
  }
  limits.decode_threshold = anyattn_step_decode_threshold(thresholds.data(), static_cast<uint32_t>(thresholds.size()));
  scheduler_ = std::make_unique<Scheduler>(
      trace_, SchedulerOptions{options.token_budget, options.max_num_reqs, options.saturate, options.seed}, pool_.get());
  batch_ = std::make_unique<StepBatch>(place_, pool_.get(), static_cast<uint32_t>(kinds_.size()), limits);

  report_.model = model_.id;
  report_.trace = trace_.name;
  report_.device = device_name_;
  report_.dtype = conformance::dtype_name(model_.dtype);
  report_.seed = options.seed;
  report_.requests_wanted = trace_.requests.size();
}

Replay::~Replay() = default;

void Replay::resolve_device(const Runtime& runtime) {
  place_ = {&runtime, runtime.resolve_device(options_.device)};
  device_name_ = kind_name(place_.device.kind);
  if (place_.shares_memory()) return;
  stream_ = DeviceStream(runtime, place_.device);
  place_.stream = stream_.get();
  device_name_ += fmt::format(":{}", place_.device.ordinal);
}

void Replay::make_layers() {
  LayerOptions options;
  options.place = &place_;
  options.device = device_name_;
  options.seed = options_.seed;
  options.graphs = options_.graphs && !place_.shares_memory();
  options.limits = {ANYATTN_LIMITS_SIZE, options_.max_num_reqs, options_.token_budget, options_.token_budget, max_seq_len_, 0};
  for (const auto& spec : model_.kinds) {
    kinds_.push_back(LayerKind::make(*spec, options));
    const anyattn_group_info& info = kinds_.back()->info();
    report_.kinds.push_back(
        {spec->label, kinds_.back()->backends(), info.plugin, info.kv_cache_dtype, spec->num_layers, info.block_size, 0, 0, 0});
  }
}

void Replay::make_pool() {
  std::vector<anyattn_kv_group_options> groups;
  for (const auto& kind : kinds_) {
    const KindSpec& spec = kind->spec();
    groups.push_back(
        {ANYATTN_KV_GROUP_OPTIONS_SIZE, spec.num_layers, 0, spec.keys_to_the_left(), kind->info().spec, spec.label.c_str()});
  }
  anyattn_kv_pool_options options{};
  options.struct_size = ANYATTN_KV_POOL_OPTIONS_SIZE;
  options.num_groups = static_cast<uint32_t>(groups.size());
  options.group_stride = sizeof(anyattn_kv_group_options);
  options.groups = groups.data();
  options.device_kind = place_.device.kind;
  options.device_ordinal = place_.device.ordinal;
  options.max_num_reqs = options_.max_num_reqs;
  options.max_seq_len = max_seq_len_;
  options.num_blocks = options_.blocks;
  options.budget_bytes = options_.blocks == 0 ? default_budget_bytes() : 0;
  anyattn_kv_pool* pool = nullptr;
  anyattn::check(anyattn_kv_pool_create, place_.runtime->get(), &options, &pool);
  pool_.reset(pool);
  for (uint32_t g = 0; g < kinds_.size(); ++g) kinds_[g]->attach(pool_.get(), g);
  poison_cache();
}

// What the longest max_num_reqs requests need together, every kind of layer as if it kept all keys; at most a share of memory.
uint64_t Replay::default_budget_bytes() const {
  std::vector<uint64_t> tokens;
  tokens.reserve(trace_.requests.size());
  for (const TraceRequest& request : trace_.requests) tokens.push_back(tokens_of(request));
  std::sort(tokens.rbegin(), tokens.rend());
  tokens.resize(std::min<size_t>(tokens.size(), options_.max_num_reqs));
  double bytes = 0;
  for (const auto& kind : kinds_) {
    const anyattn_kv_cache_spec& spec = *kind->info().spec;
    for (const uint64_t count : tokens)
      bytes += static_cast<double>(count + spec.block_size) * token_bytes(spec) * kind->spec().num_layers;
  }
  const auto json = nlohmann::json::parse(place_.runtime->devices());
  for (const auto& device : json.at("devices")) {
    if (device.at("kind") != kind_name(place_.device.kind) || device.at("ordinal") != place_.device.ordinal) continue;
    bytes = std::min(bytes, kMemoryShare * device.at("memory_bytes").get<double>());
  }
  // Room for whole pages and for rounding them.
  return static_cast<uint64_t>(bytes * 1.02) + (uint64_t{1} << 20);
}

// All bits set is NaN in every float format: a slot that is read before it was written shows at once.
void Replay::poison_cache() {
  for (uint32_t g = 0; g < kinds_.size(); ++g) {
    for (uint32_t layer = 0; layer < kinds_[g]->spec().num_layers; ++layer) {
      anyattn_cache cache{};
      cache.struct_size = ANYATTN_CACHE_SIZE;
      anyattn::check(anyattn_kv_pool_layer_cache, pool_.get(), g, layer, &cache);
      for (uint64_t b = 0; b < cache.num_blocks; ++b) {
        anyattn::check(anyattn_device_fill, place_.runtime->get(), place_.device.kind, place_.device.ordinal,
                       static_cast<void*>(static_cast<char*>(cache.base) + b * cache.block_stride_bytes), uint8_t{0xff},
                       cache.spec->block_bytes, place_.stream);
      }
    }
  }
  place_.synchronize();
}

void Replay::step() {
  if (scheduler_->idle()) clock_s_ = std::max(clock_s_, scheduler_->next_arrival_s());
  Stopwatch planning;
  const std::vector<StepRow>& rows = scheduler_->plan(clock_s_);
  if (rows.empty()) return;
  double scheduling_s = planning.seconds();
  Stopwatch building;
  batch_->build(rows);
  place_.synchronize();  // its copies are the step's
  const double tables_s = building.seconds();
  count_rows(rows);
  const double outside_before = outside_s();
  const double attention_s = run_layers(report_.step_ms.size());
  Stopwatch committing;
  scheduler_->finish();
  scheduling_s += committing.seconds();
  const double step_s = scheduling_s + tables_s + attention_s;
  clock_s_ += step_s;
  report_.scheduling_s += scheduling_s;
  report_.tables_s += tables_s;
  report_.busy_s += step_s;
  report_.step_ms.push_back(step_s * 1000);
  report_.outside_shares.push_back((scheduling_s + tables_s + outside_s() - outside_before) / step_s);
}

void Replay::count_rows(const std::vector<StepRow>& rows) {
  for (const StepRow& row : rows) {
    (row.is_decode() ? report_.decode_tokens : report_.prefill_tokens) += row.count;
    computed_tokens_ += row.count;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      const Work work = kinds_[k]->work(row);
      report_.kinds[k].flops += work.flops * kinds_[k]->spec().num_layers;
      report_.kinds[k].bytes += work.bytes * kinds_[k]->spec().num_layers;
    }
  }
}

// Seconds of attention in this step.
double Replay::run_layers(uint64_t step) {
  const double before = timer_->seconds();
  bool as_replay = true;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const double kind_before = timer_->seconds();
    as_replay &= run_kind(*kinds_[k], step);
    report_.kinds[k].attention_s += timer_->seconds() - kind_before;
  }
  report_.replayed_steps += as_replay;
  return timer_->seconds() - before;
}

bool Replay::run_kind(LayerKind& kind, uint64_t step) {
  const std::vector<ChosenRow>& chosen = chooser_.choose(kind.spec(), *batch_, step, progress(), report_.checks.rows);
  const uint32_t layers = kind.spec().num_layers;
  const bool as_replay = kind.takes_as_replay(*batch_);
  if (as_replay) {
    for (uint32_t layer = 0; layer < layers; ++layer) draw([&] { kind.draw(*batch_, layer); });
    kind.replay(*batch_, *timer_);
    for (uint32_t layer = 0; layer < layers; ++layer) verify(kind, chosen, layer);
  } else {
    kind.update(*batch_, *timer_);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      draw([&] {
        kind.draw(*batch_, layer);
        kind.attend(*batch_, layer, *timer_);
      });
      verify(kind, chosen, layer);
    }
  }
  return as_replay;
}

// What `body` takes beside the calls it times.
template <class Body>
void Replay::draw(Body&& body) {
  Stopwatch whole;
  const auto timed = [this] { return timer_->seconds() + timer_->copying_seconds(); };
  const double before = timed();
  body();
  report_.draw_s += whole.seconds() - (timed() - before);
}

void Replay::verify(LayerKind& kind, const std::vector<ChosenRow>& chosen, uint32_t layer) {
  Stopwatch verifying;
  for (const ChosenRow& row : chosen) {
    if (row.layer != layer) continue;
    const RowCheck check = kind.check(*batch_, layer, row.token);
    report_.checks.add(row, check.error_over_bound, check.failure);
  }
  report_.verify_s += verifying.seconds();
}

RunReport Replay::report() const {
  RunReport report = report_;
  report.requests_done = scheduler_->requests_done();
  report.preemptions = scheduler_->preemptions();
  report.virtual_s = clock_s_;
  report.attention_s = timer_->seconds();
  report.metadata_s = timer_->seconds(Spent::kMetadata);
  report.cache_update_s = timer_->seconds(Spent::kCacheUpdate);
  report.kernels_s = timer_->seconds(Spent::kKernels);
  report.waits_s = timer_->seconds(Spent::kWaits);
  report.copy_s = timer_->copying_seconds();
  for (const auto& kind : kinds_) report.captured_graphs += kind->num_graphs();
  report.kv.struct_size = ANYATTN_KV_POOL_STATS_SIZE;
  anyattn::check(anyattn_kv_pool_get_stats, pool_.get(), &report.kv);
  return report;
}

}  // namespace anyattn::tools
