// ArrayJudge: one array of a result against numbers and their bounds; one finding, at the worst
// element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "core/laws.h"

namespace shadowgraph {

class ArrayJudge {
 public:
  ArrayJudge(LawId law, std::string field) : law_(law), field_(std::move(field)) {}

  /// row, col: where a finding says that it is.
  void take(int64_t row, int64_t col, double got, double right, double bound) {
    ++elements_;
    double ratio = std::abs(got - right) / bound;
    if (got == right || (std::isnan(got) && std::isnan(right))) ratio = 0;
    if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
    if (ratio <= worst_) return;
    worst_ = ratio, row_ = row, col_ = col, got_ = got, right_ = right, bound_ = bound;
  }
  int64_t elements() const { return elements_; }
  /// Largest error over its bound.
  double worst() const { return worst_; }

  /// Adds the finding, if there is one.
  void add_to(Status* status) const {
    judged(law_, elements_);
    if (worst_ <= 1) return;
    const std::string right = number(right_) + (bound_ == 0 ? "" : " +- " + number(bound_));
    status->add(make_finding(law_, at(field_, row_, col_), right, number(got_)));
  }

 private:
  static std::string number(double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", x);
    return text;
  }

  LawId law_;
  std::string field_;
  int64_t elements_ = 0, row_ = 0, col_ = 0;
  double worst_ = 0, got_ = 0, right_ = 0, bound_ = 0;
};

}  // namespace shadowgraph
