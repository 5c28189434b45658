// SPDX-License-Identifier: Apache-2.0
// A backend made ready for the problem of one case: asked, created, given memory, warmed up. Included by the kit's runs.
// Every call is checked: status, canaries, silence of the log on the hot path.
#ifndef ANYATTN_CONFORMANCE_SESSION_H
#define ANYATTN_CONFORMANCE_SESSION_H

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "anyattn/backend.h"
#include "anyattn/conformance/conformance.h"
#include "host.h"
#include "layout.h"
#include "problem.h"
#include "tensor.h"

namespace anyattn::conformance {

// What is tested, and with what.
struct Subject {
  Host* host = nullptr;
  anyattn_backend backend{};
  anyattn_device_facts facts{};
  std::string model_file;
};

// The backend says no, with reasons.
struct Refused : std::runtime_error {
  explicit Refused(std::vector<Reason> why) : std::runtime_error("refused"), reasons(std::move(why)) {}
  std::vector<Reason> reasons;
};

struct SupportAnswer {
  anyattn_support_report report{};
  std::vector<Reason> reasons;
};

// Calls supports. Throws Failure where it fails or its answer contradicts itself.
SupportAnswer ask(const Subject& subject, const anyattn_problem& problem);

class Session {
 public:
  // Throws Refused, NotOffered or Failure. A refusal is put to the test: impl_create must refuse too.
  Session(const Subject& subject, const Case& c, uint32_t rank);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Subject& subject() const { return subject_; }
  const anyattn_support_report& report() const { return answer_.report; }
  const Layout& layout() const { return *layout_; }
  const anyattn_limits& limits() const { return limits_; }
  anyattn_impl* impl() const { return impl_; }
  const anyattn_metadata* metadata() const { return metadata_; }
  uint32_t block_size() const { return layout_ ? layout_->block_size() : 0; }

  // Scratch, poisoned anew for each call.
  void* scratch();
  void update(const anyattn_batch& batch);
  // Runs one hot call `slot`; throws Failure unless it answers OK, stays silent and keeps to its memory.
  template <class Call>
  void hot(const char* slot, Call&& call) {
    const size_t lines = subject_.host->log().size();
    ErrorText error;
    const int32_t status = call(error.get());
    error.expect_ok(status, slot);
    check_hot(slot, lines);
  }

 private:
  void create(const Case& c, uint32_t rank);
  void refuse_again();
  void check_hot(const char* slot, size_t log_lines) const;

  Subject subject_;
  Problem problem_;
  SupportAnswer answer_;
  std::optional<Layout> layout_;
  anyattn_limits limits_{};
  anyattn_impl* impl_ = nullptr;
  anyattn_metadata* metadata_ = nullptr;
  Block scratch_, persistent_, pinned_;
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_SESSION_H
