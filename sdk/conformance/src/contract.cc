// SPDX-License-Identifier: Apache-2.0
#include "contract.h"

#include <algorithm>

#include "batch.h"
#include "failure.h"
#include "run_mla.h"
#include "run_plain.h"

namespace anyattn::conformance {
namespace {

// The smallest problem of the backend's family, in the first dtype that it takes: the case's, then the 16-bit ones.
Case smallest(const Subject& subject, const Case& c, bool with_lse) {
  const std::string lse = with_lse ? " lse=natural" : "";
  const auto in = [&](uint32_t dtype) {
    const std::string name(dtype_name(dtype));
    if (subject.backend.forward) return parse_case("paged " + name + " q=2 kv=1 d=64 bs=16 lens=1/5" + lse);
    return parse_case("mla_decode " + name + " q=2 kv=1 lora=512 nope=128 rope=64 vdim=128 bs=16 lens=1/5" + lse);
  };
  for (const uint32_t dtype : {c.dtype, ANYATTN_DTYPE_BFLOAT16, ANYATTN_DTYPE_FLOAT16}) {
    const Case made = in(dtype);
    if (ask(subject, *Problem(made, 0).get()).report.supported) return made;
  }
  return in(c.dtype);
}

bool has_reason(const SupportAnswer& answer, uint32_t id) {
  return std::any_of(answer.reasons.begin(), answer.reasons.end(), [&](const Reason& reason) { return reason.id == id; });
}

void want_unknown(const Subject& subject, const Problem& problem, const char* what) {
  const SupportAnswer answer = ask(subject, *problem.get());
  if (answer.report.supported) throw Failure(std::string("supports takes ") + what + ", which it cannot know");
  if (!has_reason(answer, ANYATTN_REASON_FEATURE_UNKNOWN)) {
    throw Failure(std::string("supports refuses ") + what + " without the reason FEATURE_UNKNOWN: " + answer.reasons[0].text());
  }
}

void unknown_feature(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.features[0] |= uint64_t{1} << 63;
  want_unknown(subject, problem, "feature bit 63");
}

void unknown_feature_word(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.edit().num_feature_words = 2;
  problem.features[1] = 1;
  want_unknown(subject, problem, "feature bit 64");
}

void zero_feature_word(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.edit().num_feature_words = 2;
  const SupportAnswer answer = ask(subject, *problem.get());
  if (!answer.report.supported) throw Failure("supports refuses a second feature word of 0: " + answer.reasons[0].text());
}

void same_answer_twice(const Subject& subject, const Case& c) {
  const Problem problem(smallest(subject, c, true), 0);
  const SupportAnswer first = ask(subject, *problem.get());
  const SupportAnswer second = ask(subject, *problem.get());
  // Both were zeroed as a whole before they were filled, padding too.
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
  if (std::memcmp(&first.report, &second.report, sizeof first.report) != 0 || first.reasons.size() != second.reasons.size()) {
    throw Failure("supports answers differently when asked twice");
  }
}

void null_error_is_accepted(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.features[0] |= uint64_t{1} << 63;
  problem.set_block_size(16);
  const Layout layout = Layout::simplest(*problem.get());
  anyattn_impl* impl = nullptr;
  const int32_t status =
      subject.backend.impl_create(subject.host->table(), &subject.facts, problem.get(), layout.spec(), &impl, nullptr);
  if (status != ANYATTN_OK) return;
  subject.backend.impl_destroy(impl);
  throw Failure("impl_create takes feature bit 63, which it cannot know");
}

void destroy_takes_null(const Subject& subject, const Case&) {
  subject.backend.metadata_destroy(nullptr);
  subject.backend.impl_destroy(nullptr);
}

template <class T>
const T* garbage() {
  return reinterpret_cast<const T*>(uintptr_t{8});  // NOLINT(performance-no-int-to-ptr): whoever follows it crashes
}

// A backend with a small batch ready to run, and the arguments of its calls.
class Ready {
 public:
  Ready(const Subject& subject, const Case& c)
      : case_(smallest(subject, c, true)),
        session(subject, case_, 0),
        memory_(2, session.layout().spec()->block_bytes, {}),
        batch_(case_, session.limits(), false, true),
        mla_(is_mla(case_)),
        q_("q", case_.dtype, 1, {2, mla_ ? 512 : 64}),
        q_pe_("q_pe", case_.dtype, 1, {2, 64}),
        out_("out", case_.dtype, 1, {2, mla_ ? 512 : 64}),
        lse_("lse", ANYATTN_DTYPE_FLOAT32, 1, {2}),
        k_("k", case_.dtype, 1, mla_ ? std::vector<int64_t>{512} : std::vector<int64_t>{1, 64}),
        v_("v", case_.dtype, 1, mla_ ? std::vector<int64_t>{64} : std::vector<int64_t>{1, 64}),
        slots_("slot_mapping", ANYATTN_DTYPE_INT64, 1, {}) {
    batch_.set_table({{1}}, session.limits());
    session.update(batch_.get());
    q_.write(std::vector<float>(mla_ ? 1024 : 128, 0.5f));
    q_pe_.write(std::vector<float>(128, 0.5f));
    k_.write(std::vector<float>(mla_ ? 512 : 64, 0.5f));
    v_.write(std::vector<float>(64, 0.5f));
    slots_.write_raw(std::vector<int64_t>{16});
    cache = {.struct_size = ANYATTN_CACHE_SIZE,
             .reserved = 0,
             .base = memory_.lent(),
             .block_stride_bytes = memory_.stride(),
             .num_blocks = memory_.num_blocks(),
             .spec = session.layout().spec()};
  }

