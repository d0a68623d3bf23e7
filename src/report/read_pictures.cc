#include "report/read_pictures.h"

namespace shadowgraph {
namespace {

TableMap read_table(JsonMembers& m) {
  TableMap t;
  m.need("rows", &t.rows), m.need("columns", &t.columns);
  m.need("entries", &t.entries), m.need("owners", &t.owners);
  std::vector<std::vector<int64_t>> wrong;
  m.need("wrong", &wrong);
  for (const auto& cell : wrong) {
    if (cell.size() != 2) {
      m.fail("wrong", "pairs of a row and a column", "something else");
      break;
    }
    t.wrong.push_back({cell[0], cell[1]});
  }
  return t;
}

MaskMap read_mask(JsonMembers& m) {
  MaskMap mask;
  m.need("rows", &mask.rows), m.need("columns", &mask.columns);
  m.need("expected", &mask.expected), m.need("got", &mask.got);
  return mask;
}

Timeline read_timeline(JsonMembers& m) {
  Timeline t;
  m.need("buffers", &t.buffers), m.need("steps", &t.steps);
  m.each("marks", [&](JsonMembers& mark) {
    Timeline::Mark& made = t.marks.emplace_back();
    std::string what;
    mark.need("buffer", &made.buffer), mark.need("step", &made.step), mark.need("what", &what);
    mark.get("note", &made.note);
    for (const auto kind : {Timeline::kWritten, Timeline::kRead, Timeline::kStale}) {
      if (what == name_of(kind)) made.kind = kind;
    }
    if (what != name_of(made.kind)) mark.fail("what", "written, read or stale", printable(what));
  });
  return t;
}

Heatmap read_heat(JsonMembers& m) {
  Heatmap h;
  m.need("row_name", &h.row_name), m.need("column_name", &h.column_name);
  m.get("row_names", &h.row_names), m.get("column_names", &h.column_names);
  m.need("rows", &h.rows), m.need("columns", &h.columns), m.need("values", &h.values);
  return h;
}

}  // namespace

void read_picture(JsonMembers& m, std::vector<Picture>* pictures) {
  std::string kind, title;
  m.need("kind", &kind), m.need("title", &title);
  Picture picture;
  if (kind == "table") {
    picture = read_table(m);
  } else if (kind == "mask") {
    picture = read_mask(m);
  } else if (kind == "timeline") {
    picture = read_timeline(m);
  } else if (kind == "heat") {
    picture = read_heat(m);
  } else {
    return m.fail("kind", "table, mask, timeline or heat", printable(kind));
  }
  std::visit([&](auto& p) { p.title = title; }, picture);
  if (!is_whole(picture)) m.fail("rows", "sizes that agree", "others");
  pictures->push_back(std::move(picture));
}

}  // namespace shadowgraph
