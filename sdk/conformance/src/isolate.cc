// SPDX-License-Identifier: Apache-2.0
// Cases in child processes: results come through a pipe, one record a case.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "failure.h"
#include "result_record.h"
#include "runner.h"

namespace anyattn::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using SendAt = std::function<bool(const CaseResult&, size_t index)>;

bool send(int fd, const std::string& record) {
  const auto size = static_cast<uint32_t>(record.size());
  std::string whole(reinterpret_cast<const char*>(&size), sizeof size);
  whole += record;
  for (size_t at = 0; at < whole.size();) {
    const ssize_t n = write(fd, whole.data() + at, whole.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

enum class Read { kWhole, kEnd, kLate };

Read read_bytes(int fd, void* into, size_t size, int timeout_ms) {
  auto* at = static_cast<char*>(into);
  while (size > 0) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Read::kLate;
    const ssize_t n = read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Read::kEnd;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return Read::kWhole;
}

// A process at work. Whoever leaves it early kills it.
class Child {
 public:
  explicit Child(const std::function<void(const SendAt&)>& work) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("the kit cannot make a pipe");
    pid_ = fork();
    if (pid_ < 0) {
      close(ends[0]);
      close(ends[1]);
      throw std::runtime_error("the kit cannot start a child process");
    }
    if (pid_ == 0) {
      close(ends[0]);
      signal(SIGPIPE, SIG_IGN);
      for (int number : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTERM})
        signal(number, SIG_DFL);  // not the host program's handlers
      work([&](const CaseResult& result, size_t index) { return send(ends[1], record_of(result, index)); });
      _exit(0);
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait_for();
  }

  int fd() const { return fd_; }

  // The next result; none: the child has ended, or none came in time.
  std::optional<CaseResult> next(int timeout_ms, size_t* index) {
    uint32_t size = 0;
    std::string bytes;
    Read state = read_bytes(fd_, &size, sizeof size, timeout_ms);
    if (state == Read::kWhole) {
      bytes.resize(size);
      state = read_bytes(fd_, bytes.data(), size, timeout_ms);
    }
    late_ = state == Read::kLate;
    if (state != Read::kWhole) return std::nullopt;
    return read_record(bytes, index);
  }

  // Waits for the end, which comes by force where the child is late; how it ended. Status 0 is for the caller to judge.
  std::string end(int timeout_ms) {
    if (late_) kill(pid_, SIGKILL);
    const int status = wait_for();
    if (late_) return text("did not end within %d ms", timeout_ms);
    if (WIFSIGNALED(status))
      return text("killed the process with signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return text("ended the process with status %d", WEXITSTATUS(status));
  }

 private:
  int wait_for() {
    if (pid_ <= 0) return 0;
    close(fd_);
    int status = 0;
    while (waitpid(std::exchange(pid_, -1), &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

  pid_t pid_ = -1;
  int fd_ = -1;
  bool late_ = false;
};

constexpr size_t kNothing = SIZE_MAX;

// In memory that the children share: which case is next, and which one each of them is at.
class Queue {
 public:
  Queue(size_t cases, size_t jobs, Clock::time_point until) : cases_(cases), until_(until), bytes_((1 + jobs) * sizeof(Slot)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("the kit has no memory to share with its child processes");
    slots_ = static_cast<Slot*>(memory);
    new (slots_) Slot(0);
    for (size_t i = 1; i <= jobs; ++i) new (slots_ + i) Slot(kNothing);
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() { munmap(slots_, bytes_); }

  // For job `job`; kNothing: none is left, or the time is over.
  size_t take(size_t job) {
    const size_t index = empty() ? kNothing : slots_[0].fetch_add(1);
    slots_[1 + job] = index < cases_ ? index : kNothing;
    return slots_[1 + job];
  }
  size_t at(size_t job) const { return slots_[1 + job]; }
  bool empty() const { return slots_[0] >= cases_ || Clock::now() >= until_; }

 private:
  using Slot = std::atomic<size_t>;
  static_assert(Slot::is_always_lock_free);  // else not between processes
  size_t cases_;
  Clock::time_point until_;
  size_t bytes_;
  Slot* slots_;
};

int milliseconds_until(Clock::time_point then) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

struct Job {
  std::optional<Child> child;
  Clock::time_point due;  // when its next result is late
};

// Waits until a job's child has something to say or is late.
void wait_for_any(const std::vector<Job>& jobs) {
  std::vector<pollfd> ends;
  int timeout = INT32_MAX;
  for (const Job& job : jobs) {
    if (!job.child) continue;
    ends.push_back({job.child->fd(), POLLIN, 0});
    timeout = std::min(timeout, milliseconds_until(job.due));
  }
  poll(ends.data(), ends.size(), timeout);
}

bool has_word(const Child& child) {
  pollfd end{child.fd(), POLLIN, 0};
  return poll(&end, 1, 0) > 0;
}

}  // namespace

std::string run_child(const std::function<void(const Send&)>& work, int timeout_ms,
                      const std::function<void(CaseResult)>& done) {
  Child child([&](const SendAt& send_at) { work([&](const CaseResult& result) { return send_at(result, 0); }); });
  size_t index = 0;
  while (std::optional<CaseResult> result = child.next(timeout_ms, &index)) done(std::move(*result));
  return child.end(timeout_ms);
}

void run_isolated(const Subject& subject, const std::vector<Case>& cases, const Isolation& how,
                  const std::function<void(size_t, CaseResult)>& done) {
  const auto until =
      how.within_s > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(how.within_s))
                       : Clock::time_point::max();
  const auto limit = std::chrono::milliseconds(how.timeout_ms);
  std::vector<Job> jobs(std::clamp<size_t>(static_cast<size_t>(std::max(how.jobs, 1)), 1, std::max<size_t>(cases.size(), 1)));
  Queue queue(cases.size(), jobs.size(), until);
  const auto start = [&](size_t number) {
    jobs[number].due = Clock::now() + limit;
    jobs[number].child.emplace([&, number](const SendAt& send_at) {
      for (size_t i = queue.take(number); i != kNothing; i = queue.take(number))
        if (!send_at(run_case(subject, cases[i]), i)) return;
    });
  };
  std::vector<bool> heard(cases.size(), false);
  const auto tell = [&](size_t index, CaseResult result) {
    heard[index] = true;
    done(index, std::move(result));
  };
  // A child that ended with cases left has failed the one it was at, or else the next; a new child goes on.
  const auto ended = [&](size_t number) {
    const std::string end = jobs[number].child->end(how.timeout_ms);
    jobs[number].child.reset();
    size_t at = queue.at(number);
    if (at == kNothing) return;
    if (heard[at]) at = queue.take(number);
    if (at == kNothing) return;
    CaseResult crashed;
    crashed.c = cases[at];
    crashed.verdict = Verdict::kFailed;
    crashed.message = end;
    tell(at, std::move(crashed));
    if (!queue.empty()) start(number);
  };
  for (size_t number = 0; number < jobs.size(); ++number)
    if (!queue.empty()) start(number);
  while (std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.child.has_value(); })) {
    wait_for_any(jobs);
    for (size_t number = 0; number < jobs.size(); ++number) {
      Job& job = jobs[number];
      if (!job.child || (!has_word(*job.child) && Clock::now() < job.due)) continue;
      size_t index = 0;
      if (std::optional<CaseResult> result = job.child->next(milliseconds_until(job.due), &index)) {
        job.due = Clock::now() + limit;
        if (index < cases.size()) tell(index, std::move(*result));
      } else {
        ended(number);
      }
    }
  }
}

}  // namespace anyattn::conformance
