// SPDX-License-Identifier: Apache-2.0
// What the other end of standard output can show: colours, a width, a moving line. Included by verbs and tables.
// Reads NO_COLOR, TERM and COLUMNS, the terminal's own customs, and nothing of ours.
#pragma once

#include <string>
#include <string_view>

namespace anyattn::tools {

enum class Colour { kPlain, kBold, kDim, kRed, kGreen, kYellow, kCyan };

struct Terminal {
  bool interactive = false;  // progress lines may be overwritten
  bool colours = false;      // interactive, NO_COLOR unset or empty, TERM is not dumb
  int columns = 0;           // 0: no limit (a pipe or a file without COLUMNS)

  // `text` in `colour`, or as it is where there are no colours.
  std::string paint(std::string_view text, Colour colour) const;
};

// Facts of a file descriptor: 1 standard output, 2 standard error.
Terminal terminal_of(int descriptor);
// The same from given facts; null is an unset variable. window_columns: what the terminal says, 0 = unknown.
Terminal terminal_from(bool is_terminal, int window_columns, const char* no_color, const char* term, const char* columns);

// Columns a UTF-8 text takes, colour sequences not counted; one a code point.
int display_width(std::string_view text);

}  // namespace anyattn::tools
