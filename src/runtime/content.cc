#include "runtime/content.h"

namespace shadowgraph {
namespace {

enum class Source : uint64_t { kFamily = 1, kOwn, kDraft, kEncoder };

int32_t token(Source source, uint64_t of, int32_t position, int32_t n = 0) {
  const uint64_t place = uint64_t{static_cast<uint32_t>(position)} << 32 | static_cast<uint32_t>(n);
  return static_cast<int32_t>(Rng::stream(of * 8 + static_cast<uint64_t>(source), place).next() >>
                              33);
}

}  // namespace

int32_t family_token(int32_t family, int32_t position) {
  return token(Source::kFamily, static_cast<uint32_t>(family), position);
}

int32_t own_token(OwnerId request, int32_t position) {
  return token(Source::kOwn, request, position);
}

int32_t draft_token(OwnerId request, int32_t position, int32_t n) {
  return token(Source::kDraft, request, position, n);
}

int32_t encoder_token(OwnerId request, int32_t position) {
  return token(Source::kEncoder, request, position);
}

void append_path(Chain chain, std::span<const int32_t> tokens, std::vector<Chain>* to) {
  for (const int32_t t : tokens) to->push_back(chain = extend(chain, t));
}

void append_tree(Chain chain, std::span<const int32_t> tokens, std::span<const int32_t> parents,
                 std::vector<Chain>* to) {
  const size_t root = to->size();
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int32_t parent = parents[t];
    to->push_back(
        extend(parent < 0 ? chain : (*to)[root + static_cast<size_t>(parent)], tokens[t]));
  }
}

void append_encoder(OwnerId request, int32_t tokens, std::vector<Chain>* to) {
  Chain chain = kNoEncoderTokens;
  for (int32_t p = 0; p < tokens; ++p)
    to->push_back(chain = extend(chain, encoder_token(request, p)));
}

}  // namespace shadowgraph
