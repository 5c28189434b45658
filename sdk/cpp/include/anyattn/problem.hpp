// SPDX-License-Identifier: Apache-2.0
// What `supports` needs: feature bits with their names, and reasons that go to the host's sink.
// Included by plugins. Decides nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "anyattn/backend.h"
#include "anyattn/error.hpp"

namespace anyattn {

// The feature's word in texts, rules and reasons: "sparse_topk"; "feature_70" for a bit this header does not know.
inline std::string feature_name(uint32_t bit) {
  static constexpr const char* kNames[] = {"non_causal",
                                           "per_request_causal",
                                           "window",
                                           "soft_cap",
                                           "alibi",
                                           "alibi_sqrt",
                                           "alibi_symmetric",
                                           "sinks",
                                           "mm_prefix",
                                           "sparse_topk",
                                           "chunked_local",
                                           "cp_decode",
                                           "cp_prefill",
                                           "lse",
                                           "batch_invariant",
                                           "quantised_query",
                                           "kv_scales",
                                           "kv_scales_per_head",
                                           "out_scale",
                                           "out_block_scales",
                                           "mla",
                                           "kv_transfer",
                                           "graph"};
  static_assert(sizeof kNames / sizeof *kNames == ANYATTN_FEATURE_COUNT);
  return bit < ANYATTN_FEATURE_COUNT ? kNames[bit] : text("feature_", bit);
}

// Collects every reason of a "no" in the host's sink (which may be null).
class Reasons {
 public:
  explicit Reasons(const anyattn_reason_sink* sink) : sink_(sink) {}

  void add(uint32_t id, const std::string& field, const std::string& wanted, const std::string& allowed,
           const std::string& hint = {}) {
    ++count_;
    if (!sink_) return;
    const anyattn_reason reason{
        ANYATTN_REASON_SIZE, id, field.c_str(), wanted.c_str(), allowed.c_str(), hint.empty() ? nullptr : hint.c_str()};
    sink_->add(sink_->context, &reason);
  }
  uint32_t count() const { return count_; }

 private:
  const anyattn_reason_sink* sink_;
  uint32_t count_ = 0;
};

// Reasons as text, for calls that refuse with an error: "field=wanted (allowed: ...); ...", empty without reasons.
class ReasonText {
 public:
  const anyattn_reason_sink* sink() const { return &sink_; }
  const std::string& get() const { return text_; }
  ReasonText() = default;
  ReasonText(const ReasonText&) = delete;
  ReasonText& operator=(const ReasonText&) = delete;

 private:
  static void add(void* context, const anyattn_reason* reason) {
    auto& to = *static_cast<std::string*>(context);
    to += text(to.empty() ? "" : "; ", reason->field, "=", reason->wanted, " (allowed: ", reason->allowed, ")");
  }

  std::string text_;
  anyattn_reason_sink sink_{ANYATTN_REASON_SINK_SIZE, 0, &text_, add};
};

// report.kernels: which kernels calls would run, for people.
inline void say_kernels(std::string_view kernels, anyattn_support_report& report) {
  report.kernels[kernels.copy(report.kernels, sizeof report.kernels - 1)] = 0;
}

// Names every wanted feature outside `allowed` (bits of word 0): unknown bits as such, known ones as not done here.
inline void refuse_features(const anyattn_problem& problem, uint64_t allowed, Reasons& reasons) {
  for (uint32_t bit = 0; bit < problem.num_feature_words * 64u; ++bit) {
    if (!anyattn_problem_has(&problem, bit)) continue;
    if (bit >= ANYATTN_FEATURE_COUNT) {
      reasons.add(ANYATTN_REASON_FEATURE_UNKNOWN, feature_name(bit), "on", "off",
                  "this backend is older than the feature: use a newer version of it");
    } else if (((allowed >> bit) & 1u) == 0) {
      reasons.add(ANYATTN_REASON_FEATURE, feature_name(bit), "on", "off");
    }
  }
}

}  // namespace anyattn
