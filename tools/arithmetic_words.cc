#include "arithmetic_words.h"

#include <fmt/format.h>

#include <cmath>

namespace shadowgraph::cli {
namespace {

/// "2^-11", or with a fraction "2^-20.7".
std::string power(double x) { return fmt::format("2^{:.3g}", std::log2(x)); }

std::string times(int n) { return n == 1 ? "once" : fmt::format("{} times", n); }

class Words {
 public:
  explicit Words(const Arithmetic& a) : a_(a) {}

  std::string all() {
    products();
    weights();
    functions();
    parts();
    results();
    return s_.empty() ? "plain f32, in any order" : s_;
  }

 private:
  void say(const std::string& words) { s_ += (s_.empty() ? "" : "; ") + words; }
  /// A member that is not plain f32's.
  template <class T>
  bool differs(T Arithmetic::*member) const {
    return a_.*member != kPlain.*member;
  }

  void products() {
    if (differs(&Arithmetic::u)) say("an operation is within " + power(a_.u));
    if (differs(&Arithmetic::adds_per_block))
      say(fmt::format("tensor cores add {} products and the sum so far in one step, each within {}",
                      a_.adds_per_block, power(a_.u_sum)));
    else if (differs(&Arithmetic::u_sum))
      say("an addition is within " + power(a_.u_sum));
    if (differs(&Arithmetic::scaled_maximum))
      say("the maximum is scaled and rounded before a score is taken from it");
  }

  void weights() {
    if (differs(&Arithmetic::lanes)) say(fmt::format("the weights have {} sums", a_.lanes));
    std::string rounded;
    if (a_.round_p == RoundP::kToQuery) rounded = "weights are rounded to q's type";
    if (a_.round_p == RoundP::kBF16) rounded = "weights are rounded to bf16 where q is bf16";
    if (a_.p_scale != 1) rounded += fmt::format(", times {}", a_.p_scale);
    if (!rounded.empty())
      say(rounded + (a_.sum_sees_rounded_p ? ", and summed so" : ", and summed unrounded"));
  }

  void functions() {
    if (differs(&Arithmetic::exp_error)) say("exp2 is within " + power(a_.exp_error));
    if (a_.tanh_relative > 0) say("tanh is within " + power(a_.tanh_relative) + ", relatively");
    if (a_.tanh_absolute > 0) say("tanh is within " + power(a_.tanh_absolute));
    if (differs(&Arithmetic::log_error)) say("log is within " + power(a_.log_error));
  }

  void parts() {
    if (a_.in_order) say("keys come in order");
    if (differs(&Arithmetic::tile))
      say(fmt::format("the maximum is renewed each {} keys", a_.tile));
    if (differs(&Arithmetic::merges))
      say(fmt::format("{} states are merged inside a part", a_.merges + 1));
    if (differs(&Arithmetic::split))
      say(fmt::format("long rows are cut in parts of {}{} keys", a_.in_order ? "" : "at least ",
                      a_.split));
    if (differs(&Arithmetic::parts)) say(fmt::format("{} parts are merged", a_.parts));
    if (a_.partials == Partials::kF32) say("a part's result and LSE are stored in f32");
    if (a_.partials == Partials::kOutType) say("a part's result is stored in the output's type");
  }

  void results() {
    if (differs(&Arithmetic::lse_roundings)) say("the LSE is rounded " + times(a_.lse_roundings));
    if (differs(&Arithmetic::out_roundings))
      say("the division is rounded " + times(a_.out_roundings));
    if (a_.v_scale_after) say("v_scale multiplies the rounded output");
  }

  static constexpr Arithmetic kPlain{};
  const Arithmetic& a_;
  std::string s_;
};

}  // namespace

std::string words_of(const Arithmetic& arithmetic) { return Words(arithmetic).all(); }

}  // namespace shadowgraph::cli
