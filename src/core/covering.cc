#include "core/covering.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace shadowgraph {
namespace {

constexpr int kFirstTries = 200;  // cases with even levels, in which most pairs come up
constexpr int kPairTries = 12;    // for one of the others
constexpr int kRowTries = 5;      // of which the best becomes a row

/// Numbers of known levels, each once.
std::vector<int32_t> numbers_of(std::span<const Level> of, std::span<const Level> known) {
  std::vector<int32_t> numbers;
  for (const Level& level : of) {
    const auto at = std::ranges::find(known, level);
    if (at != known.end()) numbers.push_back(static_cast<int32_t>(at - known.begin()));
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

/// 0 to n - 1, in an order of the seed's.
std::vector<size_t> order_of(size_t n, Rng rng) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  shuffle(order, rng);
  return order;
}

}  // namespace

/// Tries what a generator draws together.
struct Covering::Search {
  using Case = std::vector<Level>;

  const Draw& draw;
  std::span<const Level> always;
  Rng rng{0x5eed};
  std::vector<Level> levels = {};
  std::vector<std::vector<int32_t>> witness = {};  // a case that had both levels; -1: none yet
  std::vector<Case> cases = {};                    // with a pair that none before had
  std::vector<std::string_view> factors = {};
  std::vector<size_t> factor_of = {};         // of a level
  std::vector<std::vector<bool>> lacks = {};  // by level and factor: a case had it without that

  Case try_wishes(std::vector<Level> wished) {
    wished.insert(wished.begin(), always.begin(), always.end());
    Choices choices(Rng(rng.next()), {std::move(wished), true});
    Case drawn = draw(choices);
    std::erase_if(drawn, [&](const Level& l) {
      return std::ranges::find(always, l.factor, &Level::factor) != always.end();
    });
    return drawn;
  }

  void know(const Level& level) {
    if (std::ranges::find(levels, level) != levels.end()) return;
    levels.push_back(level);
    for (std::vector<int32_t>& row : witness) row.push_back(-1);
    witness.emplace_back(levels.size(), -1);
    const auto at = std::ranges::find(factors, level.factor);
    factor_of.push_back(static_cast<size_t>(at - factors.begin()));
    lacks.emplace_back(factors.size());
    if (at != factors.end()) return;
    // The cases before had no such draw.
    factors.push_back(level.factor);
    for (std::vector<bool>& of_level : lacks) of_level.push_back(true);
    lacks.back().back() = false;
  }

  void note(const Case& drawn) {
    for (const Level& level : drawn) know(level);
    const std::vector<int32_t> numbers = numbers_of(drawn, levels);
    std::vector<bool> absent(factors.size(), true);
    for (const int32_t a : numbers) absent[factor_of[a]] = false;
    for (const int32_t a : numbers)
      for (size_t f = 0; f < factors.size(); ++f)
        if (absent[f]) lacks[a][f] = true;
    const auto number = static_cast<int32_t>(cases.size());
    bool is_new = false;
    for (const int32_t a : numbers) {
      for (const int32_t b : numbers) {
        if (witness[a][b] >= 0) continue;
        witness[a][b] = number;
        is_new = true;
      }
    }
    if (is_new) cases.push_back(drawn);
  }

  /// Levels of a factor that cases with a had, and cases with b.
  std::vector<int32_t> common(size_t factor, int32_t a, int32_t b) const {
    std::vector<int32_t> both;
    for (size_t l = 0; l < levels.size(); ++l)
      if (factor_of[l] == factor && witness[a][l] >= 0 && witness[b][l] >= 0)
        both.push_back(static_cast<int32_t>(l));
    return both;
  }

  /// Tries to draw two levels together: with others that cases of both had.
  void try_pair(int32_t a, int32_t b) {
    std::vector<std::vector<int32_t>> choices;
    for (size_t f = 0; f < factors.size(); ++f) {
      if (f == factor_of[a] || f == factor_of[b]) continue;
      choices.push_back(common(f, a, b));
      if (choices.back().empty() && !lacks[a][f] && !lacks[b][f])
        return;  // they exclude each other
    }
    for (int t = 0; t < kPairTries && witness[a][b] < 0; ++t) {
      Case wished = {levels[a], levels[b]};
      for (const std::vector<int32_t>& of : choices)
        if (!of.empty()) wished.push_back(levels[of[rng.below(static_cast<uint32_t>(of.size()))]]);
      note(try_wishes(std::move(wished)));
    }
  }

