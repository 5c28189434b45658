// SPDX-License-Identifier: Apache-2.0
// The one-line form of a case: a table of words, each with how it is read and how it is written.
#include <algorithm>

#include "anyattn/conformance/cache_format.h"
#include "values.h"

namespace anyattn::conformance {
namespace {

constexpr Word<Kind> kKinds[] = {{Kind::kPaged, "paged"},          {Kind::kRagged, "ragged"},
                                 {Kind::kMlaDecode, "mla_decode"}, {Kind::kMlaPrefill, "mla_prefill"},
                                 {Kind::kMerge, "merge"},          {Kind::kContract, "contract"}};
constexpr Word<Data> kData[] = {{Data::kUniform, "uniform"}, {Data::kRamp, "ramp"},     {Data::kCap, "cap"},
                                {Data::kNanQ, "nan_q"},      {Data::kPowers, "powers"}, {Data::kStories, "stories"}};
constexpr Word<Alibi> kAlibi[] = {{Alibi::kLinear, "linear"}, {Alibi::kSqrt, "sqrt"}, {Alibi::kSymmetric, "symmetric"}};
constexpr Word<uint32_t> kBases[] = {{ANYATTN_LSE_NATURAL, "natural"}, {ANYATTN_LSE_BASE2, "base2"}};
constexpr Word<uint32_t> kDtypes[] = {
    {ANYATTN_DTYPE_FLOAT32, "float32"}, {ANYATTN_DTYPE_FLOAT16, "float16"}, {ANYATTN_DTYPE_BFLOAT16, "bfloat16"}};

constexpr Word<uint32_t> kModes[] = {{ANYATTN_METADATA_FAST, "fast"}, {ANYATTN_METADATA_GRAPH_CAPTURE, "graph"}};

std::vector<int64_t> block_ids(std::string_view text) {
  std::vector<int64_t> ids;
  for (std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = number_within<int64_t>(part.substr(0, dash), 0, int64_t{1} << 31);
    const auto last =
        dash == std::string_view::npos ? first : number_within<int64_t>(part.substr(dash + 1), first, first + 65535);
    for (int64_t id = first; id <= last; ++id) ids.push_back(id);
  }
  return ids;
}

std::string block_ids_text(const std::vector<int64_t>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t end = i + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + text_of(ids[i]) + (end - i > 1 ? "-" + text_of(ids[end - 1]) : "");
    i = end;
  }
  return text;
}

void read_lens(Case& c, std::string_view text) {
  for (std::string_view part : split(text, ',')) {
    const auto [query, key] = pair_of(part, '/');
    c.lens.push_back({size_of(query), size_of(key)});
  }
}

std::string lens_text(const Case& c) {
  std::string text;
  for (const RequestLens& lens : c.lens) {
    text += (text.empty() ? "" : ",") + text_of(lens.query_len) + "/" + text_of(lens.key_len);
  }
  return text;
}

void read_limits(Case& c, std::string_view text) {
  const auto values = numbers<uint32_t>(text, '/');
  if (values.size() != 4) fail("limits= wants reqs/tokens/query_len/seq_len");
  c.limits = {values[0], values[1], values[2], values[3]};
}

std::string limits_text(const Case& c) {
  if (c.limits == CaseLimits{}) return {};
  return joined(std::vector<uint32_t>{c.limits.num_reqs, c.limits.num_tokens, c.limits.query_len, c.limits.seq_len}, '/');
}

void read_seeds(Case& c, std::string_view text) {
  c.seeds = numbers<uint64_t>(text, ':');
  if (c.seeds.size() == 1) c.seeds = {c.seeds[0], c.seeds[0] + 1, c.seeds[0] + 2};
  if (c.seeds.size() < 3) fail("seeds= wants q:k:v, for MLA prefill up to five");
}

bool seeds_in_a_row(const Case& c) {
  return c.seeds.size() == 3 && c.seeds[1] == c.seeds[0] + 1 && c.seeds[2] == c.seeds[0] + 2;
}

void read_mm(Case& c, std::string_view text) {
  for (std::string_view part : split(text, ',')) {
    const auto [request, range] = pair_of(part, ':');
    const auto [first, last] = pair_of(range, '-');
    c.mm.push_back({size_of(request), size_of(first), size_of(last)});
  }
}

std::string mm_text(const Case& c) {
  std::string text;
  for (const MmSpan& span : c.mm) {
    text += (text.empty() ? "" : ",") + text_of(span.request) + ":" + text_of(span.first) + "-" + text_of(span.last);
  }
  return text;
}

void read_pair(std::string_view text, int* first, int* second) {
  const auto [a, b] = pair_of(text, ':');
  *first = size_of(a);
  *second = size_of(b);
}

void read_window(Case& c, std::string_view text) {
  const auto sides = numbers<int>(text, ':');
  if (sides.size() > 2 || sides[0] < -1 || (sides.size() == 2 && sides[1] < -1))
    fail("window= wants left[:right], each -1 or more");
  c.window_left = sides[0];
  c.window_right = sides.size() == 2 ? sides[1] : -1;
}

std::string window_text(const Case& c) {
  if (c.window_left < 0 && c.window_right < 0) return {};
  return text_of(c.window_left) + (c.window_right < 0 ? "" : ":" + text_of(c.window_right));
}

std::string positive(int value) { return value > 0 ? text_of(value) : std::string(); }
std::string above(double value, double unset) { return value != unset ? text_of(value) : std::string(); }

struct Field {
  const char* key;
  const char* help;
  void (*read)(Case&, std::string_view);  // null: a flag
  std::string (*write)(const Case&);      // empty: leave out
  bool Case::* flag;
};

#define ANYATTN_SIZE_FIELD(key, member, help)                                                                               \
  {key, help, [](Case& c, std::string_view t) { c.member = size_of(t); }, [](const Case& c) { return positive(c.member); }, \
   nullptr}
#define ANYATTN_FLAG_FIELD(key, member, help) {key, help, nullptr, nullptr, &Case::member}

const Field kFields[] = {
    ANYATTN_SIZE_FIELD("q", num_q_heads, "query heads"),
    ANYATTN_SIZE_FIELD("kv", num_kv_heads, "key and value heads"),
    ANYATTN_SIZE_FIELD("d", head_size, "head size of q and k"),
    ANYATTN_SIZE_FIELD("dv", head_size_v, "head size of v; as d where absent"),
    ANYATTN_SIZE_FIELD("lora", kv_lora_rank, "MLA: latent size"),
    ANYATTN_SIZE_FIELD("nope", nope, "MLA: qk_nope_head_dim"),
    ANYATTN_SIZE_FIELD("rope", rope, "MLA: qk_rope_head_dim"),
    ANYATTN_SIZE_FIELD("vdim", v_head_dim, "MLA: v_head_dim"),
    {"bs", "tokens a block; 0 is the backend's choice", [](Case& c, std::string_view t) { c.block_size = size_of(t); },
     [](const Case& c) { return text_of(c.block_size); }, nullptr},
    {"lens", "query_len/key_len of each request, commas between", read_lens, lens_text, nullptr},
    {"limits", "reqs/tokens/query_len/seq_len the impl is sized for", read_limits, limits_text, nullptr},
    {"scale", "softmax_scale; 1/sqrt(d) where absent", [](Case& c, std::string_view t) { c.softmax_scale = number<double>(t); },
     [](const Case& c) { return above(c.softmax_scale, 0.0); }, nullptr},
    {"data", "uniform, ramp, cap, nan_q, powers or stories",
     [](Case& c, std::string_view t) { c.data = word_value(kData, t, "data"); },
     [](const Case& c) { return c.data == Data::kUniform ? std::string() : word_text(kData, c.data); }, nullptr},
    ANYATTN_SIZE_FIELD("layer", layer, "layer of the model that data=stories takes"),
    {"seed", "q, k, v come of D(seed), D(seed+1), D(seed+2)", read_seeds,
     [](const Case& c) { return seeds_in_a_row(c) && c.seeds[0] != 1 ? text_of(c.seeds[0]) : std::string(); }, nullptr},
    {"seeds", "three seeds, colons between", read_seeds,
     [](const Case& c) { return seeds_in_a_row(c) ? std::string() : joined(c.seeds, ':'); }, nullptr},
    ANYATTN_FLAG_FIELD("q_each", q_each, "request r draws q from seed + r"),
    {"gain", "multiplies q", [](Case& c, std::string_view t) { c.gain = number<double>(t); },
     [](const Case& c) { return above(c.gain, 1.0); }, nullptr},
    {"golden", "S:A:Wt:Ls:count of the right output, read with float32",
     [](Case& c, std::string_view t) {
       c.golden = numbers<double>(t, ':');
       if (c.golden.size() != 5) fail("golden= wants S:A:Wt:Ls:count");
     },
     [](const Case& c) { return joined(c.golden, ':'); }, nullptr},
    ANYATTN_FLAG_FIELD("noncausal", non_causal, "every key is seen"),
    {"causal", "1 or 0 for each request; repeated over those of random=",
     [](Case& c, std::string_view t) { c.causal = numbers<int>(t, ','); }, [](const Case& c) { return joined(c.causal, ','); },
     nullptr},
    {"window", "left[:right] keys besides the own one", read_window, window_text, nullptr},
    {"cap", "logits_soft_cap", [](Case& c, std::string_view t) { c.soft_cap = number<double>(t); },
     [](const Case& c) { return above(c.soft_cap, 0.0); }, nullptr},
    {"alibi", "linear, sqrt or symmetric", [](Case& c, std::string_view t) { c.alibi = word_value(kAlibi, t, "alibi"); },
     [](const Case& c) { return word_text(kAlibi, c.alibi); }, nullptr},
    {"slopes", "heads in all:first head, for the slopes",
     [](Case& c, std::string_view t) { read_pair(t, &c.slopes_of, &c.slopes_first); },
     [](const Case& c) { return c.slopes_of > 0 ? text_of(c.slopes_of) + ":" + text_of(c.slopes_first) : std::string(); },
     nullptr},
    {"sinks", "values, repeated over the heads", [](Case& c, std::string_view t) { c.sinks = numbers<float>(t, ','); },
     [](const Case& c) { return joined(c.sinks, ','); }, nullptr},
    {"mm", "request:first-last, commas between", read_mm, mm_text, nullptr},
    ANYATTN_SIZE_FIELD("chunk", chunk_size, "tokens a chunk of chunked local attention"),
    ANYATTN_SIZE_FIELD("topk", top_k, "keys a row with sparse indices"),
    {"cp", "world:interleave; every rank is run, then merged",
     [](Case& c, std::string_view t) { read_pair(t, &c.cp_world_size, &c.cp_interleave); },
     [](const Case& c) {
       return c.cp_world_size > 0 ? text_of(c.cp_world_size) + ":" + text_of(c.cp_interleave) : std::string();
     },
     nullptr},
    {"lse", "natural or base2", [](Case& c, std::string_view t) { c.lse_base = word_value(kBases, t, "lse"); },
     [](const Case& c) { return word_text(kBases, c.lse_base); }, nullptr},
    ANYATTN_FLAG_FIELD("invariant", invariant, "each request alone equals itself in company, bitwise"),
    {"scales", "k:v scales of a cache with KV_SCALES",
     [](Case& c, std::string_view t) { c.kv_scales = numbers<float>(t, ':'); },
     [](const Case& c) { return joined(c.kv_scales, ':'); }, nullptr},
    ANYATTN_FLAG_FIELD("head_scales", head_scales, "kv head h takes h + 1 times the scales"),
    {"format", "of the cache, a kv_cache_dtype; as the case's dtype where absent",
     [](Case& c, std::string_view t) { c.format = t; }, [](const Case& c) { return c.format; }, nullptr},
    ANYATTN_FLAG_FIELD("kv_transfer", kv_transfer, "blocks are read by another process"),
    {"graph", "graph level asked for", [](Case& c, std::string_view t) { c.graph_level = size_of(t); },
     [](const Case& c) { return c.graph_level >= 0 ? text_of(c.graph_level) : std::string(); }, nullptr},
    {"out", "dtype of out; as the case's where absent",
     [](Case& c, std::string_view t) { c.out_dtype = word_value(kDtypes, t, "out"); },
     [](const Case& c) { return word_text(kDtypes, c.out_dtype); }, nullptr},
    {"out_scale", "out holds float8_e4m3fn codes of value / out_scale",
     [](Case& c, std::string_view t) { c.out_scale = number<float>(t); },
     [](const Case& c) { return c.out_scale > 0 ? text_of(c.out_scale) : std::string(); }, nullptr},
    {"q_scale", "q holds float8_e4m3fn codes of value / q_scale",
     [](Case& c, std::string_view t) { c.q_scale = number<float>(t); },
     [](const Case& c) { return c.q_scale > 0 ? text_of(c.q_scale) : std::string(); }, nullptr},
    {"mode", "of the metadata: fast or graph", [](Case& c, std::string_view t) { c.mode = word_value(kModes, t, "mode"); },
     [](const Case& c) { return word_text(kModes, c.mode); }, nullptr},
    ANYATTN_FLAG_FIELD("again", again, "the same call three times, bitwise equal"),
    ANYATTN_FLAG_FIELD("retable", retable, "metadata through update_block_table, bitwise as without"),
    {"layout", "name of the accepted cache spec", [](Case& c, std::string_view t) { c.layout = t; },
     [](const Case& c) { return c.layout; }, nullptr},
    ANYATTN_SIZE_FIELD("stride_extra", stride_extra, "bytes added to the block stride"),
    {"table", "block ids in order of request and block, a-b for a range",
     [](Case& c, std::string_view t) { c.table = block_ids(t); }, [](const Case& c) { return block_ids_text(c.table); },
     nullptr},
    ANYATTN_SIZE_FIELD("prefix", prefix, "leading tokens that all requests share"),
    ANYATTN_SIZE_FIELD("shared", shared_prefix, "shared_prefix_len told to the backend"),
    ANYATTN_SIZE_FIELD("surplus", surplus, "blocks handed out beyond the need"),
    ANYATTN_FLAG_FIELD("freed", freed, "blocks wholly outside the window hold NaN"),
    ANYATTN_FLAG_FIELD("holes", holes, "freed, and their table entries are -1"),
    ANYATTN_FLAG_FIELD("poisons", poisons, "NaN, inf, 1e30, 0 in unowned slots give the same bits"),
    ANYATTN_FLAG_FIELD("padded", padded, "rows are bitwise those without the requests of no keys"),
    ANYATTN_SIZE_FIELD("pad_rows", pad_rows, "rows after the last request"),
    ANYATTN_FLAG_FIELD("fused", fused, "q, k, v are slices of wider rows"),
    ANYATTN_SIZE_FIELD("random", random, "batches drawn within the limits"),
    ANYATTN_SIZE_FIELD("context_chunk", context_chunk, "MLA prefill: rows a request gives to a chunk"),
    {"parts", "states to merge", [](Case& c, std::string_view t) { c.num_states = number_within<int>(t, 1, 64); },
     [](const Case& c) { return c.kind == Kind::kMerge ? text_of(c.num_states) : std::string(); }, nullptr},
    {"check", "rule of a contract case", [](Case& c, std::string_view t) { c.check = t; },
     [](const Case& c) { return c.check; }, nullptr},
};

#undef ANYATTN_SIZE_FIELD
#undef ANYATTN_FLAG_FIELD

const Field& field_of(std::string_view key) {
  for (const Field& field : kFields) {
    if (key == field.key) return field;
  }
  fail("word '" + std::string(key) + "' is unknown; --help lists the words");
}

void read_word(Case& c, std::string_view word) {
  const size_t at = word.find('=');
  const Field& field = field_of(word.substr(0, at));
  if ((at == std::string_view::npos) != (field.flag != nullptr)) {
    fail("'" + std::string(word) + "': " + field.key + (field.flag ? " takes no value" : " wants a value"));
  }
  if (field.flag) {
    c.*field.flag = true;
  } else {
    field.read(c, word.substr(at + 1));
  }
}

void check(const Case& c) {
  if (c.num_q_heads < 1 || c.num_kv_heads < 1 || c.num_q_heads % c.num_kv_heads != 0)
    fail("q= must be a multiple of kv=, both above 0");
  if (c.head_size < 1) fail("d= must be above 0");
  const bool mla = c.kind == Kind::kMlaDecode || c.kind == Kind::kMlaPrefill;
  if (mla && (c.kv_lora_rank < 1 || c.rope < 1 || c.nope < 1 || c.v_head_dim < 1))
    fail("MLA wants lora=, nope=, rope= and vdim=");
  const bool attends = c.kind != Kind::kMerge && c.kind != Kind::kContract;
  if (attends && c.lens.empty() && c.random == 0 && c.pad_rows == 0) fail("lens= is missing");
  if (c.random > 0 && c.limits == CaseLimits{}) fail("random= wants limits=");
  if (c.random > 0 && (!c.mm.empty() || c.top_k > 0 || c.cp_world_size > 0 || c.kind == Kind::kMlaPrefill))
    fail("random= goes without mm=, topk=, cp= and mla_prefill");
  const bool replays = c.random > 0 && c.mode == ANYATTN_METADATA_GRAPH_CAPTURE;
  if (c.random > 0 && c.kind == Kind::kMlaDecode && !replays) fail("random= with mla_decode wants mode=graph");
  if (replays && (c.kind == Kind::kRagged || c.q_scale != 0 || c.out_scale != 0 || c.fused))
    fail("random= with mode=graph goes without ragged, q_scale=, out_scale= and fused");
  if (c.kind == Kind::kMlaPrefill && c.context_chunk < 1) fail("mla_prefill wants context_chunk=");
  if (!c.causal.empty() && c.causal.size() != c.lens.size() && c.random == 0) fail("causal= wants one value for each request");
  if (c.kind == Kind::kContract && c.check.empty()) fail("contract wants check=");
  if (c.cp_world_size > 0 && c.cp_interleave < 1) fail("cp= wants world:interleave, both above 0");
  if (c.out_scale != 0 && (!(c.out_scale > 0) || c.out_dtype != 0)) fail("out_scale= wants a value above 0, and no out=");
  if (c.out_scale != 0 && (c.cp_world_size > 0 || (c.kind != Kind::kPaged && c.kind != Kind::kRagged)))
    fail("out_scale= goes with paged or ragged cases whose keys are not sharded");
  if (c.q_scale != 0 && (!(c.q_scale > 0) || c.kind != Kind::kPaged || c.out_scale != 0))
    fail("q_scale= wants a value above 0, and goes with paged cases without out_scale=");
  if (!c.kv_scales.empty() && c.kv_scales.size() != 2) fail("scales= wants k:v");
  if (c.head_scales && c.kv_scales.empty()) fail("head_scales wants scales=k:v");
  if (!c.format.empty() && !find_cache_format(c.format)) {
    std::string known;
    for (std::string_view name : cache_format_names(mla)) known += (known.empty() ? "" : ", ") + std::string(name);
    fail("format '" + c.format + "' is unknown; allowed: " + known);
  }
  if (!c.format.empty() && (c.kind == Kind::kPaged || mla)) {
    const CacheFormat& format = *find_cache_format(c.format);
    const int k_size = mla ? c.kv_lora_rank + c.rope : c.head_size, v_size = mla || c.head_size_v == 0 ? k_size : c.head_size_v;
    for (const int size : {k_size, v_size})
      if (const std::string why = why_no_row(format, size, c.kv_lora_rank); !why.empty()) fail(why);
  }
  for (const MmSpan& span : c.mm) {
    if (static_cast<size_t>(span.request) >= c.lens.size()) fail("mm= names a request that lens= does not have");
  }
}

}  // namespace

