// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <charconv>
#include <string>

#include "alternatives.h"
#include "anyattn/problem_rules.hpp"

namespace anyattn::portable {
namespace {

constexpr auto bit = feature_bit;

constexpr uint64_t kCommonFeatures = bit(ANYATTN_FEATURE_NON_CAUSAL) | bit(ANYATTN_FEATURE_PER_REQUEST_CAUSAL) |
                                     bit(ANYATTN_FEATURE_CP_DECODE) | bit(ANYATTN_FEATURE_LSE) |
                                     bit(ANYATTN_FEATURE_BATCH_INVARIANT) | bit(ANYATTN_FEATURE_KV_TRANSFER) |
                                     bit(ANYATTN_FEATURE_GRAPH) | bit(ANYATTN_FEATURE_MLA) | bit(ANYATTN_FEATURE_KV_SCALES);
constexpr uint64_t kPlainFeatures = kCommonFeatures | bit(ANYATTN_FEATURE_WINDOW) | bit(ANYATTN_FEATURE_SOFT_CAP) |
                                    bit(ANYATTN_FEATURE_ALIBI) | bit(ANYATTN_FEATURE_ALIBI_SQRT) |
                                    bit(ANYATTN_FEATURE_ALIBI_SYMMETRIC) | bit(ANYATTN_FEATURE_SINKS) |
                                    bit(ANYATTN_FEATURE_MM_PREFIX) | bit(ANYATTN_FEATURE_CP_PREFILL) |
                                    bit(ANYATTN_FEATURE_KV_SCALES_PER_HEAD) | bit(ANYATTN_FEATURE_OUT_SCALE);

constexpr const char* kFloats = "float32, float16, bfloat16";
constexpr uint32_t kPreferredBlockSize = 64;
constexpr FamilySizes kSizes{"PORTABLE_ATTN", "PORTABLE_MLA", 576, 4096};

void check_features(const anyattn_problem& problem, uint64_t allowed, Reasons& reasons, Plan& plan) {
  refuse_features(problem, allowed, reasons);
  plan.features = feature_word(problem);
  refuse_exclusive_features(plan.features, reasons);
  const bool graphs = kTargetDevice != ANYATTN_DEVICE_CPU;
  if (plan.has(ANYATTN_FEATURE_GRAPH) && problem.graph_level >= ANYATTN_GRAPH_SINGLE_TOKEN_DECODE && !graphs)
    reasons.add(ANYATTN_REASON_GRAPH_LEVEL, "graph_level", text(problem.graph_level), text(ANYATTN_GRAPH_NEVER),
                "the CPU captures no graphs");
}

void check_parameters(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  Config& cfg = plan.main.cfg;
  const ScoreRules rules = read_score_rules(problem, reasons);
  cfg.causality = rules.causality;
  cfg.window_left = rules.window_left;
  cfg.window_right = rules.window_right;
  cfg.soft_cap = static_cast<float>(rules.soft_cap);
  cfg.alibi = rules.alibi;
  cfg.sinks = plan.has(ANYATTN_FEATURE_SINKS);
  cfg.mm_prefix = plan.has(ANYATTN_FEATURE_MM_PREFIX);
  cfg.invariant = plan.has(ANYATTN_FEATURE_BATCH_INVARIANT);
  const KeyShard shard = read_key_shard(problem, reasons);
  cfg.cp_world = static_cast<int>(shard.world);
  cfg.cp_rank = static_cast<int>(shard.rank);
  cfg.cp_interleave = static_cast<int>(shard.interleave);
}

void check_dtypes(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.dtype = problem.q_dtype;
  plan.out_dtype = problem.out_dtype;
  if (!is_float_dtype(problem.q_dtype)) reasons.add(ANYATTN_REASON_DTYPE, "q_dtype", dtype_name(problem.q_dtype), kFloats);
  check_out_dtype(problem, reasons);
  plan.ragged = has_ragged_keys(problem, reasons);
  if (plan.ragged) return;
  plan.block_size = problem.block_size ? problem.block_size : kPreferredBlockSize;
  if (plan.block_size % 8 != 0)
    reasons.add(ANYATTN_REASON_BLOCK_SIZE, "block_size", text(plan.block_size), "multiples of 8",
                "a tile of keys takes whole groups of 8 rows of a block");
}

void check_heads(const anyattn_problem& problem, Reasons& reasons, Plan& plan) {
  plan.num_q_heads = problem.num_q_heads;
  plan.num_kv_heads = problem.num_kv_heads;
  check_kv_heads(problem, reasons);
}

void read_sizes(const anyattn_problem& problem, bool latent, Plan& plan) {
  plan.head_size = problem.head_size;
  plan.head_size_v = problem.head_size_v;
  if (!latent) return;
  plan.kv_lora_rank = problem.kv_lora_rank;
  plan.rope = problem.qk_rope_head_dim;
  plan.mha_head_size = problem.qk_nope_head_dim + problem.qk_rope_head_dim;
  plan.mha_head_size_v = problem.v_head_dim;
}

void specialise(const Host& host, const anyattn_device_facts& facts, Plan& plan) {
  Config& cfg = plan.main.cfg;
  cfg.kind = kind_of(plan.dtype);
  cfg.rows = plan.format ? static_cast<int>(plan.format->coding) : cfg.kind;
  cfg.out_kind = plan.has(ANYATTN_FEATURE_OUT_SCALE) ? static_cast<int>(kRowsE4M3) : static_cast<int>(kind_of(plan.out_dtype));
  cfg.head_size = static_cast<int>(plan.head_size);
  cfg.head_size_v = static_cast<int>(plan.head_size_v);
  cfg.latent = plan.kv_lora_rank > 0;
  cfg.group = static_cast<int>(plan.num_q_heads / plan.num_kv_heads);
  cfg.num_kv_heads = static_cast<int>(plan.num_kv_heads);
  cfg.block_size = static_cast<int>(plan.block_size);
  choose_tiles(host, facts, plan.main);
  if (!cfg.latent) return;
  Config& mha = plan.mha.cfg;
  mha = cfg;
  mha.rows = mha.kind;
  mha.head_size = static_cast<int>(plan.mha_head_size);
  mha.head_size_v = static_cast<int>(plan.mha_head_size_v);
  mha.latent = mha.block_size = mha.cp_rank = 0;
  mha.group = mha.cp_world = mha.cp_interleave = 1;
  mha.num_kv_heads = static_cast<int>(plan.num_q_heads);
  mha.causality = kPerRequest;  // args.causal counts
  plan.mha.direct = 1;
  choose_tiles(host, facts, plan.mha);
}

// Option `tiles`: auto, or the number of an alternative; those of the one specialisation, then those of the other.
void take_alternative(const Host& host, const anyattn_device_facts& facts, Reasons& reasons, Plan& plan) {
  const std::string wanted(host.option("tiles", "auto"));
  if (wanted == "auto") return;
  std::vector<Alternative> main = alternatives_of(facts, plan.main), mha;
  if (plan.mha.direct) mha = alternatives_of(facts, plan.mha);
  size_t number = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  const size_t count = main.size() + mha.size();
  if (error != std::errc() || end != wanted.data() + wanted.size() || number >= count) {
    reasons.add(ANYATTN_REASON_OPTION, "tiles", wanted, count ? text("auto | 0 to ", count - 1) : "auto",
                "a number is one of this problem's other cuts; anyattn bench --tiles measures them");
    return;
  }
  const bool first = number < main.size();
  const Alternative& one = first ? main[number] : mha[number - main.size()];
  (first ? plan.main : plan.mha) = one.spec;
  plan.tiles = one.words;
}

// "tiles of 16 rows x 64 keys, 2 in flight, 2 programs a multiprocessor; for queries longer than 4 of 128 rows x 64 keys, ...".
std::string describe_tiles(const Specialisation& spec) {
  std::string line;
  for (int i = 0; i < spec.num_lanes; ++i) {
    const Tile& tile = spec.lanes[i];
    line += i == 0 ? "tiles of " : text("; for queries longer than ", tile.min_query - 1, " of ");
    line += text(tile.rows, " rows x ", tile.keys, " keys");
    if (kTargetDevice == ANYATTN_DEVICE_CPU) continue;
    line += text(", ", tile.stages, " in flight, ", spec.min_blocks[i], " programs a multiprocessor");
  }
  return line;
}

}  // namespace

Kind kind_of(uint32_t dtype) { return dtype == ANYATTN_DTYPE_FLOAT16 ? kF16 : dtype == ANYATTN_DTYPE_BFLOAT16 ? kBF16 : kF32; }

bool choose_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem,
                 Reasons& reasons, Plan& plan) {
  if (facts.device_kind != kTargetDevice)
    reasons.add(ANYATTN_REASON_DEVICE, "device_kind", text(facts.device_kind), text(kTargetDevice));
  else
    check_target(host, facts, reasons);
  const bool latent = family == Family::kMla;
  check_features(problem, latent ? kCommonFeatures : kPlainFeatures, reasons, plan);
  check_dtypes(problem, reasons, plan);
  plan.format = check_cache_format(problem, latent, kMaxRotatedRow, reasons);
  check_parameters(problem, reasons, plan);
  check_heads(problem, reasons, plan);
  (latent ? check_latent_sizes : check_plain_sizes)(problem, kSizes, reasons);
  read_sizes(problem, latent, plan);
  check_phase(problem, reasons);
  if (reasons.count() != 0) return false;
  specialise(host, facts, plan);
  plan.not_run = not_run_yet(facts);
  if (!tiles_fit(facts, plan.main) || (plan.mha.direct && !tiles_fit(facts, plan.mha)))
    reasons.add(ANYATTN_REASON_HEAD_SIZE, "head_size", text(plan.head_size),
                text("sizes whose tiles fit into ", facts.shared_memory_per_block, " bytes of shared memory"));
  if (reasons.count() == 0) take_alternative(host, facts, reasons, plan);
  if (reasons.count() != 0) return false;
  // Decode alone is held to short queries; limits that reach further must find their lane's code in warmup.
  check_code(host, facts, plan.main, problem.phase == ANYATTN_PHASE_DECODE ? 1 : plan.main.num_lanes, reasons);
  if (plan.mha.direct && reasons.count() == 0) check_code(host, facts, plan.mha, plan.mha.num_lanes, reasons);
  return reasons.count() == 0;
}

Plan require_plan(Family family, const Host& host, const anyattn_device_facts& facts, const anyattn_problem& problem) {
  const ReasonText all;
  Reasons reasons(all.sink());
  Plan plan;
  if (!choose_plan(family, host, facts, problem, reasons, plan)) throw Error(ANYATTN_UNSUPPORTED, all.get());
  return plan;
}

void fill_report(const Plan& plan, anyattn_support_report& report) {
  report.block_size = plan.block_size;
  report.block_size_multiple = plan.ragged ? 0 : 8;
  report.query_lengths = ANYATTN_QUERY_ANY;
  report.graph_level = kTargetDevice == ANYATTN_DEVICE_CPU ? ANYATTN_GRAPH_NEVER : ANYATTN_GRAPH_ALWAYS;
  report.lse_bases = plan.has(ANYATTN_FEATURE_LSE) ? ANYATTN_LSE_NATURAL | ANYATTN_LSE_BASE2 : 0;
  report.needs_host_lengths = 0;
  say_kernels((plan.tiles.empty() ? describe_tiles(plan.main) : plan.tiles) + plan.not_run, report);
}

}  // namespace anyattn::portable
