// SPDX-License-Identifier: Apache-2.0
#include "log/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <mutex>

#include "anyattn/host.h"

namespace anyattn::log {
namespace {

constexpr std::array<std::string_view, 5> kNames{"debug", "info", "warning", "error", "off"};
constexpr std::array<spdlog::level::level_enum, 5> kSpdlogLevels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                                 spdlog::level::err, spdlog::level::off};

struct State {
  std::atomic<Level> level{Level::kInfo};
  std::mutex mutex;  // guards sink, and keeps lines of a replaced sink whole
  Sink sink;
  spdlog::logger stderr_logger{"anyattn", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};

  State() {
    stderr_logger.set_level(spdlog::level::trace);  // filtering is ours
    stderr_logger.set_pattern("%Y-%m-%d %H:%M:%S.%e anyattn %^%l%$ %v");
    stderr_logger.flush_on(spdlog::level::trace);
  }
};

// Never destroyed: a plugin's thread may still log while the process ends.
State& state() {
  static State* const instance = new State;
  return *instance;
}

std::string one_line(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 15];
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

std::optional<Level> level_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Level>(i);
  return std::nullopt;
}

std::string_view level_name(Level level) { return kNames[static_cast<size_t>(level)]; }

void set_level(Level level) { state().level = level; }
Level level() { return state().level; }
bool enabled(Level level) { return level != Level::kOff && level >= state().level; }

void write(Level level, std::string_view text) {
  if (!enabled(level)) return;
  const std::string line = one_line(text);
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, line);
  } else {
    state().stderr_logger.log(kSpdlogLevels[static_cast<size_t>(level)], spdlog::string_view_t(line));
  }
}

void write_plugin(int32_t level, const char* text) {
  const bool known = level >= ANYATTN_LOG_DEBUG && level <= ANYATTN_LOG_ERROR;
  write(known ? static_cast<Level>(level) : Level::kInfo, text ? text : "");
}

void set_sink(Sink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

}  // namespace anyattn::log
