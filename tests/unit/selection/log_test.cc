// SPDX-License-Identifier: Apache-2.0
// The log: levels, whole lines from many threads, and what a plugin's text may not do to it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "anyattn/host.h"
#include "log/log.h"

namespace log_ = anyattn::log;

namespace {

struct Capture {
  Capture() {
    log_::set_sink([this](log_::Level level, std::string_view line) {
      lines.push_back(std::string(log_::level_name(level)) + " " + std::string(line));
    });
  }
  ~Capture() {
    log_::set_sink({});
    log_::set_level(log_::Level::kInfo);
  }
  std::vector<std::string> lines;
};

// What the code writes to standard error, read back from a temporary file put in its place.
std::string standard_error_of(void (*code)()) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int saved = dup(STDERR_FILENO);
  std::fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  code();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("log_level_names_are_those_of_the_configuration") {
  CHECK(log_::level_from_name("debug") == log_::Level::kDebug);
  CHECK(log_::level_from_name("info") == log_::Level::kInfo);
  CHECK(log_::level_from_name("warning") == log_::Level::kWarning);
  CHECK(log_::level_from_name("error") == log_::Level::kError);
  CHECK(log_::level_from_name("off") == log_::Level::kOff);
  CHECK_FALSE(log_::level_from_name("Info"));
  CHECK_FALSE(log_::level_from_name(""));
}

TEST_CASE("log_drops_lines_below_the_level") {
  Capture capture;
  log_::set_level(log_::Level::kWarning);
  log_::info("no");
  log_::error("yes");
  CHECK(capture.lines == std::vector<std::string>{"error yes"});
  log_::set_level(log_::Level::kOff);
  log_::error("no");
  CHECK(capture.lines.size() == 1);
}

TEST_CASE("log_makes_control_characters_of_a_plugin_visible") {
  Capture capture;
  log_::write_plugin(ANYATTN_LOG_WARNING, "com.acme: one\ntwo\x1b[31m\ttab");
  log_::write_plugin(99, "com.acme: odd level");
  log_::write_plugin(-1, nullptr);
  CHECK(capture.lines ==
        std::vector<std::string>{"warning com.acme: one\\ntwo\\x1b[31m\\ttab", "info com.acme: odd level", "info "});
}

TEST_CASE("log_goes_to_standard_error_one_line_each_without_colours_in_a_file") {
  const std::string text = standard_error_of([] {
    log_::warning("first");
    log_::error("second");
  });
  CHECK(text.find("anyattn warning first\n") != std::string::npos);
  CHECK(text.find("anyattn error second\n") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("log_lines_of_many_threads_stay_whole") {
  Capture capture;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log_::info("0123456789");
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(capture.lines.size() == 400);
  for (const std::string& line : capture.lines) CHECK(line == "info 0123456789");
}
