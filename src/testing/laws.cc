// The checks of testing.h: each finds every element that breaks its law.
#include "core/laws.h"

#include <algorithm>
#include <string>

#include "attn/page_table.h"
#include "shadowgraph/testing.h"
#include "testing/poison.h"

namespace shadowgraph::testing {
namespace {

/// Judges one array, or a part of it.
template <class T>
class Check {
 public:
  explicit Check(const Values<T>& values) : v_(values) {}

  Status take() { return std::move(status_); }
  int64_t size() const { return v_.size(); }
  T operator[](int64_t i) const { return v_.elements[static_cast<size_t>(i)]; }

  void fail(LawId law, Where where, std::string expected, int64_t got) {
    status_.add(make_finding(law, std::move(where), std::move(expected), std::to_string(got)));
  }
  Where where(int64_t i) const { return at(std::string(v_.name), v_.first + i); }
  Where whole() const { return at(std::string(v_.name)); }

  bool holds(int64_t count, LawId law = "len.batch") {
    if (size() >= count) return true;
    fail(law, whole(), ">= " + std::to_string(count) + " elements", size());
    return false;
  }
  bool written(int64_t i, Where where) {
    const std::optional<int> age = poison_age((*this)[i]);
    if (age == 0)
      status_.add(make_finding("mem.uninit_read", std::move(where), "written", "never written"));
    else if (age)
      status_.add(make_finding("mem.stale_input", std::move(where), "written in this step",
                               "last written " + std::to_string(*age) + " steps before"));
    return !age;
  }
  bool written(int64_t i) { return written(i, where(i)); }
  /// Element i is what is expected there.
  void equals(LawId law, int64_t i, int64_t expected) {
    if (written(i) && (*this)[i] != expected)
      fail(law, where(i), std::to_string(expected), (*this)[i]);
  }
  /// table.page_id
  void is_page(int64_t i, Where where, int64_t pages) {
    if ((*this)[i] < 0 || (*this)[i] >= pages)
      fail("table.page_id", std::move(where), "0 <= id < " + std::to_string(pages), (*this)[i]);
  }

