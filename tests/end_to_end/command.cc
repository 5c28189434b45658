// SPDX-License-Identifier: Apache-2.0
#include "end_to_end/command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace anyattn::end_to_end {
namespace {

constexpr int kTimeoutMs = 60000;

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool ours = name.rfind("ANYATTN_", 0) == 0 || name == "NO_COLOR" || name == "COLUMNS";
    if (!ours && !variables.count(name)) entries.push_back(text);
  }
  for (const auto& [name, value] : variables) {
    if (!value.empty()) entries.push_back(std::string(name).append("=").append(value));
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> found;
  found.reserve(texts.size() + 1);
  for (std::string& text : texts) found.push_back(text.data());
  found.push_back(nullptr);
  return found;
}

struct Ends {
  int read = -1, write = -1;
};

Ends make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

// Reads both descriptors to their ends; a terminal's end is an error.
void drain(int out, int err, Result& result) {
  std::array<pollfd, 2> waited{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  std::array<std::string*, 2> texts{&result.out, &result.err};
  int open = 2;
  while (open > 0) {
    if (poll(waited.data(), waited.size(), kTimeoutMs) <= 0) throw std::runtime_error("the program says nothing for a minute");
    for (size_t i = 0; i < waited.size(); ++i) {
      if (waited[i].fd < 0 || waited[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(waited[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<size_t>(got));
      } else {
        close(waited[i].fd);
        waited[i].fd = -1;
        --open;
      }
    }
  }
}

// Waits until the process has a handler for SIGINT: bit 1 of SigCgt.
void wait_for_handler(pid_t child) {
  for (int waited_ms = 0; waited_ms < kTimeoutMs; waited_ms += 2) {
    std::ifstream status("/proc/" + std::to_string(child) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigCgt:", 0) == 0 && (std::stoull(line.substr(7), nullptr, 16) & 2) != 0) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Result run_with(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables, Ends out,
                bool interrupt = false) {
  std::vector<std::string> arguments = command, environment = environment_with(variables);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const Ends err = make_pipe(), started = make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    const int empty = open("/dev/null", O_RDONLY);
    if (empty < 0) _exit(127);
    dup2(empty, 0);
    dup2(out.write, 1);
    dup2(err.write, 2);
    if (chdir("/") == 0) execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out.write);
  close(err.write);
  // Closed by exec: from then on handlers are the command's own, not those of this test.
  close(started.write);
  char nothing = 0;
  if (read(started.read, &nothing, 1) > 0) throw std::runtime_error("nobody writes to this pipe");
  close(started.read);
  if (interrupt) {
    wait_for_handler(child);
    kill(child, SIGINT);
  }
  Result result;
  drain(out.read, err.read, result);
  int status = 0;
  waitpid(child, &status, 0);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

std::vector<std::string> with_binary(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ANYATTN_BINARY);
  return arguments;
}

}  // namespace

nlohmann::json Result::json() const {
  INFO("standard output: ", out, "\nstandard error: ", err);
  REQUIRE(nlohmann::json::accept(out));
  return nlohmann::json::parse(out);
}

Result run_program(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables) {
  return run_with(command, variables, make_pipe());
}

Result cli(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables) {
  return run_program(with_binary(arguments), variables);
}

Result cli_interrupted(const std::vector<std::string>& arguments) {
  return run_with(with_binary(arguments), {}, make_pipe(), true);
}

Result cli_on_terminal(const std::vector<std::string>& arguments, int columns) {
  Ends out;
  winsize window{};
  window.ws_row = 24;
  window.ws_col = static_cast<unsigned short>(columns);
  if (openpty(&out.read, &out.write, nullptr, nullptr, &window) != 0) throw std::runtime_error("no terminal");
  return run_with(with_binary(arguments), {{"TERM", "xterm"}}, out);
}

std::string cpu_config(const std::string& more) {
  return "version: 1\nplugins:\n  search: [" ANYATTN_PLUGIN_DIR "/cpu]\n" + more;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace anyattn::end_to_end
