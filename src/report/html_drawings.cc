#include "report/html_drawings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "report/escape.h"

namespace shadowgraph {
namespace {

constexpr int64_t kMostRows = 32, kMostColumns = 64;  // of a grid that are drawn
constexpr double kLetter = 6.7;                       // width of one
constexpr size_t kLongestName = 44;
constexpr int64_t kOwners = 8;  // colours

/// The end of a name says more than its start.
std::string cut(const std::string& name) {
  size_t width = width_of(name), start = 0;
  if (width <= kLongestName) return name;
  while (width > kLongestName - 1) {
    ++start;
    if ((static_cast<uint8_t>(name[start]) & 0xc0) != 0x80) --width;  // a code point's start
  }
  return "\u2026" + name.substr(start);
}

/// "row 3", or its own name.
std::string name_of(std::string_view what, const std::vector<std::string>& names, int64_t i) {
  return names.empty() ? fmt::format("{} {}", what, i) : names[static_cast<size_t>(i)];
}

/// Elements of an SVG, and how large it is.
class Drawing {
 public:
  void rect(double x, double y, double width, double height, std::string_view look,
            std::string_view tip = "") {
    shape(fmt::format(R"(<rect x="{:.4g}" y="{:.4g}" width="{:.4g}" height="{:.4g}" {})", x, y,
                      width, height, look),
          "rect", tip);
    see(x + width, y + height);
  }
  void circle(double x, double y, double radius, std::string_view look, std::string_view tip) {
    shape(fmt::format(R"(<circle cx="{:.4g}" cy="{:.4g}" r="{:.4g}" {})", x, y, radius, look),
          "circle", tip);
  }
  void line(double x1, double y1, double x2, double y2) {
    body_ += fmt::format(R"(<line x1="{:.4g}" y1="{:.4g}" x2="{:.4g}" y2="{:.4g}" class="rule"/>)",
                         x1, y1, x2, y2);
  }
  /// anchor: of the classes "middle" and "end"; the start, else.
  void text(double x, double y, std::string_view words, std::string_view look) {
    body_ += fmt::format(R"(<text x="{:.4g}" y="{:.4g}" class="{}">{}</text>)", x, y, look,
                         escape_xml(words));
    see(x, y + 4);
  }
  void see(double x, double y) { width_ = std::max(width_, x), height_ = std::max(height_, y); }

  std::string str(std::string_view title) const {
    return fmt::format(
        "<div class=\"drawing\"><svg role=\"img\" aria-label=\"{0}\" width=\"{1:.0f}\" "
        "height=\"{2:.0f}\" viewBox=\"0 0 {1:.0f} {2:.0f}\">{3}</svg></div>\n",
        escape_xml(title), width_ + 2, height_ + 2, body_);
  }

 private:
  void shape(const std::string& start, std::string_view name, std::string_view tip) {
    body_ += start;
    body_ += tip.empty() ? "/>" : fmt::format("><title>{}</title></{}>", escape_xml(tip), name);
  }

  std::string body_;
  double width_ = 0, height_ = 0;
};

/// The part of a grid that is drawn: around a cell.
struct Part {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
  int64_t all_rows = 0, all_columns = 0;

  Part(int64_t of_rows, int64_t of_columns, const std::optional<Cell>& around)
      : rows(std::min(of_rows, kMostRows)),
        columns(std::min(of_columns, kMostColumns)),
        all_rows(of_rows),
        all_columns(of_columns) {
    const auto start = [](int64_t middle, int64_t length, int64_t all) {
      return std::clamp<int64_t>(middle - length / 2, 0, all - length);
    };
    if (!around) return;
    row = start(around->row, rows, all_rows);
    column = start(around->column, columns, all_columns);
  }

  /// "; rows 3 to 34 of 400"; names in the plural
  std::string note(std::string_view row_names, std::string_view column_names) const {
    std::string s;
    const auto add = [&](std::string_view name, int64_t first, int64_t count, int64_t all) {
      if (count < all) s += fmt::format("; {} {} to {} of {}", name, first, first + count - 1, all);
    };
    add(row_names, row, rows, all_rows);
    add(column_names, column, columns, all_columns);
    return s;
  }

