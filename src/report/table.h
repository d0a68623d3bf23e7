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

  /// most: columns of a terminal in which cells of several words are wrapped; 0: any number.
  std::string render(const Style& style, size_t most = 0) const {
    const std::vector<size_t> widths = fitting(most);
    std::string s;
    for (const auto& row : rows_) {
      std::vector<std::vector<std::string>> cells;
      size_t lines = 1;
      for (size_t c = 0; c < row.size(); ++c)
        lines = std::max(lines, cells.emplace_back(wrapped(row[c], widths[c])).size());
      for (size_t i = 0; i < lines; ++i) {
        std::string line;
        for (size_t c = 0; c < row.size(); ++c) {
          const std::string cell = i < cells[c].size() ? cells[c][i] : "";
          const std::string space(widths[c] - width_of(cell), ' ');
          line += (c > 0 ? "  " : "") + (c < text_columns_ ? cell + space : space + cell);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        s += (&row == &rows_[0] ? style.bold(line) : line) + '\n';
      }
    }
    return s;
  }

 private:
  /// Lines of a cell, none wider than `width` unless a word is.
  static std::vector<std::string> wrapped(std::string_view cell, size_t width) {
    std::vector<std::string> lines(1);
    while (width_of(cell) > width) {
      size_t end = 0;
      for (size_t at = cell.find(' '); at != cell.npos; at = cell.find(' ', at + 1)) {
        if (end > 0 && width_of(cell.substr(0, at)) > width) break;
        end = at;
      }
      if (end == 0) break;
      lines.back() = std::string(cell.substr(0, end));
      lines.emplace_back();
      cell.remove_prefix(end + 1);
    }
    lines.back() = std::string(cell);
    return lines;
  }

  /// Widths of the columns: the widest ones are cut until all fit, none below its longest word.
  std::vector<size_t> fitting(size_t most) const {
    std::vector<size_t> widths(rows_[0].size()), words(widths.size());
    for (const auto& row : rows_) {
      for (size_t c = 0; c < row.size(); ++c) {
        widths[c] = std::max(widths[c], width_of(row[c]));
        if (most == 0) continue;
        for (const std::string& word : wrapped(row[c], 1))
          words[c] = std::max(words[c], width_of(word));
      }
    }
    size_t all = 2 * (widths.size() - 1);
    for (const size_t width : widths) all += width;
    for (; most > 0 && all > most; --all) {
      size_t widest = widths.size();
      for (size_t c = 0; c < widths.size(); ++c)
        if (widths[c] > words[c] && (widest == widths.size() || widths[c] > widths[widest]))
          widest = c;
      if (widest == widths.size()) break;
      --widths[widest];
    }
    return widths;
  }

  size_t text_columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace shadowgraph
