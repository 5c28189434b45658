// SPDX-License-Identifier: Apache-2.0
// One log for the process: whole lines to standard error, or to a sink that somebody put in its place.
// Included by every part of the core. A leaf: knows no configuration and no plugin; never called on the hot path.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace anyattn::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

// debug | info | warning | error | off, the words of `log.level` and ANYATTN_LOG_LEVEL; nullopt for any other.
std::optional<Level> level_from_name(std::string_view name);
std::string_view level_name(Level level);

// Lines below the level are dropped. Of the process: the latest runtime's level holds.
void set_level(Level level);
Level level();
bool enabled(Level level);

// One line, from any thread. Control characters (a plugin's text may hold some) are written as \n, \t or \xNN.
void write(Level level, std::string_view text);
inline void debug(std::string_view text) { write(Level::kDebug, text); }
inline void info(std::string_view text) { write(Level::kInfo, text); }
inline void warning(std::string_view text) { write(Level::kWarning, text); }
inline void error(std::string_view text) { write(Level::kError, text); }

// What plugins log: level is ANYATTN_LOG_*, an unknown one counts as info; null text is an empty line. The loader has put the
// plugin's name in front.
void write_plugin(int32_t level, const char* text);

// Takes the place of standard error; called under a lock, so it must not log. Empty = standard error again.
using Sink = std::function<void(Level, std::string_view)>;
void set_sink(Sink sink);

}  // namespace anyattn::log
