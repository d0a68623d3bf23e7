#include "check/launch_operands.h"

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attn/visit/visit_attention.h"
#include "backends/fill/rows.h"
#include "core/laws.h"
#include "launch/operands.h"
#include "launch/v4_tokens.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {
namespace {

// The tensors that a layer brings beside LayerIo's.
void list_tensors(OperandLister& list, std::monostate) { (void)list; }
void list_tensors(OperandLister& list, const RecurrentTensors* from) {
  RecurrentTensors t = *from;
  for (ConstTensorView* v : {&t.x, &t.weight, &t.conv_bias, &t.gate, &t.a_log, &t.dt_bias, &t.b,
                             &t.skip, &t.z, &t.log_decay})
    list("tensor", *v);
  for (TensorView* v : {&t.conv_states, &t.states, &t.draft_conv_states, &t.draft_states})
    list("tensor", *v);
}
void list_tensors(OperandLister& list, const SparseTensors* from) {
  SparseTensors t = *from;
  for (ConstTensorView* v : {&t.index_q, &t.index_weights, &t.index_k, &t.index_k_scale})
    list("tensor", *v);
  for (TensorView* v : {&t.index_pages, &t.latents.data}) list("tensor", *v);
}
void list_tensors(OperandLister& list, const V4Tensors* from) {
  V4Tensors t = *from;
  for (ConstTensorView* v : {&t.latents, &t.kv_score, &t.ape, &t.weight, &t.freqs, &t.index_scores})
    list("tensor", *v);
  for (TensorView* v : {&t.state, &t.blocks.data, &t.tokens.data}) list("tensor", *v);
  list("tensor", t.sinks);
}

/// All that a layer's launches may name of it.
std::vector<Operand> tensors_of(const LayerIo& given, const LayerKind& kind) {
  std::vector<Operand> all;
  OperandLister list(&all);
  LayerIo io = given;
  std::span<const float> sinks = kind.params.sinks;
  for (ConstTensorView* v : {&io.q, &io.k, &io.v}) list("tensor", *v);
  for (TensorView* v : {&io.out, &io.lse.tensor}) list("tensor", *v);
  list("cache", io.cache);
  list("sinks", sinks);
  std::visit([&](auto own) { list_tensors(list, own); }, io.own);
  return all;
}

/// Elements from the first to the last; 1 where nothing is said.
int64_t extent_of(const ConstTensorView& v, int from_axis = 0) {
  int64_t last = 0;
  for (int i = from_axis; i < v.rank; ++i)
    last += std::max<int64_t>(
        0, (v.shape[static_cast<size_t>(i)] - 1) * v.stride[static_cast<size_t>(i)]);
  return last + 1;
}

std::string to_text(const Operand& o, const Arena& arena) {
  std::string text = o.dtype ? std::string(name_of(*o.dtype)) : "bytes";
  const auto numbers = [&](const char* before, const auto& from) {
    text += before;
    for (int i = 0; i < o.view.rank; ++i)
      text += (i > 0 ? ", " : "") + std::to_string(from[static_cast<size_t>(i)]);
    text += ']';
  };
  if (o.form != Operand::Form::kAddress) numbers(" [", o.view.shape);
  if (o.form == Operand::Form::kView) numbers(" with strides [", o.view.stride);
  return text + " at " + arena.place_of(o.view.data);
}

/// Has the part of each row that is read the place that it was written to? A view may leave out
/// rows (padding) and the end of what each holds (a latent's value), or be cut out of each row.
bool same_rows(const ConstTensorView& wrote, const ConstTensorView& reads, int64_t offset) {
  if (reads.shape[0] > 1 && wrote.shape[0] > 1 && reads.stride[0] != wrote.stride[0]) return false;
  if (reads.shape[0] > wrote.shape[0] || offset + extent_of(reads, 1) > extent_of(wrote, 1))
    return false;
  if (offset != 0 || reads.rank != wrote.rank) return true;
  for (int axis = 1; axis < reads.rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    const bool shorter = axis + 1 == reads.rank && axis > 1;
    if (shorter ? reads.shape[i] > wrote.shape[i] : reads.shape[i] != wrote.shape[i]) return false;
    if (reads.shape[i] > 1 && reads.stride[i] != wrote.stride[i]) return false;
  }
  return true;
}

/// A list says nothing of rows: it begins where it was written, or is one of the equal parts.
bool agree(const Operand& wrote, const Operand& reads) {
  if (wrote.dtype && reads.dtype && *wrote.dtype != *reads.dtype) return false;
  using enum Operand::Form;
  const int64_t size = static_cast<int64_t>(size_of(wrote.dtype.value_or(DType::kU8)));
  const int64_t bytes = reads.view.data - wrote.view.data;
  if (wrote.form == kAddress || reads.form == kAddress) return bytes == 0;
  if (bytes < 0 || bytes % size != 0) return false;
  const int64_t offset = bytes / size;
  if (wrote.form == kView && reads.form == kView) return same_rows(wrote.view, reads.view, offset);
  const int64_t count = extent_of(reads.view);
  // A list of all rows has what lies behind the last row's end, too.
  const int64_t rows = wrote.view.shape[0] * wrote.view.stride[0];
  return offset % count == 0 && offset + count <= std::max(rows, extent_of(wrote.view));
}

class LaunchJudge {
 public:
  LaunchJudge(const Meta& meta, const ModelConfig& model, const StepIo& step)
      : arena_(meta.arena), model_(model), layers_(step.layers) {
    for (size_t i = 0; i < layers_.size(); ++i)
      for (const Operand& o : tensors_of(layers_[i], kind_of(i)))
        add(o.view, {.layer = static_cast<int>(i)});
    for (const ConstTensorView& table : {step.req_to_token, step.full_to_swa})
      if (table.defined()) add(table, {});
    add_meta(meta);
    std::ranges::sort(ranges_, {}, &Range::begin);
  }