  void run() {
    for (int i = 0; i < kFirstTries; ++i) note(try_wishes({}));
    for (size_t a = 0; a < levels.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (factor_of[a] != factor_of[b] && witness[a][b] < 0)
          try_pair(static_cast<int32_t>(a), static_cast<int32_t>(b));
  }

  /// Two levels of such classes that a case had together; one of many, in turn.
  std::pair<int32_t, int32_t> levels_with(std::pair<int32_t, int32_t> classes,
                                          std::span<const int32_t> class_of) {
    const auto of_class = [&](int32_t of) {
      std::vector<int32_t> all;
      for (const size_t at : order_of(levels.size(), Rng(rng.next())))
        if (class_of[at] == of) all.push_back(static_cast<int32_t>(at));
      return all;
    };
    const std::vector<int32_t> second = of_class(classes.second);
    for (const int32_t a : of_class(classes.first))
      for (const int32_t b : second)
        if (witness[a][b] >= 0) return {a, b};
    return classes;
  }

  /// A factor of one level has no choice.
  bool is_factor(const Level& level) const {
    return std::ranges::any_of(levels, [&](const Level& other) {
      return other.factor == level.factor && other.value != level.value;
    });
  }

  /// A level of each factor that the others leave one: the best with those before.
  Case greedy(int32_t a, int32_t b, const std::function<bool(int32_t, int32_t)>& is_missing) {
    std::vector<int32_t> chosen = {a, b};
    for (const size_t f : order_of(factors.size(), Rng(rng.next()))) {
      if (f == factor_of[a] || f == factor_of[b]) continue;
      int64_t most = -1;
      int32_t best = -1;
      for (const size_t at : order_of(levels.size(), Rng(rng.next()))) {
        const auto level = static_cast<int32_t>(at);
        const auto fits = [&](int32_t c) { return witness[level][c] >= 0; };
        if (factor_of[level] != f || !std::ranges::all_of(chosen, fits)) continue;
        const int64_t gain =
            std::ranges::count_if(chosen, [&](int32_t c) { return is_missing(level, c); });
        if (gain > most) most = gain, best = level;
      }
      if (best >= 0) chosen.push_back(best);
    }
    Case wished;
    for (const int32_t c : chosen) wished.push_back(levels[c]);
    return try_wishes(std::move(wished));
  }
};

Covering::Covering(const Draw& draw, std::vector<Level> always, const InFull& in_full)
    : always_(std::move(always)) {
  Search search{.draw = draw, .always = always_};
  search.run();
  levels_ = search.levels;
  classify(in_full);
  number_pairs(search);
  fill_rows(search);
  order_rows();
}

void Covering::classify(const InFull& in_full) {
  for (size_t at = 0; at < levels_.size(); ++at) {
    const Level& level = levels_[at];
    const auto is_less = [&](const Level& other) {
      return other.factor == level.factor && other.value < level.value;
    };
    counts_alone_.push_back(!level.is_number || in_full(level.factor) ||
                            std::ranges::none_of(levels_, is_less));
    size_t first = counts_alone_[at] ? at : 0;
    while (first < at && (counts_alone_[first] || levels_[first].factor != level.factor)) ++first;
    class_of_.push_back(static_cast<int32_t>(first));
  }
}

size_t Covering::place_of(size_t a, size_t b) const {
  const auto [c, d] = std::minmax(class_of_[a], class_of_[b]);
  return static_cast<size_t>(c) * levels_.size() + static_cast<size_t>(d);
}

void Covering::number_pairs(const Search& search) {
  const size_t n = levels_.size();
  numbers_.assign(n * n, -1);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      int32_t& number = numbers_[place_of(a, b)];
      if (number >= 0 || search.witness[a][b] < 0 || levels_[a].factor == levels_[b].factor ||
          !search.is_factor(levels_[a]) || !search.is_factor(levels_[b]))
        continue;
      number = static_cast<int32_t>(pairs_.size());
      pairs_.emplace_back(std::minmax({class_of_[a], class_of_[b]}));
    }
  }
}

template <class Fn>
void Covering::for_each_pair(std::span<const Level> levels, Fn fn) const {
  const std::vector<int32_t> numbers = numbers_of(levels, levels_);
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (size_t j = i + 1; j < numbers.size(); ++j) {
      const int32_t pair =
          numbers_[place_of(static_cast<size_t>(numbers[i]), static_cast<size_t>(numbers[j]))];
      if (pair >= 0) fn(static_cast<size_t>(pair));
    }
  }
}

