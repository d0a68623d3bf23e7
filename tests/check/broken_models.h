// Models and steps that tests of broken metadata share.
#pragma once

#include <functional>

#include "check/planted_metadata.h"

namespace shadowgraph {

inline const ModelConfig kModel = model_of(2, {small_layer()});
inline const ModelConfig kWide = model_of(16, {small_layer()});
inline const ModelConfig kLatent = model_of(64, {latent_layer()});
inline const ModelConfig kWindow = model_of(2, {small_layer(2)});
inline const ModelConfig kTree = model_of(2, {small_layer()}, {2, 2, 3});
inline const ModelConfig kWindowTree = model_of(1, {small_layer(2)}, {2, 2, 3});

inline ModelConfig with(ModelConfig m, const std::function<void(ModelConfig&)>& change) {
  change(m);
  return m;
}
inline const ModelConfig kOneChunk = with(kModel, [](ModelConfig& m) { m.split.off = true; });
inline const ModelConfig kSmallChunks = with(kModel, [](ModelConfig& m) { m.split.min_size = 2; });
inline const StepShape kDecode{.prefix_lens = {5, 8}};
inline const StepShape kExtend{
    .mode = ForwardMode::kExtend, .prefix_lens = {5, 3}, .q_lens = {2, 3}};
inline const StepShape kDraft{.mode = ForwardMode::kDraftDecode, .prefix_lens = {5, 4}};
inline const StepShape kVerify{.mode = ForwardMode::kTargetVerify,
                               .prefix_lens = {5, 4},
                               .trees = {all_trees(3, 2).back(), all_trees(3, 2).front()}};

}  // namespace shadowgraph
