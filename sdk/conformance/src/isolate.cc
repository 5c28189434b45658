// SPDX-License-Identifier: Apache-2.0
// Cases in a child process: results come through a pipe, one record a case.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "failure.h"
#include "runner.h"

namespace anyattn::conformance {
namespace {

class Writer {
 public:
  void number(double value) { raw(&value, sizeof value); }
  void text(const std::string& value) {
    const auto size = static_cast<uint32_t>(value.size());
    raw(&size, sizeof size);
    raw(value.data(), value.size());
  }
  void raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  bool send(int fd) const {
    const auto size = static_cast<uint32_t>(bytes_.size());
    std::string whole(reinterpret_cast<const char*>(&size), sizeof size);
    whole += bytes_;
    for (size_t at = 0; at < whole.size();) {
      const ssize_t n = write(fd, whole.data() + at, whole.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}
  double number() {
    double value = 0;
    raw(&value, sizeof value);
    return value;
  }
  std::string text() {
    uint32_t size = 0;
    raw(&size, sizeof size);
    std::string value(bytes_, at_, size);
    at_ += size;
    return value;
  }

 private:
  void raw(void* into, size_t size) {
    if (at_ + size > bytes_.size()) throw std::runtime_error("a result record is cut short");
    std::memcpy(into, bytes_.data() + at_, size);
    at_ += size;
  }
  std::string bytes_;
  size_t at_ = 0;
};

bool send_result(int fd, const CaseResult& result) {
  Writer out;
  out.text(result.c.name);
  out.text(case_text(result.c));
  out.number(static_cast<double>(result.verdict));
  out.text(result.message);
  out.number(result.ratio_out);
  out.number(result.ratio_lse);
  out.number(result.max_score);
  out.number(result.lse_over_natural);
  out.number(static_cast<double>(result.hot_calls));
  out.number(result.milliseconds);
  out.number(static_cast<double>(result.reasons.size()));
  for (const Reason& reason : result.reasons) {
    out.number(reason.id);
    for (const std::string* word : {&reason.field, &reason.wanted, &reason.allowed, &reason.hint}) out.text(*word);
  }
  return out.send(fd);
}

CaseResult read_result(const std::string& bytes) {
  Reader in(bytes);
  CaseResult result;
  std::string name = in.text();
  result.c = parse_case(in.text());
  result.c.name = std::move(name);
  result.verdict = static_cast<Verdict>(static_cast<int>(in.number()));
  result.message = in.text();
  result.ratio_out = in.number();
  result.ratio_lse = in.number();
  result.max_score = in.number();
  result.lse_over_natural = in.number();
  result.hot_calls = static_cast<uint64_t>(in.number());
  result.milliseconds = in.number();
  result.reasons.resize(static_cast<size_t>(in.number()));
  for (Reason& reason : result.reasons) {
    reason.id = static_cast<uint32_t>(in.number());
    for (std::string* word : {&reason.field, &reason.wanted, &reason.allowed, &reason.hint}) *word = in.text();
  }
  return result;
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

Read read_record(int fd, std::string* bytes, int timeout_ms) {
  uint32_t size = 0;
  const Read head = read_bytes(fd, &size, sizeof size, timeout_ms);
  if (head != Read::kWhole) return head;
  bytes->resize(size);
  return read_bytes(fd, bytes->data(), size, timeout_ms);
}

}  // namespace

size_t run_child(const std::function<void(const Send&)>& work, size_t most, int timeout_ms,
                 const std::function<void(CaseResult)>& done, std::string* end) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("the kit cannot make a pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("the kit cannot start a child process");
  if (child == 0) {
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    for (int number : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTERM})
      signal(number, SIG_DFL);  // not the host program's handlers
    work([&](const CaseResult& result) { return send_result(ends[1], result); });
    _exit(0);
  }
  close(ends[1]);
  size_t count = 0;
  std::string bytes;
  Read state = Read::kWhole;
  while (count < most && (state = read_record(ends[0], &bytes, timeout_ms)) == Read::kWhole) {
    done(read_result(bytes));
    ++count;
  }
  if (state == Read::kLate) kill(child, SIGKILL);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (state == Read::kLate) {
    *end = text("did not end within %d ms", timeout_ms);
  } else if (WIFSIGNALED(status)) {
    *end = text("killed the process with signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0 || count < most) {
    *end = text("ended the process with status %d", WEXITSTATUS(status));
  }
  return count;
}

void run_isolated(const Subject& subject, const std::vector<Case>& cases, int timeout_ms,
                  const std::function<void(CaseResult)>& done) {
  for (size_t next = 0; next < cases.size();) {
    const auto work = [&](const Send& send) {
      for (size_t i = next; i < cases.size(); ++i)
        if (!send(run_case(subject, cases[i]))) return;
    };
    std::string end;
    next += run_child(work, cases.size() - next, timeout_ms, done, &end);
    if (next == cases.size()) return;
    CaseResult crashed;  // the case that was at work
    crashed.c = cases[next++];
    crashed.verdict = Verdict::kFailed;
    crashed.message = end;
    done(std::move(crashed));
  }
}

}  // namespace anyattn::conformance
