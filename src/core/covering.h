// Covering: wishes with which random cases meet every pair of levels early. Nobody lists what can
// stand together: a generator is asked by trying. Of a number two levels may count, its least
// value and any larger one ("topk > 1"): a feature is there or not, and how large comes at random.
// Tested by tests/core/covering_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/choices.h"

namespace shadowgraph {

/// Pairs of levels by number; those that were met are true.
using PairSet = std::vector<bool>;

/// One case in `every`, the one behind `at` others, has another level of `factor`, which all cases
/// have as a wish: 1 to `levels`, in turn.
struct OtherLevels {
  std::string_view factor;
  int64_t levels;
  uint64_t every, at;
};

class Covering {
 public:
  /// Draws a case, and gives its levels: those of the named draws, and what a run of it may reach.
  using Draw = std::function<std::vector<Level>(Choices&)>;
  using InFull = std::function<bool(std::string_view factor)>;
  /// always: wishes that all cases have; they are no factors, and neither is what has one level.
  /// in_full: does every value of that number count, or two levels? Tries some thousand cases, the
  /// same ones every time.
  Covering(const Draw& draw, std::vector<Level> always, const InFull& in_full);

  /// Wishes of the n-th case of a seed. The first rows() cases meet all pairs, for any seed;
  /// of the rows that are left, the one with the most new pairs comes next. Behind them the rows
  /// come again in the seed's orders, and every second time with half of their levels, so that
  /// three meet in all ways.
  Wishes wishes(uint64_t seed, uint64_t n) const;
  /// The same, but some cases have a row's levels, half of them at first, with another level of a
  /// factor.
  Wishes wishes(uint64_t seed, uint64_t n, const OtherLevels& others) const;
  size_t rows() const { return rows_.size(); }

  /// How many pairs can stand together; "page_size 4 x topk > 1".
  size_t pairs() const { return pairs_.size(); }
  std::string text_of(size_t pair) const;
  /// Adds the pairs that a case with such levels has. met has the size pairs().
  void add(std::span<const Level> levels, PairSet* met) const;

 private:
  struct Search;

  void classify(const InFull& in_full);
  void number_pairs(const Search& search);
  size_t place_of(size_t a, size_t b) const;  // of two levels' pair in numbers_
  /// fn(pair) for each pair of the levels. A class with several of these levels gives its pairs
  /// more than once.
  template <class Fn>
  void for_each_pair(std::span<const Level> levels, Fn fn) const;
  void fill_rows(Search& search);
  void order_rows();
  std::string text_of_class(int32_t level) const;

  std::vector<Level> always_;

  std::vector<Level> levels_;                       // by number
  std::vector<int32_t> class_of_;                   // of a level: the first that counts as it does
  std::vector<bool> counts_alone_;                  // by level; false: among the larger numbers
  std::vector<std::pair<int32_t, int32_t>> pairs_;  // classes, the smaller number first
  std::vector<int32_t> numbers_;                    // of pairs, by place_of; -1: none
  std::vector<std::vector<Level>> rows_;
};

/// A round over kinds of cases, in which each kind has its places, in an order of the seed's.
struct RoundPlace {
  size_t kind = 0;
  uint64_t visit = 0;  // cases of that kind before this one
};
/// kinds: of the places of a round.
RoundPlace place_in_rounds(std::span<const size_t> kinds, uint64_t seed, uint64_t number);

}  // namespace shadowgraph
