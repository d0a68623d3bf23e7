#include "fuzz/mutate/mutant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "attn/page_table.h"
#include "attn/visit/visit_recurrent.h"
#include "attn/visit/visit_sparse.h"
#include "check/bounds/linear_bound.h"
#include "core/float_formats.h"
#include "fuzz/call/call_members.h"
#include "fuzz/mutate/member_mutations.h"

namespace shadowgraph {
namespace {

template <class T>
double load_as(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<double>(value);
}
double load_number(const std::byte* data, DType type) {
  switch (type) {
    case DType::kI32: return load_as<int32_t>(data);
    case DType::kI64: return load_as<int64_t>(data);
    case DType::kF64: return load_as<double>(data);
    case DType::kI8: return load_as<int8_t>(data);
    case DType::kU8:
    case DType::kBool: return load_as<uint8_t>(data);
    default: return static_cast<double>(load_float(data, type, 0));
  }
}

template <class T>
void store_as(double x, std::byte* data) {
  T value;
  if constexpr (std::is_integral_v<T>) {
    value = std::abs(x) < 0x1p31 ? static_cast<T>(static_cast<int64_t>(x)) : T{0};
  } else {
    value = static_cast<T>(x);
  }
  std::memcpy(data, &value, sizeof value);
}
void store_number(double x, DType type, std::byte* data) {
  switch (type) {
    case DType::kI32: return store_as<int32_t>(x, data);
    case DType::kI64: return store_as<int64_t>(x, data);
    case DType::kF64: return store_as<double>(x, data);
    case DType::kI8: return store_as<int8_t>(x, data);
    case DType::kU8:
    case DType::kBool: return store_as<uint8_t>(x, data);
    default: return store_float(data, type, 0, static_cast<float>(x));
  }
}

template <class T>
std::vector<T> grown(std::span<const T> list, size_t by, T with) {
  std::vector<T> longer(list.begin(), list.end());
  longer.insert(longer.end(), by, with);
  return longer;
}

/// Other ways to name the pages, by what a table means.
void add_tables(MemberMutations& m, PagedAttention& c) {
  PageTable& t = c.pages;
  const auto both = [&m, &c](PageTable::Form form) {
    const int64_t width = c.pages.form == PageTable::Form::kDense ? c.pages.max_pages
                                                                  : std::ssize(c.pages.kv_indices);
    const DenseTable dense = to_dense(c.pages, c.cache.page_size, width, 0);
    const CsrTable csr = to_csr(c.pages, c.cache.page_size);
    if (c.pages.form == PageTable::Form::kDense) {
      m.put(&c.pages.kv_indptr, csr.kv_indptr), m.put(&c.pages.kv_indices, csr.kv_indices);
      m.put(&c.pages.last_page_len, csr.last_page_len);
    } else {
      m.put(&c.pages.page_table, dense.page_table);
      m.put(&c.pages.cache_seqlens, dense.cache_seqlens), c.pages.max_pages = width;
    }
    c.pages.form = form;
  };
  for (const auto form : {PageTable::Form::kDense, PageTable::Form::kCsr})
    m.add(
        "pages", form == t.form ? "with lists of the other form, too" : "of both forms",
        kTableMutation, [both, form] { both(form); }, Expect::kRefused);
  // Scratch of exactly its size is for the keys that a table of that size can name.
  const Expect expect = c.options.scratch.empty() ? Expect::kTaken : Expect::kEither;
  if (t.form == PageTable::Form::kCsr) {
    const auto longer = [&m, &t] { m.put(&t.kv_indices, grown(t.kv_indices, 5, INT32_MIN)); };
    return m.add("kv_indices", "with a tail of no pages", kTableMutation, longer, expect);
  }
  const auto one_row_more = [&m, &t] {
    m.put(&t.page_table, grown(t.page_table, static_cast<size_t>(t.max_pages), INT32_MIN));
  };
  m.add("page_table", "with a row of nobody", kTableMutation, one_row_more, Expect::kTaken);
  const auto wider = [&m, &t] {
    std::vector<int32_t> wide;
    const auto width = static_cast<size_t>(t.max_pages++);
    for (size_t row = 0; row < t.cache_seqlens.size(); ++row) {
      const auto ids = t.page_table.subspan(row * width, width);
      wide.insert(wide.end(), ids.begin(), ids.end());
      wide.push_back(INT32_MIN);
    }
    m.put(&t.page_table, wide);
  };
  m.add("page_table", "a page wider", kTableMutation, wider, expect);
}

template <class Call>
void add_own(MemberMutations&, Call&) {}
void add_own(MemberMutations& m, PagedAttention& c) { add_tables(m, c); }

std::vector<Mutation> contradictions(std::vector<Breakage> ways) {
  std::vector<Mutation> all;
  for (Breakage& b : ways)
    all.push_back(
        {std::move(b.name), &kContradiction, "", Expect::kRefused, b.law, std::move(b.apply)});
  return all;
}

}  // namespace

void copy_elements(const ConstTensorView& from, const TensorView& to) {
  const auto size = static_cast<int64_t>(size_of(from.dtype));
  const auto to_size = static_cast<int64_t>(size_of(to.dtype));
  for (int64_t i = 0; i < from.numel(); ++i) {
    const std::byte* source = from.data + element_offset(from, i) * size;
    std::byte* target = to.data + element_offset(to, i) * to_size;
    if (from.dtype == to.dtype) {
      std::memcpy(target, source, static_cast<size_t>(size));
    } else {
      store_number(load_number(source, from.dtype), to.dtype, target);
    }
  }
}

void fill_elements(const TensorView& t, double with) {
  const auto size = static_cast<int64_t>(size_of(t.dtype));
  for (int64_t i = 0; i < t.numel(); ++i)
    store_number(with, t.dtype, t.data + element_offset(t, i) * size);
}

template <class AnyCall>
Mutant<AnyCall>::Mutant(const AnyCall& legal)
    : call(legal), members_(std::make_unique<MemberMutations>(&memory)) {
  mutations_ = contradictions(breakages(&call, &spoils_));
  std::visit(
      [this](auto& c) {
        visit_members(members_->sizes(), c);
        visit_members(*members_, c);
        if constexpr (requires { visit_args(*members_, c); }) visit_args(*members_, c);
        add_own(*members_, c);
      },
      call);
  std::vector<Mutation> others = members_->take();
  std::move(others.begin(), others.end(), std::back_inserter(mutations_));
}

template <class AnyCall>
Mutant<AnyCall>::~Mutant() = default;

template <class AnyCall>
const Mutation& Mutant<AnyCall>::apply(size_t i) {
  mutations_[i].apply();
  memory.remember();
  return mutations_[i];
}

template class Mutant<AttentionCall>;
template class Mutant<MergeCall>;
template class Mutant<StateCall>;
template class Mutant<GateCall>;
template class Mutant<SparseCall>;
template class Mutant<CacheCall>;

bool is_about(const Finding& finding, const Mutation& m) {
  if (m.law) return finding.id == m.law->law().id;
  const bool of_kind = std::ranges::any_of(
      m.kind->laws, [&](std::string_view law) { return finding.id.starts_with(law); });
  return of_kind &&
         (!m.kind->names_member || finding.where.field.find(m.member) != std::string::npos);
}

}  // namespace shadowgraph
