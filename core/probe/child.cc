// SPDX-License-Identifier: Apache-2.0
#include "probe/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace anyattn::probe {
namespace {

using Clock = std::chrono::steady_clock;

// The helper ends its child at the deadline and says so; this is for a helper that does not.
constexpr std::chrono::milliseconds kGrace{2000};
constexpr size_t kMaxReport = 64 << 10;

Verdict no_probe(std::string reason) {
  Verdict verdict;
  verdict.outcome = Outcome::kNoProbe;
  verdict.reason = std::move(reason);
  verdict.remedy = "install the library whole, or set probe.enabled: false and do without the trial";
  verdict.transient = true;
  return verdict;
}

std::string system_text(int error) { return std::generic_category().message(error); }

class Pipe {
 public:
  Pipe() { ok_ = ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    if (ok_) ::close(ends_[0]);
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool ok() const { return ok_; }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ok_ && ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool ok_ = false;
};

// A child with nothing of ours: own process group, default signals, no descriptor but the report.
int spawn(pid_t& child, const std::string& helper, const std::vector<std::string>& words, int report) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, report, kReportDescriptor);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kReportDescriptor + 1);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error = ::posix_spawn(&child, helper.c_str(), &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

// What was written until the end, the limit or the deadline.
std::string read_report(int descriptor, Clock::time_point deadline, bool& late) {
  std::string report;
  std::array<char, 4096> part{};
  while (report.size() < kMaxReport) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{descriptor, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      late = true;
      break;
    }
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    report.append(part.data(), static_cast<size_t>(got));
  }
  return report;
}

}  // namespace

Verdict ask_child(const std::string& helper, const Question& question) {
  const auto begin = Clock::now();
  if (::access(helper.c_str(), X_OK) != 0) {
    return no_probe(fmt::format("the probe program {} cannot be run: {}", helper, system_text(errno)));
  }
  Pipe pipe;
  if (!pipe.ok()) return no_probe(fmt::format("no pipe to the probe program: {}", system_text(errno)));
  std::vector<std::string> words = {helper, question.path, question.content, std::to_string(question.timeout_ms)};
  for (const auto& [key, value] : question.options) {
    words.push_back(key);
    words.push_back(value);
  }
  pid_t child = -1;
  if (const int error = spawn(child, helper, words, pipe.writer()); error != 0) {
    return no_probe(fmt::format("the probe program {} does not start: {}", helper, system_text(error)));
  }
  pipe.close_writer();
  bool late = false;
  const std::string report = read_report(pipe.reader(), begin + std::chrono::milliseconds(question.timeout_ms) + kGrace, late);
  // Its work is done or will never be. A SIGCHLD handler of the engine may have taken the status; nothing here needs it.
  ::kill(-child, SIGKILL);
  ::waitpid(child, nullptr, late ? WNOHANG : 0);
  if (std::optional<Verdict> verdict = from_text(report)) return *verdict;
  if (late) {
    Verdict verdict;
    verdict.outcome = Outcome::kHang;
    verdict.stage = "open";
    verdict.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    verdict.transient = true;
    return verdict;
  }
  return no_probe(fmt::format("the probe program {} ended without a verdict", helper));
}

}  // namespace anyattn::probe