 private:
  const Values<T>& v_;
  Status status_;
};

template <class T>
Status all_written(const Values<T>& values) {
  Check<T> check(values);
  for (int64_t i = 0; i < check.size(); ++i) check.written(i);
  return check.take();
}

/// The first elements are these.
template <class T>
Status begins_with(LawId law, const Values<T>& values, std::span<const int32_t> expected) {
  Check<T> check(values);
  if (!check.holds(std::ssize(expected))) return check.take();
  for (int64_t i = 0; i < std::ssize(expected); ++i)
    check.equals(law, i, expected[static_cast<size_t>(i)]);
  return check.take();
}

/// What a row's keys are in a table.
struct Pages {
  int32_t unit;   // tokens of a column
  int64_t count;  // that there are
};

/// Column c of a row, element i: the page of its first key, which is all of its keys'.
template <class T>
void check_page(Check<T>& check, int64_t i, int64_t row, int64_t c, const Pages& pages,
                std::span<const int32_t> keys) {
  Where where = check.where(i);
  where.row = row, where.col = c;
  if (!check.written(i, where)) return;
  const int64_t slot = keys[static_cast<size_t>(c * pages.unit)];
  const int64_t expected = slot / pages.unit, got = check[i];
  if (got == expected) return;
  if (got == slot) {
    check.fail("table.unit", std::move(where), std::to_string(expected), got);
  } else if (got < 0 || got >= pages.count) {
    check.is_page(i, std::move(where), pages.count);
  } else {
    check.fail("table.slot", std::move(where), std::to_string(expected), got);
  }
}

/// Lists of rows whose offsets are right.
template <class T>
Status csr(const Values<int32_t>& indptr, const Values<T>& indices, const Pages& pages,
           const Truth& truth) {
  const std::vector<int32_t> counts = truth.num_pages(pages.unit);
  Status status = check_indptr(indptr, counts, indices.size());
  Check<T> check(indices);
  for (int64_t r = 0; r < truth.rows() && r + 1 < indptr.size(); ++r) {
    const auto row = static_cast<size_t>(r);
    const int64_t first = indptr.elements[row], count = indptr.elements[row + 1] - first;
    if (first < 0 || count != counts[row] || first + count > indices.size()) continue;
    for (int64_t c = 0; c < count; ++c) check_page(check, first + c, r, c, pages, truth.keys[row]);
  }
  status.add(check.take());
  return status;
}

template <class T>
Status slots_of(const Values<T>& slots, const Truth& truth) {
  Status status = begins_with("slot.write", slots, truth.stored);
  Check<T> check(slots);
  for (int64_t i = std::ssize(truth.stored); i < check.size(); ++i)
    check.equals("slot.write", i, 0);
  status.add(check.take());
  return status;
}

}  // namespace

Status check_written(const Values<int32_t>& values) { return all_written(values); }
Status check_written(const Values<int64_t>& values) { return all_written(values); }
Status check_written(const Values<uint8_t>& values) { return all_written(values); }

Status check_kv_lens(const Values<int32_t>& lens, const Truth& truth) {
  return begins_with("len.kv_extent", lens, truth.kv_lens);
}

Status check_q_lens(const Values<int32_t>& lens, const Truth& truth) {
  return begins_with("len.q_extent", lens, truth.q_lens);
}

Status check_padding(const Values<int32_t>& values, int32_t least, int32_t most) {
  Check<int32_t> check(values);
  for (int64_t i = 0; i < check.size(); ++i) {
    if (check.written(i) && (check[i] < least || check[i] > most))
      check.fail("len.padding", check.where(i),
                 std::to_string(least) + " to " + std::to_string(most), check[i]);
  }
  return check.take();
}

Status check_longest(std::string_view name, int64_t longest, std::span<const int32_t> lens) {
  Status status;
  const int64_t least = lens.empty() ? 0 : std::ranges::max(lens);
  if (longest < least)
    status.add(make_finding("len.bound", at(std::string(name)), ">= " + std::to_string(least),
                            std::to_string(longest)));
  return status;
}

Status check_indptr(const Values<int32_t>& indptr, std::span<const int32_t> counts,
                    int64_t capacity) {
  Check<int32_t> check(indptr);
  check.holds(std::ssize(counts) + 1);
  bool before = false;  // the one before is written
  for (int64_t i = 0; i < check.size(); ++i) {
    const bool steps = std::exchange(before, check.written(i)) && before;
    if (!before) continue;
    const int64_t offset = check[i];
    if (i == 0 && offset != 0) check.fail("len.indptr_first", check.where(0), "0", offset);
    if (offset > capacity)
      check.fail("len.total", check.where(i), "<= " + std::to_string(capacity), offset);
    if (!steps) continue;
    const int64_t last = check[i - 1];
    if (offset < last) {
      check.fail("len.indptr_monotone", check.where(i), ">= " + std::to_string(last), offset);
    } else if (i <= std::ssize(counts) && offset - last != counts[static_cast<size_t>(i) - 1]) {
      const int32_t count = counts[static_cast<size_t>(i) - 1];
      check.fail("len.q_extent", check.where(i),
                 std::to_string(last + count) + ", " + std::to_string(count) + " more", offset);
    }
  }
  return check.take();
}

Status check_page_table(const Values<int32_t>& table, int64_t columns, int32_t unit, int64_t pages,
                        const Truth& truth) {
  Check<int32_t> check(table);
  if (!check.holds(truth.rows() * columns)) return check.take();
  const std::vector<int32_t> counts = truth.num_pages(unit);
  for (int64_t r = 0; r < truth.rows(); ++r) {
    const int64_t count = counts[static_cast<size_t>(r)];
    if (count > columns)
      check.fail("table.capacity", check.where(r), ">= " + std::to_string(count) + " columns",
                 columns);
    for (int64_t c = 0; c < std::min(count, columns); ++c)
      check_page(check, r * columns + c, r, c, {unit, pages}, truth.keys[static_cast<size_t>(r)]);
  }
  return check.take();
}

Status check_csr(const Values<int32_t>& indptr, const Values<int32_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth) {
  return csr(indptr, indices, {unit, pages}, truth);
}

Status check_csr(const Values<int32_t>& indptr, const Values<int64_t>& indices, int32_t unit,
                 int64_t pages, const Truth& truth) {
  return csr(indptr, indices, {unit, pages}, truth);
}

Status check_last_page_len(const Values<int32_t>& lens, int32_t page_size, const Truth& truth) {
  std::vector<int32_t> expected;
  for (const int32_t kv_len : truth.kv_lens)
    expected.push_back(static_cast<int32_t>(last_page_len_for(kv_len, page_size)));
  return begins_with("len.last_page", lens, expected);
}

Status check_page_ids(const Values<int32_t>& ids, int64_t pages) {
  Check<int32_t> check(ids);
  for (int64_t i = 0; i < check.size(); ++i) {
    if (check.written(i)) check.is_page(i, check.where(i), pages);
  }
  return check.take();
}

Status check_slots(const Values<int32_t>& slots, const Truth& truth) {
  return slots_of(slots, truth);
}

Status check_slots(const Values<int64_t>& slots, const Truth& truth) {
  return slots_of(slots, truth);
}

Status check_mask(const Values<uint8_t>& mask, const Truth& truth) {
  Check<uint8_t> check(mask);
  if (!check.holds(std::ssize(truth.mask), "mask.size")) return check.take();
  for (int64_t i = 0; i < std::ssize(truth.mask); ++i)
    check.equals("mask.bit", i, truth.mask[static_cast<size_t>(i)]);
  return check.take();
}

}  // namespace shadowgraph::testing