  void judge(size_t node, const NodeParams& params) {
    node_ = node;
    launch_ = std::get_if<KernelLaunch>(&params);
    named_.clear();
    if (launch_ != nullptr && launch_->kernel->operands == nullptr) return forget_scratch();
    for (Operand& o : operands_of(params)) name(std::move(o));
    if (named_.empty()) return;
    judged("launch.operands");
    meta_ = most_named(metas_.size(), [](const Of& of) { return of.meta; });
    // A layer's pool is that of all steps of a draft: then the metadata says which step it is.
    layer_ = most_named(layers_.size(), [&](const Of& of) {
      return of.layer >= 0 && is_of_step(of.layer) ? of.layer : -1;
    });
    if (layer_ < 0) layer_ = most_named(layers_.size(), [](const Of& of) { return of.layer; });
    if (layer_ < 0) layer_ = layer_of_scratch();
    for (const Named& n : named_) judge(n);
    for (const bool written : {false, true})
      for (const Named& n : named_)
        if (n.operand.written == written) judge_scratch(n);
  }

  Status take() { return std::move(status_); }

 private:
  /// Whose memory: a layer's of the step, a buffer's of the metadata, or the pools' tables.
  struct Of {
    int layer = -1, meta = -1, buffer = -1;
  };
  struct Range {
    const std::byte *begin, *end;
    Of of;
  };
  struct Named {
    Operand operand;
    std::vector<Of> of;  // several layers may share a pool
  };
  /// The last write of a scratch buffer; read: by a launch since then.
  struct Written {
    Operand operand;
    int layer = -1;
    size_t node = 0;
    const KernelLaunch* launch = nullptr;
    bool read = false;
  };
  struct OfMeta {
    const Meta* meta;
    std::vector<std::vector<bool>> foreign;       // by buffer, kind: it is of other kinds of layers
    std::vector<std::optional<Written>> written;  // by buffer
  };

  const LayerKind& kind_of(size_t layer) const {
    return model_.layers[static_cast<size_t>(layers_[layer].kind)];
  }
  /// Layers of every step of a draft, one step after the other.
  bool is_whole_draft() const { return layers_.size() > model_.layers.size(); }
  int32_t step_of(int layer) const {
    return static_cast<int32_t>(static_cast<size_t>(layer) / model_.layers.size());
  }
  bool is_of_step(int layer) const {
    return !is_whole_draft() || meta_ < 0 ||
           metas_[static_cast<size_t>(meta_)].meta->limits.step == step_of(layer);
  }
  void add(const ConstTensorView& v, const Of& of) {
    const int64_t bytes = extent_of(v) * static_cast<int64_t>(size_of(v.dtype));
    ranges_.push_back({v.data, v.data + bytes, of});
  }
  void add_meta(const Meta& meta) {
    for (const Meta& child : meta.children) add_meta(child);
    if (meta.buffers.empty()) return;
    const int number = static_cast<int>(metas_.size());
    for (size_t b = 0; b < meta.buffers.size(); ++b)
      if (meta.has(b)) add(meta[b].view(), {.meta = number, .buffer = static_cast<int>(b)});
    metas_.push_back({&meta, foreign_buffers(meta), {}});
    metas_.back().written.resize(meta.buffers.size());
  }
  std::vector<std::vector<bool>> foreign_buffers(const Meta& meta) const;
  bool is_of_other_slots(const BufferInfo& row, const LayerKind& kind) const;

