// A small SVG writer: what the plots are drawn with. Tested by tests/bench/plots_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shadowgraph::bench {

/// Text as XML may hold it: & < > " ' are entities, control characters are left out.
std::string escape_xml(std::string_view text);

/// A drawing with its origin at the top left, in pixels. `look` is a list of attributes:
/// `stroke="#ccc"`.
class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  void line(double x1, double y1, double x2, double y2, std::string_view look);
  void rect(double x, double y, double width, double height, std::string_view look);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view look);
  /// tip: shown by a viewer under the pointer.
  void circle(double x, double y, double radius, std::string_view look, std::string_view tip);
  void text(double x, double y, std::string_view text, std::string_view look);

  /// The whole document.
  std::string str() const;

 private:
  std::string body_;
};

}  // namespace shadowgraph::bench
