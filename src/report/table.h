// What text reports are made of: colours and aligned tables.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/escape.h"

namespace shadowgraph {

struct Style {
  bool color = false;

  std::string operator()(const char* code, std::string_view text) const {
    return color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
  }
  std::string bold(std::string_view text) const { return (*this)("1", text); }
  std::string good(std::string_view text) const { return (*this)("32", text); }
  std::string bad(std::string_view text) const { return (*this)("31;1", text); }
  std::string dim(std::string_view text) const { return (*this)("2", text); }
};

/// Rows of cells under a heading, aligned: text to the left, numbers (cells after `text_columns`)
/// to the right.
class Table {
 public:
  Table(size_t text_columns, std::vector<std::string> heading)
      : text_columns_(text_columns), rows_{std::move(heading)} {}

  void add(std::vector<std::string> cells) {
    for (std::string& cell : cells) cell = escape_controls(cell);
    rows_.push_back(std::move(cells));
  }

  std::string render(const Style& style) const {
    std::vector<size_t> widths(rows_[0].size());
    for (const auto& row : rows_) {
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
    }
    std::string s;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t c = 0; c < row.size(); ++c) {
        const std::string space(widths[c] - width_of(row[c]), ' ');
        line += (c > 0 ? "  " : "") + (c < text_columns_ ? row[c] + space : space + row[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      s += (&row == &rows_[0] ? style.bold(line) : line) + '\n';
    }
    return s;
  }

 private:
  size_t text_columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace shadowgraph
