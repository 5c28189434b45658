// SPDX-License-Identifier: Apache-2.0
#include "run_replay.h"

#include "failure.h"
#include "plain_call.h"
#include "random_batch.h"
#include "replay_arena.h"

namespace anyattn::conformance {
namespace {

// A stream and what was captured on it.
class Capture {
 public:
  explicit Capture(const Device& device) : device_(device) {
    ErrorText error;
    error.expect_ok(device_.table().stream_create(device_.ordinal(), &stream_, error.get()), "stream_create");
  }
  ~Capture() {
    if (graph_) device_.table().graph_destroy(device_.ordinal(), graph_);
    device_.table().stream_destroy(device_.ordinal(), stream_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  void* stream() const { return stream_; }
  template <class Call>
  void record(Call&& call) {
    const auto& table = device_.table();
    ErrorText error, of_call;
    error.expect_ok(table.graph_capture_begin(device_.ordinal(), stream_, error.get()), "graph_capture_begin");
    const int32_t status = call(of_call.get());
    const int32_t end = table.graph_capture_end(device_.ordinal(), stream_, &graph_, error.get());
    of_call.expect_ok(status, "forward under capture");
    error.expect_ok(end, "graph_capture_end");
  }
  void replay() const {
    ErrorText error;
    error.expect_ok(device_.table().graph_launch(device_.ordinal(), graph_, stream_, error.get()), "graph_launch");
    error.expect_ok(device_.table().stream_synchronize(device_.ordinal(), stream_, error.get()), "the replay");
  }

 private:
  const Device& device_;
  void* stream_ = nullptr;
  void* graph_ = nullptr;
};

}  // namespace

void run_replay(const Subject& subject, const Case& c, CaseResult* result) {
  if (!captures_graphs(subject)) throw NotOffered("the device captures no graphs");
  Session session(subject, c, 0);
  const auto arena = make_arena(session, c);
  Capture capture(*subject.device);
  SplitMix64 generator(c.seeds[0]);
  for (int i = 0; i < c.random; ++i) {
    const Case batch = random_batch(c, i, &generator);
    const Reference reference = arena->fill(batch, 7 + static_cast<uint64_t>(i));
    session.update(arena->batch());
    void* scratch = session.scratch();
    arena->poison();
    upload_all();
    subject.device->wait();
    if (i == 0) capture.record([&](anyattn_error* error) { return arena->forward(scratch, capture.stream(), error); });
    capture.replay();
    download_all();
    try {
      judge(arena->read(), reference, base_of(c), out_dtype_of(c), "", result);
    } catch (const Failure& failure) {
      throw Failure(text("replay %d of %d, %s: ", i, c.random, case_text(batch).c_str()) + failure.what());
    }
  }
}

}  // namespace anyattn::conformance