  const anyattn_batch& batch() const { return batch_.get(); }

  // `edit` makes the arguments wrong; the status must say so.
  template <class Edit>
  void want_forward_refused(const char* what, Edit&& edit) {
    ErrorText error;
    const int32_t status = forward(&error, edit);
    error.expect_refused(status, what);
  }

  void want_forward_ok() {
    ErrorText error;
    const int32_t status = forward(&error, [](auto*, anyattn_tensor*) {});
    error.expect_ok(status, mla_ ? "forward_mqa" : "forward");
  }

  template <class Edit>
  void want_update_refused(const char* what, Edit&& edit) {
    anyattn_kv_cache_update_args args{};
    args.struct_size = ANYATTN_KV_CACHE_UPDATE_ARGS_SIZE;
    (mla_ ? args.kv_c : args.k) = k_.view();
    (mla_ ? args.k_pe : args.v) = v_.view();
    args.slot_mapping = slots_.view();
    args.cache = &cache;
    edit(&args);
    ErrorText error;
    const int32_t status = session.subject().backend.kv_cache_update(session.impl(), &args, error.get());
    error.expect_refused(status, what);
    if (status != ANYATTN_INVALID_ARGUMENT)
      throw Failure(text("%s answers status %d; INVALID_ARGUMENT is right", what, status));
  }

 private:
  template <class Edit>
  int32_t forward(ErrorText* error, Edit&& edit) {
    const auto& backend = session.subject().backend;
    if (mla_) {
      anyattn_mqa_args args{};
      args.struct_size = ANYATTN_MQA_ARGS_SIZE;
      fill(&args);
      args.q_latent = q_.view();
      args.q_pe = q_pe_.view();
      edit(&args, &args.q_latent);
      return backend.forward_mqa(session.impl(), session.metadata(), &args, error->get());
    }
    anyattn_forward_args args{};
    args.struct_size = ANYATTN_FORWARD_ARGS_SIZE;
    fill(&args);
    args.q = q_.view();
    edit(&args, &args.q);
    return backend.forward(session.impl(), session.metadata(), &args, error->get());
  }

  template <class Args>
  void fill(Args* args) {
    args->lse_base = ANYATTN_LSE_NATURAL;
    args->softmax_scale = 0.125;
    args->cache = &cache;
    args->out = out_.view();
    args->lse = lse_.view();
    args->scratch = session.scratch();
  }

  Case case_;

 public:
  Session session;
  anyattn_cache cache{};