void Covering::fill_rows(Search& search) {
  const size_t n = levels_.size();
  PairSet met(pairs_.size());
  const auto gain = [&](const std::vector<Level>& row) {
    int64_t pairs = 0;
    PairSet with = met;
    for_each_pair(row, [&](size_t pair) {
      pairs += with[pair] ? 0 : 1;
      with[pair] = true;
    });
    return pairs;
  };
  const auto is_missing = [&](int32_t a, int32_t b) {
    const int32_t pair = numbers_[place_of(static_cast<size_t>(a), static_cast<size_t>(b))];
    return pair >= 0 && !met[static_cast<size_t>(pair)];
  };
  std::vector<bool> used(n);
  const auto add_row = [&](std::vector<Level> row) {
    add(row, &met);
    for (const int32_t level : numbers_of(row, levels_)) used[level] = true;
    rows_.push_back(std::move(row));
  };
  for (size_t next = 0; next < pairs_.size(); ++next) {
    while (!met[next]) {
      const auto [a, b] = search.levels_with(pairs_[next], class_of_);
      std::vector<Level> best = search.cases[static_cast<size_t>(search.witness[a][b])];
      int64_t most = gain(best);
      for (int t = 0; t < kRowTries; ++t) {
        std::vector<Level> row = search.greedy(a, b, is_missing);
        if (const int64_t more = gain(row); more > most) most = more, best = std::move(row);
      }
      add_row(std::move(best));
    }
  }
  for (size_t level = 0; level < n; ++level)
    if (!used[level]) add_row(search.cases[static_cast<size_t>(search.witness[level][level])]);
}

/// A run that ends within the rows has met many pairs: the row that adds the most comes next.
void Covering::order_rows() {
  std::vector<std::vector<size_t>> pairs_of(rows_.size()), rows_with(pairs_.size());
  std::vector<int64_t> gains(rows_.size());  // pairs that a row adds; -1: it has its place
  for (size_t row = 0; row < rows_.size(); ++row) {
    PairSet met(pairs_.size());
    add(rows_[row], &met);
    for (size_t pair = 0; pair < met.size(); ++pair) {
      if (!met[pair]) continue;
      pairs_of[row].push_back(pair), rows_with[pair].push_back(row);
      ++gains[row];
    }
  }
  std::vector<std::vector<Level>> ordered;
  while (ordered.size() < rows_.size()) {
    const auto best = static_cast<size_t>(std::ranges::max_element(gains) - gains.begin());
    for (const size_t pair : pairs_of[best])
      for (const size_t row : std::exchange(rows_with[pair], {})) --gains[row];
    gains[best] = -1;
    ordered.push_back(std::move(rows_[best]));
  }
  rows_ = std::move(ordered);
}

Wishes Covering::wishes(uint64_t seed, uint64_t n) const {
  Wishes wishes = {always_};
  if (rows_.empty()) return wishes;
  const uint64_t pass = n / rows_.size();
  size_t row = n % rows_.size();
  if (pass > 0) row = order_of(rows_.size(), Rng::stream(seed, pass))[row];
  Rng rng = Rng::stream(~seed, n);
  for (const Level& level : rows_[row])
    if (pass % 2 == 0 || rng.below(2) == 0) wishes.levels.push_back(level);
  return wishes;
}

Wishes Covering::wishes(uint64_t seed, uint64_t n, const OtherLevels& others) const {
  const uint64_t round = n / others.every, place = n % others.every;
  if (place != others.at) return wishes(seed, n - round - (place > others.at ? 1 : 0));
  Wishes all = wishes(seed, rows_.size() + round);
  const auto at = std::ranges::find(all.levels, others.factor, &Level::factor);
  at->value = 1 + static_cast<int64_t>(round % static_cast<uint64_t>(others.levels));
  return all;
}

std::string Covering::text_of_class(int32_t level) const {
  const auto at = static_cast<size_t>(level);
  if (counts_alone_[at]) return levels_[at].to_string();
  const auto least = std::ranges::min(levels_, {}, [&](const Level& other) {
    return other.factor == levels_[at].factor ? other.value : std::numeric_limits<int64_t>::max();
  });
  return std::string(least.factor) + " > " + least.text(least.value);
}

std::string Covering::text_of(size_t pair) const {
  return text_of_class(pairs_[pair].first) + " x " + text_of_class(pairs_[pair].second);
}

void Covering::add(std::span<const Level> levels, PairSet* met) const {
  for_each_pair(levels, [&](size_t pair) { (*met)[pair] = true; });
}

RoundPlace place_in_rounds(std::span<const size_t> kinds, uint64_t seed, uint64_t number) {
  const uint64_t round = number / kinds.size();
  const std::vector<size_t> order = order_of(kinds.size(), Rng::stream(seed, round));
  const auto place = order.begin() + static_cast<std::ptrdiff_t>(number % kinds.size());
  const size_t kind = kinds[*place];
  const auto is_kind = [&](size_t at) { return kinds[at] == kind; };
  const auto before = std::count_if(order.begin(), place, is_kind);
  return {kind, round * static_cast<uint64_t>(std::ranges::count(kinds, kind)) +
                    static_cast<uint64_t>(before)};
}

}  // namespace shadowgraph
