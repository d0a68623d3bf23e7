#include "fuzz/call/sparse_scene.h"

#include <functional>
#include <numeric>
#include <utility>

#include "check/bounds/recurrent_compare.h"

namespace shadowgraph {

SparseArrangement SparseArrangement::of(const Case& x) {
  SparseArrangement a;
  a.calls.emplace_back();
  const auto& s = std::get<SparseCase>(x.call);
  for (size_t r = 0; r < s.rows.size(); ++r) {
    const bool tokens = s.call == SparseCase::Call::kCompress;
    a.calls[0].push_back({static_cast<int64_t>(r), 0, tokens ? s.rows[r].count : 1});
  }
  arrange_as(x, &a);
  a.options.lse_sink = s.lse_sink;
  return a;
}

std::string SparseArrangement::to_string() const {
  std::string s = describe_rows();
  if (holes) s += ", -1 between keys";
  if (ragged[0] || ragged[1]) s += ", ragged";
  if (!paged) s += ", keys one after the other";
  if (poison_unread) s += ", poison in all that the footprint does not read";
  return s;
}

SparseScene::SparseScene(const Case& x, const SparseData& data, const SparseArrangement& how)
    : x_(std::get<SparseCase>(x.call)), data_(data), how_(how), rng_(how.seed) {
  switch (x_.call) {
    case SparseCase::Call::kPack: add_pack_pool(); break;
    case SparseCase::Call::kStoreKeys: add_index_pages(); break;
    case SparseCase::Call::kCompress: add_state(); break;
    default: break;
  }
}

TensorView SparseScene::add_column(const char* field, DType type, int64_t rows) {
  TensorView t = add(field, type, {rows, 1});
  t.rank = 1;
  return t;
}

TensorView SparseScene::lay_all(const char* field, const LogicalTensor& from,
                                std::initializer_list<int64_t> shape) {
  const TensorView t = add(field, from.dtype, shape);
  scatter(from.bytes, t);
  return t;
}

void SparseScene::lay_rows(const TensorView& to, const LogicalTensor& from) const {
  for (size_t i = 0; i < count(); ++i) {
    const RowPiece& p = pieces_[i];
    if (p.row == RowPiece::kNobody) continue;
    scatter({from.row(p.row, 0), static_cast<size_t>(from.heads * from.row_bytes())},
            at_place(to, static_cast<int64_t>(i)));
  }
}

TensorView SparseScene::add_pool(CallMemory* memory, const char* field, DType type,
                                 std::vector<int64_t>&& shape) {
  if (!how_.far) return memory->add(field, type, shape, rng_);
  const int64_t before =
      rows_before(std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies()));
  shape[0] += before;
  return memory->add_far(field, type, shape, before);
}

std::vector<int64_t> SparseScene::shuffled(int64_t places, int64_t first) {
  std::vector<int64_t> list(static_cast<size_t>(places));
  std::iota(list.begin(), list.end(), first);
  shuffle(list, rng_);
  return list;
}

void SparseScene::leave_rows(const TensorView& out, bool beside) {
  written_.emplace_back(out);
  for (size_t i = 0; i < count(); ++i) {
    if (pieces_[i].row == RowPiece::kNobody) continue;
    const ConstTensorView row = at_place(ConstTensorView(out), static_cast<int64_t>(i));
    const auto index = static_cast<size_t>(pieces_[i].row);
    left_.push_back({index, {}, {}});
    (beside ? left_.back().beside : left_.back().out).push_back(row);
  }
}

void SparseScene::lay(size_t index) {
  memory_ = CallMemory();
  written_.clear(), left_.clear();
  pieces_ = how_.calls[index];
  const auto idle = [&] {
    return RowPiece{RowPiece::kNobody, 0, static_cast<int32_t>(rng_.below(3))};
  };
  add_idle_rows(how_.idle_rows, idle, rng_, &pieces_);
  const auto make = [&]<size_t... I>(std::index_sequence<I...>) {
    const auto one = [&](auto call) {
      call.options = how_.options;
      lay_call(&call);
      call_ = call;
    };
    ((static_cast<size_t>(x_.call) == I ? one(std::variant_alternative_t<I, SparseCall>())
                                        : void()),
     ...);
  };
  make(std::make_index_sequence<std::variant_size_v<SparseCall>>());
  guard_lists(rng_);
  if (how_.poison_unread) {
    const Footprint spans = footprint_of(call_);
    memory_.poison_unread(spans);
    // What later calls read is not poisoned.
    if (how_.calls.size() == 1) stored_memory_.poison_unread(spans);
  }
  memory_.remember(), stored_memory_.remember();
}

SparseCall SparseScene::truth() const {
  SparseCall call = call_;
  const auto before = [&](const TensorView& t) {
    return const_cast<std::byte*>(stored_memory_.before(t).data);
  };
  if (auto* c = std::get_if<PackLatents>(&call)) c->pool.data.data = before(c->pool.data);
  if (auto* c = std::get_if<StoreIndexKeys>(&call)) c->pages.data = before(c->pages);
  if (auto* c = std::get_if<Compress>(&call)) c->state.data = before(c->state);
  return call;
}

void SparseScene::collect(RowResults* results) const {
  const auto take = [](const std::vector<ConstTensorView>& views, std::vector<std::byte>* to) {
    for (const ConstTensorView& view : views) {
      const std::vector<std::byte> bytes = gather(view);
      to->insert(to->end(), bytes.begin(), bytes.end());
    }
  };
  for (const Left& left : left_) {
    take(left.out, &results->out[left.index]);
    take(left.beside, &results->beside[left.index]);
  }
}

}  // namespace shadowgraph