  void name(Operand o) {
    Named& n = named_.emplace_back();
    for (const Range& r : ranges_) {
      if (o.view.data < r.begin) break;
      if (o.view.data < r.end) n.of.push_back(r.of);
    }
    n.operand = std::move(o);
    if (n.of.empty()) {
      fail("launch.operands", n.operand, "memory that is declared for this step",
           arena_.place_of(n.operand.view.data));
      named_.pop_back();
    }
  }
  /// The owner of most of the launch's operands, the first of equals; -1: none has one.
  template <class Number>
  int most_named(size_t count, Number number) const {
    std::vector<int> votes(count);
    const auto each = [&](auto fn) {
      for (const Named& n : named_)
        for (const Of& of : n.of)
          if (number(of) >= 0) fn(number(of), votes[static_cast<size_t>(number(of))]);
    };
    each([](int, int& n) { ++n; });
    int most = -1;
    each([&](int i, int n) {
      if (most < 0 || n > votes[static_cast<size_t>(most)]) most = i;
    });
    return most;
  }
  std::optional<Written>* scratch_of(const Named& n) {
    for (const Of& of : n.of) {
      if (of.meta != meta_ || of.meta < 0) continue;
      OfMeta& m = metas_[static_cast<size_t>(of.meta)];
      const auto b = static_cast<size_t>(of.buffer);
      if ((*m.meta)[b].lifetime == Lifetime::kScratch) return &m.written[b];
    }
    return nullptr;
  }
  /// A launch between a layer's others names nothing of the layer but what these have left.
  int layer_of_scratch() {
    for (const Named& n : named_) {
      const std::optional<Written>* scratch = n.operand.written ? nullptr : scratch_of(n);
      if (scratch != nullptr && scratch->has_value() && (*scratch)->layer >= 0)
        return (*scratch)->layer;
    }
    return -1;
  }

  void judge(const Named& n) {
    const auto some = [&](auto is) { return std::ranges::any_of(n.of, is); };
    const auto wrong = [&](std::string expected) {
      fail("launch.operands", n.operand, std::move(expected), arena_.place_of(n.operand.view.data));
    };
    const bool tensor = some([](const Of& of) { return of.layer >= 0; });
    if (tensor && !some([&](const Of& of) { return of.layer == layer_; }))
      return wrong("layer " + layer_text() + "'s, as other arguments are");
    const auto own = std::ranges::find_if(n.of, [&](const Of& of) { return of.meta == meta_; });
    if (!tensor && some([](const Of& of) { return of.meta >= 0; }) && own == n.of.end())
      return wrong("of the part of the metadata that other arguments are of");
    if (layer_ < 0 || tensor || own == n.of.end() || own->meta < 0) return;
    const OfMeta& m = metas_[static_cast<size_t>(own->meta)];
    const auto kind = static_cast<size_t>(layers_[static_cast<size_t>(layer_)].kind);
    if (m.foreign[static_cast<size_t>(own->buffer)][kind])
      return wrong("metadata of layers like layer " + layer_text());
    if (!is_of_step(layer_)) wrong("metadata of step " + std::to_string(step_of(layer_)));
  }

  void judge_scratch(const Named& n) {
    std::optional<Written>* scratch = scratch_of(n);
    if (scratch == nullptr) return;
    std::optional<Written>& was = *scratch;
    const Operand& o = n.operand;
    const bool known = was && was->node != node_;
    const bool again = known && o.written && !was->read && layer_ >= 0 && was->layer == layer_;
    if (again || (known && !o.written)) {
      judged("launch.scratch");
      if (was->layer >= 0 && was->layer != layer_) {
        fail("launch.scratch", o, "what layer " + layer_text() + " has written",
             "what layer " + layer_text(was->layer) + " has written, at " +
                 arena_.place_of(o.view.data));
      } else if (!agree(was->operand, o)) {
        fail("launch.scratch", o, to_text(was->operand, arena_), to_text(o, arena_));
      } else if (again) {
        same_arguments(*was);
      }
    }
    if (!o.written) {
      if (known) was->read = true;
    } else if (again) {
      was->node = node_, was->launch = launch_;
    } else if (!was || was->node != node_) {
      was = {o, layer_, node_, launch_, false};
    }
  }
  /// Nobody knows what the launch writes.
  void forget_scratch() {
    for (OfMeta& m : metas_) std::ranges::fill(m.written, std::nullopt);
  }
  /// Two stages of one call, of which the second reads what its type would let it write.
  void same_arguments(const Written& was) {
    if (launch_ == nullptr || was.launch == nullptr) return;
    if (launch_->kernel->operands != was.launch->kernel->operands) return;
    if (launch_->args == was.launch->args) return;
    const std::vector<Operand> first = operands_of(*was.launch), second = operands_of(*launch_);
    for (size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
      if (first[i] == second[i]) continue;
      return fail("launch.scratch", second[i], to_text(first[i], arena_),
                  to_text(second[i], arena_));
    }
    Operand numbers;
    numbers.path[0] = "numbers";
    fail("launch.scratch", numbers,
         "those of " + std::string(was.launch->kernel->name) + ", node " + std::to_string(was.node),
         "others");
  }

