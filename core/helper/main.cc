// SPDX-License-Identifier: Apache-2.0
// anyattn-probe PATH CONTENT TIMEOUT_MS [KEY VALUE]...: opens a plugin in a child of its own and reports on descriptor 3 what
// came of it. Started by core/probe; no tool for people: `anyattn verdicts` is.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "helper/trial.h"

namespace {

using anyattn::probe::Outcome;
using anyattn::probe::Question;
using anyattn::probe::Verdict;
using Clock = std::chrono::steady_clock;

void write_all(int descriptor, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = ::write(descriptor, text.data() + at, text.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    at += static_cast<size_t>(done);
  }
}

// Lines "stage NAME", then the verdict.
[[noreturn]] void be_child(const Question& question, int lines, int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close(anyattn::probe::kReportDescriptor);
  const auto on_stage = [lines](const std::string& stage) { write_all(lines, "stage " + stage + "\n"); };
  write_all(lines, to_text(anyattn::helper::try_plugin(question, on_stage)) + "\n");
  ::_exit(0);  // without the plugin's exit handlers: the engine never runs them before its own end
}

// What came through one pipe so far; only the end of it is of interest.
struct Heard {
  int descriptor = -1;
  std::string text;
  bool open = true;

  void listen() {
    std::array<char, 4096> part{};
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
      open = false;
      return;
    }
    text.append(part.data(), static_cast<size_t>(got));
    constexpr size_t kKept = 32 << 10;
    if (text.size() > 2 * kKept) text.erase(0, text.size() - kKept);
  }
  std::string last_line() const {
    const size_t end = text.find_last_not_of("\n\r \t");
    if (end == std::string::npos) return {};
    const size_t before = text.find_last_of("\n\r", end);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    std::string line = text.substr(begin, std::min<size_t>(end + 1 - begin, 200));
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return line;
  }
};

std::string last_stage(const std::string& lines) {
  const size_t at = lines.rfind("stage ");
  if (at == std::string::npos) return "open";
  return lines.substr(at + 6, lines.find('\n', at) - at - 6);
}

Verdict watch(pid_t child, Heard lines, Heard output, const Question& question) {
  const auto begin = Clock::now();
  const auto deadline = begin + std::chrono::milliseconds(question.timeout_ms);
  int status = 0;
  bool ended = false;
  bool reported = false;
  while (!reported && !ended && Clock::now() < deadline) {
    std::array<pollfd, 2> waits{pollfd{lines.open ? lines.descriptor : -1, POLLIN, 0},
                                pollfd{output.open ? output.descriptor : -1, POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    // A grandchild may hold the pipes open after the child's end, so the child is looked at from time to time.
    ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left, 1, lines.open ? 20 : 1)));
    if (waits[1].revents != 0) output.listen();
    if (waits[0].revents != 0) lines.listen();
    reported = lines.text.find("\n{") != std::string::npos && lines.text.ends_with("}\n");
    ended = !reported && ::waitpid(child, &status, WNOHANG) == child;
  }
  if (ended && lines.open) lines.listen();
  if (ended && output.open) output.listen();
  ::kill(-child, SIGKILL);
  Verdict verdict;
  const size_t at = lines.text.rfind("\n{");
  if (const auto result = at == std::string::npos ? std::nullopt : anyattn::probe::from_text(lines.text.substr(at + 1))) {
    verdict = *result;
  } else {
    verdict.stage = last_stage(lines.text);
    verdict.said = output.last_line();
    if (!ended) {
      verdict.outcome = Outcome::kHang;
      verdict.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      verdict.transient = true;
    } else if (WIFSIGNALED(status)) {
      verdict.outcome = Outcome::kCrash;
      verdict.signal = WTERMSIG(status);
      verdict.transient =
          verdict.signal == SIGKILL || verdict.signal == SIGTERM;  // somebody else's doing: no memory, a shutdown
    } else {
      verdict.outcome = Outcome::kExit;
      verdict.exit_code = WEXITSTATUS(status);
    }
  }
  // A child that cannot be killed waits for a driver; it is left alone.
  for (int i = 0; !ended && i < 50 && ::waitpid(child, &status, WNOHANG) == 0; ++i) ::usleep(i < 10 ? 200 : 10000);
  return verdict;
}

Question question_of(int count, char** words) {
  Question question;
  question.path = words[1];
  question.content = words[2];
  question.timeout_ms = static_cast<uint32_t>(std::strtoul(words[3], nullptr, 10));
  for (int i = 4; i + 1 < count; i += 2) question.options.emplace_back(words[i], words[i + 1]);
  return question;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const Question question = question_of(count, words);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  std::array<int, 2> lines{};
  std::array<int, 2> output{};
  if (::pipe2(lines.data(), O_CLOEXEC) != 0 || ::pipe2(output.data(), O_CLOEXEC) != 0) return 2;
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) be_child(question, lines[1], output[1]);
  ::setpgid(child, child);
  for (const int reader : {lines[0], output[0]}) ::fcntl(reader, F_SETFL, O_NONBLOCK);
  ::close(lines[1]);
  ::close(output[1]);
  write_all(anyattn::probe::kReportDescriptor, to_text(watch(child, {lines[0], "", true}, {output[0], "", true}, question)));
  return 0;
}