Case parse_case(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  if (words.size() < 2) fail("'" + std::string(text) + "' wants a kind and a dtype first");
  Case c;
  c.kind = word_value(kKinds, words[0], "kind");
  c.dtype = word_value(kDtypes, words[1], "dtype");
  for (size_t i = 2; i < words.size(); ++i) read_word(c, words[i]);
  check(c);
  return c;
}

std::string case_text(const Case& c) {
  std::string text = word_text(kKinds, c.kind) + " " + word_text(kDtypes, c.dtype);
  for (const Field& field : kFields) {
    if (field.flag) {
      if (c.*field.flag) text += std::string(" ") + field.key;
    } else if (std::string value = field.write(c); !value.empty()) {
      text += std::string(" ") + field.key + "=" + value;
    }
  }
  return text;
}

std::string case_grammar() {
  std::string text = "KIND DTYPE WORD...   kinds:";
  for (const auto& kind : kKinds) text += std::string(" ") + kind.text;
  text += "; dtypes:";
  for (const auto& dtype : kDtypes) text += std::string(" ") + dtype.text;
  for (const Field& field : kFields) {
    std::string key = std::string(field.key) + (field.flag ? "" : "=");
    key.resize(std::max<size_t>(key.size(), 16), ' ');
    text += "\n  " + key + field.help;
  }
  return text + "\n";
}

}  // namespace anyattn::conformance
