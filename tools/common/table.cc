// SPDX-License-Identifier: Apache-2.0
#include "common/table.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace anyattn::tools {
namespace {

constexpr int kGap = 2;         // blanks between columns
constexpr int kNarrowest = 12;  // a column is not folded below this; a line may then be longer than the terminal

// Bytes of the longest prefix of `text` that takes at most `width` columns.
size_t prefix_bytes(std::string_view text, int width) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    size_t next = bytes + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
    if (--width < 0) break;
    bytes = next;
  }
  return bytes;
}

std::string pad(const std::string& text, int width, Align align) {
  const int blanks = std::max(0, width - display_width(text));
  return align == Align::kRight ? std::string(blanks, ' ') + text : text + std::string(blanks, ' ');
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

}  // namespace

std::string printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f) c = '?';
  }
  return text;
}

std::vector<std::string> fold(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::string_view rest = text;
  for (;;) {
    const size_t newline = rest.find('\n');
    std::string_view paragraph = rest.substr(0, newline);
    while (display_width(paragraph) > width) {
      const size_t fits = std::max<size_t>(1, prefix_bytes(paragraph, width));
      // A blank right after the part that fits is a good place too.
      const size_t blank = paragraph.rfind(' ', fits);
      // A path breaks behind a slash in its second half, sooner than in a name.
      const size_t slash = paragraph.rfind('/', fits - 1);
      const size_t within = slash == std::string_view::npos || slash < fits / 2 ? fits : slash + 1;
      const size_t cut = blank == std::string_view::npos || blank == 0 ? within : blank;
      lines.emplace_back(paragraph.substr(0, cut));
      paragraph.remove_prefix(cut);
      paragraph.remove_prefix(std::min(paragraph.find_first_not_of(' '), paragraph.size()));
    }
    lines.emplace_back(paragraph);
    if (newline == std::string_view::npos) return lines;
    rest.remove_prefix(newline + 1);
  }
}

void Table::add(std::vector<Cell> row) {
  if (row.size() > columns_.size()) throw std::logic_error("table row has more cells than the table has columns");
  for (Cell& cell : row) cell.text = printable(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<int> Table::widths(int limit) const {
  std::vector<int> width(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) width[c] = display_width(columns_[c].title);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      for (const std::string& line : fold(row[c].text, 1 << 20)) width[c] = std::max(width[c], display_width(line));
    }
  }
  if (limit <= 0) return width;
  const int gaps = kGap * (static_cast<int>(columns_.size()) - 1);
  // The widest column gives way first, down to the second widest, and so on.
  for (int over = std::accumulate(width.begin(), width.end(), gaps) - limit; over > 0; --over) {
    const auto widest = std::max_element(width.begin(), width.end());
    if (*widest <= kNarrowest) break;
    --*widest;
  }
  return width;
}

std::string Table::render(const Terminal& terminal, int indent) const {
  std::string out;
  if (rows_.empty()) return out;
  const std::vector<int> width = widths(terminal.columns > 0 ? std::max(1, terminal.columns - indent) : 0);

  const bool titled = std::any_of(columns_.begin(), columns_.end(), [](const Column& c) { return !c.title.empty(); });
  std::string header(indent, ' ');
  for (size_t c = 0; c < columns_.size(); ++c) {
    const bool last = c + 1 == columns_.size();
    const std::string title =
        pad(columns_[c].title, last && columns_[c].align == Align::kLeft ? 0 : width[c], columns_[c].align);
    header += terminal.paint(title, Colour::kBold) + (last ? "" : std::string(kGap, ' '));
  }
  if (titled) append_line(out, header);

  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t c = 0; c < row.size(); ++c) {
      cells.push_back(fold(row[c].text, width[c]));
      height = std::max(height, cells.back().size());
    }
    for (size_t l = 0; l < height; ++l) {
      std::string line(indent, ' ');
      for (size_t c = 0; c < cells.size(); ++c) {
        const std::string text = l < cells[c].size() ? cells[c][l] : "";
        const std::string padded = pad(text, width[c], columns_[c].align);
        const size_t at = padded.find(text);
        line +=
            padded.substr(0, at) + (text.empty() ? "" : terminal.paint(text, row[c].colour)) + padded.substr(at + text.size());
        if (c + 1 < cells.size()) line += std::string(kGap, ' ');
      }
      append_line(out, line);
    }
  }
  return out;
}

}  // namespace anyattn::tools
