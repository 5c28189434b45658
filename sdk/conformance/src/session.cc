// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>

#include "failure.h"

namespace anyattn::conformance {
namespace {

std::string or_empty(const char* words) { return words ? words : ""; }

// An unknown level is read as the next lower known one.
uint32_t known_graph_level(uint32_t level) {
  for (const uint32_t known : {ANYATTN_GRAPH_ALWAYS, ANYATTN_GRAPH_UNIFORM_BATCH, ANYATTN_GRAPH_SINGLE_TOKEN_DECODE})
    if (level >= known) return known;
  return ANYATTN_GRAPH_NEVER;
}

void check_answer(const SupportAnswer& answer, const anyattn_problem& problem) {
  const anyattn_support_report& report = answer.report;
  if (!report.supported) {
    if (answer.reasons.empty()) throw Failure("supports says no without a reason");
    for (const Reason& reason : answer.reasons) {
      if (reason.id == 0 || reason.field.empty()) throw Failure("supports says no with a reason that has no id or no field");
    }
    return;
  }
  if (!answer.reasons.empty()) throw Failure("supports says yes and gives the reason '" + answer.reasons[0].text() + "'");
  const bool paged = problem.key_source == ANYATTN_KEYS_PAGED;
  if (paged && report.block_size == 0) throw Failure("supports names no block_size for a paged problem");
  if (paged && problem.block_size > 0 && report.block_size != problem.block_size) {
    throw Failure(text("supports was asked for block_size %u and reports %u", problem.block_size, report.block_size));
  }
  if (report.query_lengths < ANYATTN_QUERY_SINGLE || report.query_lengths > ANYATTN_QUERY_ANY) {
    throw Failure(text("supports reports query_lengths %u", report.query_lengths));
  }
  const bool lse = anyattn_problem_has(&problem, ANYATTN_FEATURE_LSE) != 0;
  if (lse != (report.lse_bases != 0))
    throw Failure(text("supports reports lse_bases %u %s the LSE feature", report.lse_bases, lse ? "with" : "without"));
}

}  // namespace

SupportAnswer ask(const Subject& subject, const anyattn_problem& problem) {
  SupportAnswer answer;
  const anyattn_reason_sink sink{
      .struct_size = ANYATTN_REASON_SINK_SIZE,
      .reserved = 0,
      .context = &answer.reasons,
      .add = [](void* context, const anyattn_reason* r) {
        static_cast<std::vector<Reason>*>(context)->push_back(
            {r->id, or_empty(r->field), or_empty(r->wanted), or_empty(r->allowed), or_empty(r->hint)});
      }};
  answer.report.struct_size = ANYATTN_SUPPORT_REPORT_SIZE;
  ErrorText error;
  const int32_t status =
      subject.backend.supports(subject.host->table(), &subject.facts, &problem, &sink, &answer.report, error.get());
  error.expect_ok(status, "supports");
  check_answer(answer, problem);
  return answer;
}

Session::Session(const Subject& subject, const Case& c, uint32_t rank) : subject_(subject), problem_(c, rank) {
  answer_ = ask(subject_, *problem_.get());
  if (!answer_.report.supported) {
    refuse_again();
    throw Refused(answer_.reasons);
  }
  if (c.lse_base != 0 && !(answer_.report.lse_bases & c.lse_base)) throw NotOffered("the report does not list this LSE base");
  const bool single = answer_.report.query_lengths == ANYATTN_QUERY_SINGLE;
  if (single && std::any_of(c.lens.begin(), c.lens.end(), [](const RequestLens& lens) { return lens.query_len > 1; })) {
    throw NotOffered("the report takes one row a request only");
  }
  try {
    create(c, rank);
  } catch (...) {
    subject_.backend.metadata_destroy(step_.metadata);
    subject_.backend.impl_destroy(impl_);
    throw;
  }
}

Session::~Session() {
  subject_.backend.metadata_destroy(other_.metadata);
  subject_.backend.metadata_destroy(step_.metadata);
  subject_.backend.impl_destroy(impl_);
}

void Session::create(const Case& c, uint32_t rank) {
  const anyattn_backend& backend = subject_.backend;
  if (is_mla(c) != (backend.forward == nullptr)) {
    throw Failure(is_mla(c) ? "takes an MLA problem but has no forward_mqa" : "takes a plain problem but has no forward");
  }
  if (c.kind != Kind::kRagged) {
    if (!backend.kv_cache_spec || !backend.kv_cache_update)
      throw Failure("takes a paged problem without kv_cache_spec and kv_cache_update");
    problem_.set_block_size(answer_.report.block_size);
    auto layouts = accepted_layouts(backend, subject_.host->table(), subject_.facts, *problem_.get());
    const auto at =
        std::find_if(layouts.begin(), layouts.end(), [&](const Layout& l) { return c.layout.empty() || l.name() == c.layout; });
    if (at == layouts.end()) throw NotOffered("no accepted spec is named " + c.layout);
    layout_ = std::move(*at);
  }
  if ((features_of(c, rank) & (uint64_t{1} << ANYATTN_FEATURE_LSE)) && !backend.merge_states) {
    throw Failure("takes the LSE feature without merge_states");
  }
  limits_ = limits_of(c, block_size());

  ErrorText error;
  error.expect_ok(backend.impl_create(subject_.host->table(), &subject_.facts, problem_.get(),
                                      layout_ ? layout_->spec() : nullptr, &impl_, error.get()),
                  "impl_create");
  if (!impl_) throw Failure("impl_create answers OK and gives no impl");
  memory_.struct_size = ANYATTN_MEMORY_SIZE;
  error.expect_ok(backend.memory(impl_, &limits_, &memory_, error.get()), "memory");
  scratch_ = Block("scratch", memory_.scratch_bytes, Fill::kNan);
  uint32_t level = 0;
  error.expect_ok(backend.warmup(impl_, &limits_, nullptr, scratch_.lent(), &level, error.get()), "warmup");
  scratch_.check();
  if (c.graph_level >= 0 && level < known_graph_level(static_cast<uint32_t>(c.graph_level)))
    throw Failure(text("warmup reaches graph level %u; supports took %d", level, c.graph_level));
  mode_ = c.mode;
  create_step(&step_);
}

void Session::create_step(Step* step) {
  step->persistent = Block("persistent", memory_.persistent_bytes, Fill::kZero);
  upload_all();
  step->pinned = Block("pinned", memory_.pinned_bytes, Fill::kZero, Side::kHost);
  ErrorText error;
  const int32_t status = subject_.backend.metadata_create(impl_, &limits_, mode_, step->persistent.lent(), step->pinned.data(),
                                                          &step->metadata, error.get());
  const bool no_graphs = mode_ == ANYATTN_METADATA_GRAPH_CAPTURE && answer_.report.graph_level == ANYATTN_GRAPH_NEVER;
  if (no_graphs && status == ANYATTN_UNSUPPORTED) throw NotOffered("no graph is ever captured");
  error.expect_ok(status, "metadata_create");
  if (!step->metadata) throw Failure("metadata_create answers OK and gives no metadata");
}

// "No" must be true: with the simplest layout, impl_create has to refuse as well.
void Session::refuse_again() {
  std::optional<Layout> layout;
  const bool paged = problem_.get()->key_source == ANYATTN_KEYS_PAGED;
  if (paged) {
    layout = Layout::simplest(*problem_.get());
    problem_.set_block_size(layout->block_size());
  }
  ErrorText error;
  anyattn_impl* impl = nullptr;
  const int32_t status = subject_.backend.impl_create(subject_.host->table(), &subject_.facts, problem_.get(),
                                                      layout ? layout->spec() : nullptr, &impl, error.get());
  if (status == ANYATTN_OK) {
    subject_.backend.impl_destroy(impl);
    throw Failure("supports refuses this problem ('" + answer_.reasons[0].text() + "') but impl_create takes it");
  }
  error.expect_refused(status, "impl_create of a refused problem");
}

void* Session::scratch() {
  scratch_.refill(Fill::kNan);
  return scratch_.lent();
}

void Session::update(const anyattn_batch& batch) {
  hot("metadata_update",
      [&](anyattn_error* error) { return subject_.backend.metadata_update(step_.metadata, &batch, nullptr, error); });
}

void Session::update_through(const anyattn_batch& other, const anyattn_batch& wanted) {
  const anyattn_backend& backend = subject_.backend;
  if (!backend.update_block_table) throw NotOffered("no slot update_block_table; the host updates the metadata instead");
  if (!other_.metadata) create_step(&other_);
  hot("metadata_update",
      [&](anyattn_error* error) { return backend.metadata_update(other_.metadata, &other, nullptr, error); });
  hot("update_block_table", [&](anyattn_error* error) {
    return backend.update_block_table(step_.metadata, other_.metadata, wanted.block_table, wanted.block_table_stride, nullptr,
                                      error);
  });
}

void Session::check_hot(const char* slot, size_t log_lines, const HeapUse& use) const {
  const auto& log = subject_.host->log();
  if (log.size() > log_lines) throw Failure(std::string(slot) + " logs on the hot path: " + log.back());
  // Drivers allocate for themselves at a launch.
  if (use.blocks > 0 && !subject_.device)
    throw Failure(text("%s allocates on the heap after warm-up: %llu blocks, %llu bytes, in all threads", slot,
                       static_cast<unsigned long long>(use.blocks), static_cast<unsigned long long>(use.bytes)));
  if (subject_.host->nested()) throw Failure(std::string(slot) + " calls parallel_for inside parallel_for");
  scratch_.check();
  for (const Step* step : {&step_, &other_}) {
    step->persistent.check();
    step->pinned.check();
  }
}

}  // namespace anyattn::conformance
