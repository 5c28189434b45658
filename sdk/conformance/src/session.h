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
#include "heap_watch.h"
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
  Device* device = nullptr;  // null: the CPU
};

// Where the device has none, cases of captured graphs are not offered, and a must-pass list may have them all the same.
inline bool captures_graphs(const Subject& subject) {
  return subject.device && subject.device->table().graph_capture_begin != nullptr;
}

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
  const anyattn_metadata* metadata() const { return step_.metadata; }
  uint32_t block_size() const { return layout_ ? layout_->block_size() : 0; }

  // Scratch, poisoned anew for each call.
  void* scratch();
  void update(const anyattn_batch& batch);
  // The same through update_block_table: `other` differs from the wanted batch in its table only. Throws NotOffered where the
  // backend has no such slot.
  void update_through(const anyattn_batch& other, const anyattn_batch& wanted);
  // Runs one hot call `slot`; throws Failure unless it answers OK, stays silent and keeps to its memory.
  template <class Call>
  void hot(const char* slot, Call&& call) {
    const size_t lines = subject_.host->log().size();
    ErrorText error;
    upload_all();
    HeapUse use;
    const int32_t status = [&] {
      const HeapWatch watch;
      const int32_t answer = call(error.get());
      use = watch.use();
      return answer;
    }();
    error.expect_ok(status, slot);
    download_all();
    check_hot(slot, lines, use);
  }

 private:
  // One metadata and the memory it owns.
  struct Step {
    Block persistent, pinned;
    anyattn_metadata* metadata = nullptr;
  };

  void create(const Case& c, uint32_t rank);
  void create_step(Step* step);
  void refuse_again();
  void check_hot(const char* slot, size_t log_lines, const HeapUse& use) const;

  Subject subject_;
  Problem problem_;
  SupportAnswer answer_;
  std::optional<Layout> layout_;
  anyattn_limits limits_{};
  anyattn_impl* impl_ = nullptr;
  anyattn_memory memory_{};
  uint32_t mode_ = ANYATTN_METADATA_NORMAL;
  Block scratch_;
  Step step_, other_;
};

}  // namespace anyattn::conformance

#endif  // ANYATTN_CONFORMANCE_SESSION_H