  std::string layer_text() const { return layer_text(layer_); }
  std::string layer_text(int layer) const {
    const std::string kind = std::to_string(layers_[static_cast<size_t>(layer)].kind);
    return is_whole_draft() ? kind + " of step " + std::to_string(step_of(layer)) : kind;
  }
  void fail(LawId law, const Operand& o, std::string expected, std::string got) {
    const std::string_view what = launch_ != nullptr ? launch_->kernel->name : "copy";
    std::string field = std::string(what) + ' ' + o.name();
    const auto told = [&](const Finding& f) { return f.where.field == field; };
    if (std::ranges::any_of(status_.findings(), told)) return;
    status_.add(make_finding(law, at(std::move(field), static_cast<int64_t>(node_)),
                             std::move(expected), std::move(got)));
  }

  const Arena& arena_;
  const ModelConfig& model_;
  const std::span<const LayerIo> layers_;
  std::vector<Range> ranges_;
  std::vector<OfMeta> metas_;  // those that have buffers
  // The launch that is judged
  size_t node_ = 0;
  const KernelLaunch* launch_ = nullptr;
  std::vector<Named> named_;
  int layer_ = -1, meta_ = -1;
  Status status_;
};

/// Slots of another pool than the one that the layer stores in, blocks of another group.
bool LaunchJudge::is_of_other_slots(const BufferInfo& row, const LayerKind& kind) const {
  if (const V4Layer* v4 = v4_of(kind)) {
    const V4Group group = v4->shape().overlaps() ? V4Group::kC4 : V4Group::kC128;
    return row.group && (!v4->has_blocks() || *row.group != group);
  }
  if (!is_dense_attention(kind)) return false;
  const bool stored = row.role == Role::kStored || row.role == Role::kStoredInWindow ||
                      row.role == Role::kStoredOfEncoder;
  const Role own = kind.cross                     ? Role::kStoredOfEncoder
                   : in_window_pool(model_, kind) ? Role::kStoredInWindow
                                                  : Role::kStored;
  return stored && row.role != own;
}

std::vector<std::vector<bool>> LaunchJudge::foreign_buffers(const Meta& meta) const {
  const size_t kinds = model_.layers.size();
  std::vector<std::vector<bool>> listed(meta.buffers.size(), std::vector<bool>(kinds));
  for (size_t k = 0; k < kinds; ++k) {
    if (meta.backend == nullptr || !is_dense_attention(model_.layers[k])) continue;
    for (const KeyList& list : meta.backend->key_lists(meta, model_.layers[k])) {
      for_each_buffer(list, [&](int b) {
        if (b >= 0 && static_cast<size_t>(b) < listed.size())
          listed[static_cast<size_t>(b)][k] = true;
      });
    }
  }
  std::vector<std::vector<bool>> foreign = listed;
  for (size_t b = 0; b < foreign.size(); ++b)
    for (size_t k = 0; k < kinds; ++k)
      foreign[b][k] = !listed[b][k] && std::ranges::count(listed[b], true) > 0;
  if (meta.backend == nullptr) return foreign;
  for (const BufferInfo& row : meta.backend->info().buffers)
    for (size_t k = 0; k < kinds; ++k)
      if (row.buffer >= 0 && !is_scalar(row.role) &&
          static_cast<size_t>(row.buffer) < foreign.size() &&
          is_of_other_slots(row, model_.layers[k]))
        foreign[static_cast<size_t>(row.buffer)][k] = true;
  return foreign;
}

}  // namespace

Status judge_launches(const Graph& graph, const Meta& meta, const ModelConfig& model,
                      const StepIo& step) {
  LaunchJudge judge(meta, model, step);
  const std::span<const NodeParams> nodes = graph.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) judge.judge(i, nodes[i]);
  return judge.take();
}

}  // namespace shadowgraph
