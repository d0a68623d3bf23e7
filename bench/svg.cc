#include "bench/svg.h"

#include <fmt/format.h>

namespace shadowgraph::bench {

std::string escape_xml(std::string_view text) {
  std::string s;
  for (const char c : text) {
    switch (c) {
      case '&': s += "&amp;"; break;
      case '<': s += "&lt;"; break;
      case '>': s += "&gt;"; break;
      case '"': s += "&quot;"; break;
      case '\'': s += "&apos;"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) s += c;
    }
  }
  return s;
}

Svg::Svg(double width, double height, std::string_view title) {
  body_ = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:g}" height="{1:g}" viewBox="0 0 {0:g} {1:g}" font-family="sans-serif" font-size="12" fill="#222">
<title>{2}</title>
<rect width="{0:g}" height="{1:g}" fill="#fff"/>
)",
      width, height, escape_xml(title));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view look) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1,
                       y1, x2, y2, look);
}

void Svg::rect(double x, double y, double width, double height, std::string_view look) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}/>\n",
                       x, y, width, height, look);
}

void Svg::polyline(const std::vector<std::pair<double, double>>& points, std::string_view look) {
  body_ += "<polyline points=\"";
  for (const auto& [x, y] : points) body_ += fmt::format("{:.1f},{:.1f} ", x, y);
  body_ += fmt::format("\" fill=\"none\" {}/>\n", look);
}

void Svg::circle(double x, double y, double radius, std::string_view look, std::string_view tip) {
  body_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" {}><title>{}</title></circle>\n",
                  x, y, radius, look, escape_xml(tip));
}

void Svg::text(double x, double y, std::string_view text, std::string_view look) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, look, escape_xml(text));
}

std::string Svg::str() const { return body_ + "</svg>\n"; }

}  // namespace shadowgraph::bench