 private:
  CacheMemory memory_;
  Batch batch_;
  bool mla_;
  Tensor q_, q_pe_, out_, lse_, k_, v_, slots_;
};

void absent_slot_mapping(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_update_refused("kv_cache_update without slot_mapping",
                            [](anyattn_kv_cache_update_args* args) { args->slot_mapping = {}; });
}

void update_without_cache(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_update_refused("kv_cache_update without a cache",
                            [](anyattn_kv_cache_update_args* args) { args->cache = nullptr; });
}

void forward_without_cache(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_forward_refused("a call without a cache", [](auto* args, anyattn_tensor*) { args->cache = nullptr; });
}

void forward_without_query(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_forward_refused("a call without q", [](auto*, anyattn_tensor* q) { *q = {}; });
}

void foreign_spec(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  anyattn_kv_cache_spec other = *ready.session.layout().spec();
  other.digest ^= 1;
  anyattn_cache cache = ready.cache;
  cache.spec = &other;
  ready.want_forward_refused("a call with a cache of another spec", [&](auto* args, anyattn_tensor*) { args->cache = &cache; });
}

void unknown_lse_base(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_forward_refused("a call with lse_base 4", [](auto* args, anyattn_tensor*) { args->lse_base = 4; });
}

void query_of_another_dtype(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_forward_refused("a call with an int32 q", [](auto*, anyattn_tensor* q) {
    q->dtype_code = 0;
    q->dtype_bits = 32;
  });
}

void misaligned_query(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  ready.want_forward_refused("a call with q off its 16 bytes",
                             [](auto*, anyattn_tensor* q) { q->data = static_cast<char*>(q->data) + 4; });
}

// Written by a host that ends before the host copies: what stands behind is garbage.
void older_batch(const Subject& subject, const Case& c) {
  Ready ready(subject, c);
  anyattn_batch batch = ready.batch();
  if (ready.session.report().needs_host_lengths) throw NotOffered("reads the host copies, which an older batch lacks");
  batch.struct_size = ANYATTN_END_OFFSET(anyattn_batch, key_start_loc);
  batch.query_start_loc_host = batch.seq_lens_host = batch.mm_prefix_start_loc = batch.mm_prefix_ranges = garbage<int32_t>();
  batch.causal = garbage<uint8_t>();
  ready.session.update(batch);
  ready.want_forward_ok();
}

void older_problem(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.edit().struct_size = ANYATTN_END_OFFSET(anyattn_problem, v_head_dim);
  problem.edit().window_left = problem.edit().window_right = -77;
  problem.edit().logits_soft_cap = -1.0;
  const SupportAnswer answer = ask(subject, *problem.get());
  if (!answer.report.supported) throw Failure("supports reads behind the end of an older problem: " + answer.reasons[0].text());
}

void newer_batch(const Subject& subject, const Case& c) {
  struct Newer {
    anyattn_batch known;
    const void* unknown;
  };
  Ready ready(subject, c);
  Newer newer{ready.batch(), garbage<void>()};
  newer.known.struct_size = sizeof newer;
  ready.session.update(newer.known);
  ready.want_forward_ok();
}

// Names that came into the world after the plugin: refused with the field's reason, never followed.
void unknown_names(const Subject& subject, const Case& c) {
  Problem problem(smallest(subject, c, false), 0);
  problem.edit().kv_cache_dtype = "format_of_tomorrow";
  const SupportAnswer format = ask(subject, *problem.get());
  if (format.report.supported) throw Failure("supports takes kv_cache_dtype format_of_tomorrow, which it cannot know");
  if (!has_reason(format, ANYATTN_REASON_KV_CACHE_DTYPE))
    throw Failure("supports refuses an unknown kv_cache_dtype without the reason KV_CACHE_DTYPE: " + format.reasons[0].text());
  Problem dtype(smallest(subject, c, false), 0);
  dtype.edit().q_dtype = ANYATTN_DTYPE(250, 16);
  if (ask(subject, *dtype.get()).report.supported) throw Failure("supports takes q_dtype (250, 16), which it cannot know");
}

// A host that lends the least: the answers stay right.
void bare_host(const Subject& subject, const Case& c) {
  const std::unique_ptr<Host> host = Host::bare();
  Subject bare = subject;
  bare.host = host.get();
  if (!subject.device) {  // those of a device are its provider's
    bare.facts = {};
    bare.facts.struct_size = ANYATTN_DEVICE_FACTS_SIZE;
    bare.facts.device_kind = ANYATTN_DEVICE_CPU;
    bare.facts.num_multiprocessors = bare.facts.warp_size = 1;
    bare.facts.features = ANYATTN_DEVICE_HAS_HOST_MEMORY;
    bare.facts.architecture = bare.facts.name = "cpu";
  }
  CaseResult result;
  const Case small = smallest(bare, c, true);
  if (subject.backend.forward) {
    run_plain(bare, small, &result);
  } else {
    run_mla_decode(bare, small, &result);
  }
}

struct Rule {
  const char* name;
  void (*run)(const Subject&, const Case&);
};

constexpr Rule kRules[] = {
    {"unknown_feature", unknown_feature},
    {"unknown_feature_word", unknown_feature_word},
    {"zero_feature_word", zero_feature_word},
    {"same_answer_twice", same_answer_twice},
    {"null_error_is_accepted", null_error_is_accepted},
    {"destroy_takes_null", destroy_takes_null},
    {"absent_slot_mapping", absent_slot_mapping},
    {"update_without_cache", update_without_cache},
    {"forward_without_cache", forward_without_cache},
    {"forward_without_query", forward_without_query},
    {"foreign_spec", foreign_spec},
    {"unknown_lse_base", unknown_lse_base},
    {"query_of_another_dtype", query_of_another_dtype},
    {"misaligned_query", misaligned_query},
    {"older_batch", older_batch},
    {"older_problem", older_problem},
    {"newer_batch", newer_batch},
    {"unknown_names", unknown_names},
    {"bare_host", bare_host},
};

}  // namespace

std::vector<std::string> contract_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : kRules) names.emplace_back(rule.name);
  return names;
}

void run_contract(const Subject& subject, const Case& c) {
  for (const Rule& rule : kRules) {
    if (c.check == rule.name) return rule.run(subject, c);
  }
  throw CaseError("case: check '" + c.check + "' is unknown");
}

}  // namespace anyattn::conformance
