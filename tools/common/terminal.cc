// SPDX-License-Identifier: Apache-2.0
#include "common/terminal.h"

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace anyattn::tools {
namespace {

fmt::text_style style_of(Colour colour) {
  switch (colour) {
    case Colour::kBold:
      return fmt::emphasis::bold;
    case Colour::kDim:
      return fmt::emphasis::faint;
    case Colour::kRed:
      return fmt::fg(fmt::terminal_color::red);
    case Colour::kGreen:
      return fmt::fg(fmt::terminal_color::green);
    case Colour::kYellow:
      return fmt::fg(fmt::terminal_color::yellow);
    case Colour::kCyan:
      return fmt::fg(fmt::terminal_color::cyan);
    case Colour::kPlain:
      break;
  }
  return {};
}

int positive_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

std::string Terminal::paint(std::string_view text, Colour colour) const {
  if (!colours || colour == Colour::kPlain) return std::string(text);
  return fmt::format(style_of(colour), "{}", text);
}

Terminal terminal_from(bool is_terminal, int window_columns, const char* no_color, const char* term, const char* columns) {
  Terminal terminal;
  const bool dumb = term && std::string_view(term) == "dumb";
  terminal.interactive = is_terminal && !dumb;
  terminal.colours = terminal.interactive && !(no_color && *no_color);
  terminal.columns = columns ? positive_number(columns) : 0;
  if (terminal.columns == 0 && is_terminal) terminal.columns = window_columns;
  return terminal;
}

Terminal terminal_of(int descriptor) {
  winsize window{};
  const bool is_terminal = isatty(descriptor) == 1;
  if (is_terminal && ioctl(descriptor, TIOCGWINSZ, &window) != 0) window.ws_col = 0;
  return terminal_from(is_terminal, window.ws_col, std::getenv("NO_COLOR"), std::getenv("TERM"), std::getenv("COLUMNS"));
}

int display_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    const bool continuation = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    width += !continuation;
  }
  return width;
}

}  // namespace anyattn::tools