  template <class Visit>
  void each(const Visit& visit) const {
    for (int64_t r = row; r < row + rows; ++r)
      for (int64_t c = column; c < column + columns; ++c) visit(r, c);
  }
};

/// Where the cells of a grid lie, and its names.
struct Grid {
  Part part;
  double width, height;      // of a cell
  double left = 0, top = 0;  // of the first one

  double x(int64_t column) const {
    return left + static_cast<double>(column - part.column) * width;
  }
  double y(int64_t row) const { return top + static_cast<double>(row - part.row) * height; }

  /// Names left and above; of narrow columns every fourth or so.
  void name(Drawing& d, std::string_view row_name, std::string_view column_name,
            const std::vector<std::string>& rows, const std::vector<std::string>& columns) {
    std::vector<std::string> names;
    size_t longest = 0;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      names.push_back(cut(name_of(row_name, rows, r)));
      longest = std::max(longest, width_of(names.back()));
    }
    left = static_cast<double>(longest) * kLetter + 8;
    top = columns.empty() ? 30 : 18;
    for (int64_t i = 0; i < part.rows; ++i)
      d.text(left - 6, y(part.row + i) + height / 2 + 4, names[static_cast<size_t>(i)], "name end");
    const auto step = static_cast<int64_t>(std::ceil(30 / width));
    for (int64_t c = part.column; c < part.column + part.columns; c += columns.empty() ? step : 1)
      d.text(x(c) + width / 2, top - 5,
             columns.empty() ? std::to_string(c) : columns[static_cast<size_t>(c)], "name middle");
    if (columns.empty()) d.text(left, 11, column_name, "name");
  }
};

std::string key(std::string_view drawing, std::string_view words) {
  return fmt::format(R"(<span><svg width="16" height="14">{}</svg>{}</span>)", drawing,
                     escape_xml(words));
}

std::string key_of_class(std::string_view look, std::string_view words) {
  return key(fmt::format(R"(<rect x="1.5" y="1.5" width="12" height="11" class="{}"/>)", look),
             words);
}

std::string framed(const std::string& title, const std::string& note, const Drawing& d,
                   const std::string& keys) {
  return fmt::format(
      "<figure><figcaption>{}{}</figcaption>\n{}<div class=\"key\">{}</div></figure>\n",
      escape_xml(title), note.empty() ? "" : "<span class=\"soft\">" + escape_xml(note) + "</span>",
      d.str(title), keys);
}

std::string owner_words(int64_t owner) {
  if (owner == TableMap::kUnread) return "not read";
  return owner < 0 ? "nobody's" : fmt::format("row {}'s", owner);
}

std::string owner_class(int64_t owner) {
  if (owner == TableMap::kUnread) return "none";
  return owner < 0 ? "off" : fmt::format("o{}", owner % kOwners);
}

/// The owners that the drawn part shows, as a legend.
std::string owner_keys(const TableMap& m, const Part& part) {
  std::set<int64_t> owners;
  part.each([&](int64_t r, int64_t c) {
    owners.insert(m.owners[static_cast<size_t>(r * m.columns + c)]);
  });
  std::string s;
  for (const int64_t owner : owners) s += key_of_class(owner_class(owner), owner_words(owner));
  return m.wrong.empty() ? s : s + key_of_class("wrong", "wrong");
}

std::string draw(const TableMap& m) {
  const auto first = m.wrong.empty() ? std::nullopt : std::optional(m.wrong[0]);
  size_t longest = 1;
  for (const int64_t entry : m.entries) longest = std::max(longest, std::to_string(entry).size());
  Grid grid{Part(m.rows, m.columns, first),
            std::max(20.0, static_cast<double>(longest) * kLetter + 6), 18};
  Drawing d;
  grid.name(d, "row", "page", {}, {});
  grid.part.each([&](int64_t r, int64_t c) {
    const auto i = static_cast<size_t>(r * m.columns + c);
    const bool read = m.owners[i] != TableMap::kUnread;
    d.rect(grid.x(c) + 1, grid.y(r) + 1, grid.width - 2, grid.height - 2,
           fmt::format("class=\"{}\"", owner_class(m.owners[i])),
           fmt::format("[{}, {}] is {}: {}", r, c, m.entries[i], owner_words(m.owners[i])));
    if (read)
      d.text(grid.x(c) + grid.width / 2, grid.y(r) + 13, std::to_string(m.entries[i]),
             m.owners[i] >= 0 ? "middle on" : "middle");
  });
  std::string note = grid.part.note("rows", "pages");
  for (const Cell& cell : m.wrong) {
    const auto i = static_cast<size_t>(cell.row * m.columns + cell.column);
    if (&cell - m.wrong.data() < 3)
      note += fmt::format("; [{}, {}] is {}, {}", cell.row, cell.column, m.entries[i],
                          owner_words(m.owners[i]));
    if (cell.row < grid.part.row || cell.row >= grid.part.row + grid.part.rows ||
        cell.column < grid.part.column || cell.column >= grid.part.column + grid.part.columns)
      continue;
    d.rect(grid.x(cell.column), grid.y(cell.row), grid.width, grid.height, "class=\"wrong\"");
  }
  return framed(m.title, note, d, owner_keys(m, grid.part));
}

std::string draw(const MaskMap& m) {
  const auto differs = [&](size_t i) { return (m.expected[i] != 0) != (m.got[i] != 0); };
  std::optional<Cell> first;
  int64_t wrong = 0;
  for (size_t i = 0; i < m.got.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (differs(i) && wrong++ == 0) first = Cell{at / m.columns, at % m.columns};
  }
  Grid grid{Part(m.rows, m.columns, first), 14, 14};
  Drawing d;
  grid.name(d, "query", "key", {}, {});
  grid.part.each([&](int64_t r, int64_t c) {
    const auto i = static_cast<size_t>(r * m.columns + c);
    const char* look = differs(i) ? "alarm" : m.got[i] != 0 ? "seen" : "off";
    d.rect(grid.x(c) + 1, grid.y(r) + 1, 12, 12, fmt::format("class=\"{}\"", look),
           fmt::format("query {}, key {}: {}, expected {}", r, c, m.got[i] != 0 ? "seen" : "hidden",
                       m.expected[i] != 0 ? "seen" : "hidden"));
    if (differs(i))
      d.text(grid.x(c) + 7, grid.y(r) + 11, m.got[i] != 0 ? "+" : "\u2212", "sign middle");
  });
  const std::string sign =
      R"(<rect x="1.5" y="1.5" width="12" height="11" class="alarm"/><text x="7.5" y="11" class="sign middle">{}</text>)";
  return framed(m.title, fmt::format("; {} wrong", wrong) + grid.part.note("queries", "keys"), d,
                key_of_class("seen", "seen") + key_of_class("off", "hidden") +
                    key(fmt::format(fmt::runtime(sign), "+"), "seen, must be hidden") +
                    key(fmt::format(fmt::runtime(sign), "\u2212"), "hidden, must be seen"));
}

constexpr const char* kStaleSign = R"(<path d="M7 0 L14 7 L7 14 L0 7 Z" class="alarm"/>)";

void draw_mark(Drawing& d, const Timeline& t, const Timeline::Mark& m, double x, double y) {
  constexpr const char* kWords[] = {"written", "read", "stale: read of what an older step left"};
  const std::string tip = fmt::format("{}, {}: {}{}", t.buffers[static_cast<size_t>(m.buffer)],
                                      t.steps[static_cast<size_t>(m.step)], kWords[m.kind],
                                      m.note.empty() ? "" : "; " + m.note);
  if (m.kind == Timeline::kStale) {
    d.rect(x - 5, y - 5, 10, 10,
           fmt::format("class=\"alarm\" transform=\"rotate(45 {:.4g} {:.4g})\"", x, y), tip);
    d.text(x, y + 4, "!", "sign middle");
  } else {
    d.circle(x, y, 5, m.kind == Timeline::kWritten ? "class=\"wrote\"" : "class=\"read\"", tip);
  }
}

std::string draw(const Timeline& t) {
  size_t longest = 0;
  for (const std::string& step : t.steps) longest = std::max(longest, width_of(cut(step)));
  std::optional<Cell> first;
  for (const Timeline::Mark& m : t.marks) {
    if (m.kind == Timeline::kStale && !first) first = Cell{m.buffer, m.step};
  }
  Grid grid{Part(std::ssize(t.buffers), std::ssize(t.steps), first),
            std::max(64.0, static_cast<double>(longest) * kLetter + 14), 24};
  std::vector<std::string> steps;
  for (const std::string& step : t.steps) steps.push_back(cut(step));
  Drawing d;
  grid.name(d, "", "", t.buffers, steps);
  const Part& part = grid.part;
  for (int64_t b = part.row; b < part.row + part.rows; ++b)
    d.line(grid.left, grid.y(b) + 12, grid.x(part.column + part.columns), grid.y(b) + 12);
  d.see(grid.x(part.column + part.columns), grid.y(part.row + part.rows));
  std::vector<std::vector<const Timeline::Mark*>> cells(
      static_cast<size_t>(part.rows * part.columns));
  for (const Timeline::Mark& m : t.marks) {
    const int64_t b = m.buffer - part.row, s = m.step - part.column;
    if (b < 0 || b >= part.rows || s < 0 || s >= part.columns) continue;
    cells[static_cast<size_t>(b * part.columns + s)].push_back(&m);
  }
  for (const auto& marks : cells) {
    const double apart = std::min(15.0, grid.width / static_cast<double>(marks.size() + 1));
    double x = -apart * static_cast<double>(marks.size() - 1) / 2;
    for (const Timeline::Mark* m : marks) {
      draw_mark(d, t, *m, grid.x(m->step) + grid.width / 2 + x, grid.y(m->buffer) + 12);
      x += apart;
    }
  }
  return framed(t.title, part.note("buffers", "steps"), d,
                key(R"(<circle cx="7" cy="7" r="5" class="wrote"/>)", "written") +
                    key(R"(<circle cx="7" cy="7" r="5" class="read"/>)", "read") +
                    key(kStaleSign, "stale: read of what an older step left"));
}

/// From 1e-4 of the bound on a shade, past the bound alarm.
std::string heat_look(double value) {
  if (value < 0) return "class=\"none\"";
  if (!(value <= 1)) return "class=\"alarm\"";
  const double shade = value <= 0 ? 0 : std::clamp((std::log10(value) + 4) / 4, 0.0, 1.0);
  return fmt::format("style=\"fill:rgba(var(--heat),{:.2f})\"", 0.06 + 0.64 * shade);
}

std::string figure_of(double value) {
  if (value < 0) return "";
  return std::isnan(value) ? "nan" : fmt::format("{:.3g}", value);
}

std::string draw(const Heatmap& m) {
  std::optional<Cell> worst;
  double largest = -1;
  int64_t past = 0;
  for (size_t i = 0; i < m.values.size(); ++i) {
    const double value = std::isnan(m.values[i]) ? HUGE_VAL : m.values[i];
    past += value > 1;
    if (value <= largest) continue;
    largest = value;
    worst = Cell{static_cast<int64_t>(i) / m.columns, static_cast<int64_t>(i) % m.columns};
  }
  const bool wide = m.columns <= 16;
  Grid grid{Part(m.rows, m.columns, worst), wide ? 62.0 : 14.0, wide ? 18.0 : 14.0};
  Drawing d;
  grid.name(d, m.row_name, m.column_name, m.row_names, m.column_names);
  grid.part.each([&](int64_t r, int64_t c) {
    const double value = m.values[static_cast<size_t>(r * m.columns + c)];
    d.rect(grid.x(c) + 1, grid.y(r) + 1, grid.width - 2, grid.height - 2, heat_look(value),
           fmt::format("{}, {}: {}", name_of(m.row_name, m.row_names, r),
                       name_of(m.column_name, m.column_names, c),
                       value < 0 ? "not measured" : fmt::format("{:.4g}", value)));
    if (wide) d.text(grid.x(c) + grid.width / 2, grid.y(r) + 13, figure_of(value), "middle");
  });
  const auto shade = [](double value, const char* words) {
    return key(
        fmt::format(R"(<rect x="1.5" y="1.5" width="12" height="11" {}/>)", heat_look(value)),
        words);
  };
  return framed(m.title,
                fmt::format("; {} past the bound", past) +
                    grid.part.note(m.row_name + "s", m.column_name + "s"),
                d,
                shade(1e-4, "1e-4 of the bound or less") + shade(1e-2, "1e-2") +
                    shade(1, "at the bound") + shade(2, "past it") + shade(-1, "not measured"));
}

}  // namespace

std::string draw(const Picture& picture) {
  return std::visit([](const auto& p) { return draw(p); }, picture);
}

}  // namespace shadowgraph
