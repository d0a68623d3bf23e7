#include "check/worlds/recurrent_contents.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "check/bits.h"
#include "check/worlds/layer_buffers.h"

namespace shadowgraph {

std::vector<const Buffer*> RecurrentInputs::bound() const {
  std::vector<const Buffer*> all;
  for (const Buffer* buffer : {&x, &gate, &b, &z, &q, &k, &v})
    if (buffer->data != nullptr) all.push_back(buffer);
  return all;
}

StateBook::StateBook(const RecurrentLayer& layer, const RecurrentInputs& inputs,
                     const RecurrentTensors& weights, RunnerData data, uint64_t salt)
    : layer_(layer), inputs_(inputs), weights_(weights), data_(data), salt_(salt) {}

std::vector<float> StateBook::rows(const Buffer& input,
                                   std::span<const TokenContent> tokens) const {
  const std::vector<const Buffer*> bound = inputs_.bound();
  const auto place = std::ranges::find(bound, &input) - bound.begin();
  const uint64_t salt = Rng::stream(salt_, static_cast<uint64_t>(place)).next();
  std::vector<float> all;
  for (const TokenContent& t : tokens) {
    Rng rng = Rng::stream(salt, t.chain);
    const std::vector<float> row = layer_numbers(input.rows(0, 1).count, data_, rng);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

HostStates StateBook::run(HostStates from, bool has_prefix,
                          std::span<const TokenContent> tokens) const {
  std::deque<std::vector<float>> memory;
  const auto on_host = [&](const Buffer& input) {
    if (input.data == nullptr) return ConstTensorView{};
    const std::vector<float>& values = memory.emplace_back(rows(input, tokens));
    ConstTensorView view = input.view();
    view.data = reinterpret_cast<const std::byte*>(values.data());
    view.shape[0] = std::ssize(tokens);
    return view;
  };
  LayerInputs inputs{weights_, on_host(inputs_.q), on_host(inputs_.k), on_host(inputs_.v)};
  inputs.tensors.x = on_host(inputs_.x), inputs.tensors.gate = on_host(inputs_.gate);
  inputs.tensors.b = on_host(inputs_.b), inputs.tensors.z = on_host(inputs_.z);
  RequestAlone request;
  request.tokens = std::ssize(tokens);
  request.has_prefix = has_prefix;
  HostStates none;
  run_alone(layer_, inputs, request, &from, &none);
  return from;
}

const HostStates& StateBook::behind(std::span<const TokenContent> tokens) {
  size_t known = tokens.size();
  while (known > 0 && !states_.contains(tokens[known - 1].chain)) --known;
  if (known < tokens.size()) {
    HostStates from;
    if (known > 0) {
      from = states_.at(tokens[known - 1].chain).state;
    } else {
      if (layer_.has_conv())
        from.conv.resize(static_cast<size_t>(layer_.conv_dim()) *
                         static_cast<size_t>(layer_.conv_width - 1));
      from.states.resize(static_cast<size_t>(layer_.num_v_heads) *
                         static_cast<size_t>(layer_.head_dim_k) *
                         static_cast<size_t>(layer_.head_dim_v));
    }
    put(tokens.back(), run(std::move(from), known > 0, tokens.subspan(known)));
  }
  return states_.at(tokens.back().chain).state;
}

void StateBook::put(const TokenContent& last, HostStates state) {
  states_.try_emplace(last.chain, Entry{last, std::move(state)});
}

std::string StateBook::told(const TokenContent& last) {
  return "the state behind " + std::to_string(last.position + 1) + " tokens of request " +
         std::to_string(last.request);
}

std::optional<TokenContent> StateBook::find(const HostStates& state) const {
  std::optional<TokenContent> found;
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           first_difference(a.data(), b.data(), std::ssize(a), DType::kF32) < 0;
  };
  for (const auto& [chain, entry] : states_) {
    if (!same(entry.state.states, state.states) || !same(entry.state.conv, state.conv)) continue;
    const auto place = [](const TokenContent& t) { return std::pair(t.request, t.position); };
    if (!found || place(entry.last) < place(*found)) found = entry.last;
  }
  return found;
}

}  // namespace shadowgraph
