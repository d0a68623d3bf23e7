#include "runtime/kv_pool.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/laws.h"

namespace shadowgraph {
namespace {

/// One plane of a layer, of one pool: [pages, page_size, heads, dim]; a latent has no head axis.
BufferSpec plane_of(const KvPoolSpec& spec, const RuntimeConfig& config, bool window,
                    std::string name, int64_t dim) {
  const int64_t pages = int64_t{window ? config.swa_pages : config.num_pages} + 1;
  BufferSpec b;
  b.name = std::move(name), b.dtype = spec.dtype, b.granule = dim;
  b.shape = {pages, config.page_size, spec.num_kv_heads, dim};
  if (spec.latent) b.shape.erase(b.shape.begin() + 2);
  return b;
}

std::vector<BufferSpec> planes_of(const KvPoolSpec& spec, const RuntimeConfig& config) {
  std::vector<BufferSpec> specs;
  for (size_t i = 0; i < spec.window_layers.size(); ++i) {
    const bool window = spec.window_layers[i];
    const std::string layer = std::to_string(i);
    if (spec.latent) {
      specs.push_back(plane_of(spec, config, window, "kv" + layer, spec.head_dim_qk));
      continue;
    }
    specs.push_back(plane_of(spec, config, window, "k" + layer, spec.head_dim_qk));
    specs.push_back(plane_of(spec, config, window, "v" + layer, spec.head_dim_vo));
  }
  return specs;
}

Status check(const RuntimeConfig& config, const KvPoolSpec& spec) {
  Status status = validate(config);
  const auto window = std::ranges::count(spec.window_layers, true);
  if (window > 0 && config.swa_pages == 0)
    status.add(make_finding("pool.shape", at("window_layers"), "none: there is one pool",
                            std::to_string(window)));
  if (spec.latent && (spec.num_kv_heads != 1 || spec.head_dim_vo > spec.head_dim_qk))
    status.add(make_finding("pool.shape", at("latent"), "one head, its value part of its key",
                            std::to_string(spec.num_kv_heads) + " heads"));
  return status;
}

}  // namespace

Status TokenToKvPool::bind(Arena arena, Stream& stream, const RuntimeConfig& config,
                           const KvPoolSpec& spec, std::optional<TokenToKvPool>* pool) {
  Status status = check(config, spec);
  if (!status.ok()) return status;
  std::vector<BufferSpec> specs = planes_of(spec, config);
  const int64_t slots = (int64_t{config.num_pages} + 1) * config.page_size;
  specs.push_back({.name = "req_to_token", .shape = {config.max_requests + 1, config.width()}});
  if (config.swa_pages > 0)
    specs.push_back({.name = "full_to_swa", .dtype = DType::kI64, .shape = {slots + 1}});
  TokenToKvPool p;
  status = arena.bind(specs, &p.planes_);
  if (!status.ok()) return status;
  p.arena_ = std::move(arena), p.spec_ = spec;
  if (config.swa_pages > 0) p.swa_table_ = p.planes_.back(), p.planes_.pop_back();
  p.table_ = p.planes_.back(), p.planes_.pop_back();
  std::array<int32_t, 2> count{};
  for (const bool window : spec.window_layers) p.layers_.push_back({count[window]++, window});
  for (const Buffer& plane : p.planes_)
    stream.fill(plane.data, 0, plane.bytes() / static_cast<size_t>(plane.shape[0]));
  *pool = std::move(p);
  return status;
}

KvCache TokenToKvPool::cache(size_t layer) const {
  if (spec_.latent) return KvCache::mla_latent(planes_[layer].view(), spec_.head_dim_vo);
  return KvCache::nhd(planes_[2 * layer].view(), planes_[2 * layer + 1].view());
}

ConstTensorView TokenToKvPool::full_to_swa() const {
  return swa_table_.data == nullptr ? ConstTensorView() : ConstTensorView(swa_table_.view());
}

Status TokenToKvPool::own(const Buffer& buffer, Elements elements,
                          std::span<const OwnerId> owners) {
  Status status = arena_.set_owner(buffer, elements, owners.empty() ? 0 : owners[0]);
  for (const OwnerId owner : owners) status.add(arena_.add_owner(buffer, elements, owner));
  return status;
}

Status TokenToKvPool::update_page(bool window, int64_t page, bool fresh,
                                  std::span<const OwnerId> owners) {
  Status status;
  const size_t planes = spec_.latent ? 1 : 2;
  for (size_t i = 0; i < planes_.size(); ++i) {
    if (layers_[i / planes].window != window) continue;
    const Elements elements = planes_[i].rows(page, 1);
    if (fresh) status.add(arena_.retire(planes_[i], elements));
    status.add(own(planes_[i], elements, owners));
  }
  return status;
}

Status TokenToKvPool::update_pages(bool window, std::vector<std::vector<OwnerId>> owners,
                                   const std::vector<uint32_t>& takes,
                                   const std::vector<bool>& taken) {
  Known& known = window ? window_ : full_;
  known.takes.resize(takes.size()), known.owners.resize(takes.size());
  Status status;
  for (size_t page = 1; page < takes.size(); ++page) {
    std::vector<OwnerId>& now = owners[page];
    if (now.empty() && taken[page]) now.push_back(kCache);
    const bool again = takes[page] != known.takes[page];
    const bool freed = now.empty() && !known.owners[page].empty();
    if (!again && now == known.owners[page]) continue;
    status.add(update_page(window, static_cast<int64_t>(page), again || freed, now));
    known.takes[page] = takes[page], known.owners[page] = std::move(now);
  }
  return status;
}

Status TokenToKvPool::update(const PoolState& state) {
  Owners owners = owners_of(state);
  Status status = arena_.write(table_, 0, std::span(state.req_to_token));
  if (swa_table_.data != nullptr)
    status.add(arena_.write(swa_table_, 0, std::span(state.full_to_swa)));
  status.add(update_pages(false, std::move(owners.pages), state.takes, state.taken));
  status.add(update_pages(true, std::move(owners.swa_pages), state.swa_takes, state.swa_taken));
  rows_.resize(owners.rows.size());
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row] == owners.rows[row]) continue;
    rows_[row] = owners.rows[row];
    status.add(own(table_, table_.rows(static_cast<int64_t>(row), 1), {&rows_[row], 1}));
  }
  return status;
}

void TokenToKvPool::copy(Stream& stream, std::span<const SlotCopy> copies,
                         const PoolState& state) const {
  const size_t planes = spec_.latent ? 1 : 2;
  for (size_t i = 0; i < planes_.size(); ++i) {
    const Buffer& plane = planes_[i];
    const size_t bytes = plane.bytes() / static_cast<size_t>(plane.shape[0] * plane.shape[1]);
    const auto address = [&](int32_t slot) {
      const int64_t in_pool =
          layers_[i / planes].window ? state.full_to_swa[static_cast<size_t>(slot)] : slot;
      return plane.data + static_cast<size_t>(in_pool) * bytes;
    };
    for (const SlotCopy& c : copies) stream.copy(address(c.to), address(c.from), bytes);
  }
}

}  // namespace shadowgraph
