// SPDX-License-Identifier: Apache-2.0
// A table of text: columns as wide as their content, cells folded at words where the terminal is narrower.
// Included by verbs. Knows no verb and no JSON.
#pragma once

#include <string>
#include <vector>

#include "common/terminal.h"

namespace anyattn::tools {

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

struct Cell {
  std::string text;
  Colour colour = Colour::kPlain;

  Cell(std::string t, Colour c = Colour::kPlain) : text(std::move(t)), colour(c) {}
  Cell(const char* t, Colour c = Colour::kPlain) : text(t), colour(c) {}
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty; more cells than columns is a mistake of the caller and throws std::logic_error.
  void add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  // Every line ends in a newline and holds no trailing blank. Nothing where there are no rows; no header where no column has a
  // title.
  std::string render(const Terminal& terminal, int indent = 0) const;

 private:
  std::vector<int> widths(int limit) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Texts come from plugins and files: control characters, which could move the cursor, become '?'; newlines stay.
std::string printable(std::string text);

// `text` in lines of at most `width` columns, broken at blanks, inside a word only where it alone is too long.
std::vector<std::string> fold(const std::string& text, int width);

}  // namespace anyattn::tools
