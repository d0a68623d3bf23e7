// IndexDots of one instruction set: kLanes doubles of a register, the sums of kHeads heads in
// registers together.
constexpr int kChannels = 128, kVectors = kIndexPanel / kLanes;  // no edge: kIndexDim
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));

/// Addresses of sums and keys are not taken: they stay in registers.
template <int Heads>
SG_INLINE void some_dots(const IndexDots& u, int head) {
  Doubles sum[Heads][kVectors] = {}, key[kVectors];
  for (int c = 0; c < kChannels; ++c) {
    for (int v = 0; v < kVectors; ++v) {
      Doubles loaded;
      std::memcpy(&loaded, u.keys + c * kIndexPanel + v * kLanes, sizeof loaded);
      key[v] = loaded;
    }
    for (int h = 0; h < Heads; ++h) {
      const double q = u.q[(head + h) * kChannels + c];
      for (int v = 0; v < kVectors; ++v) sum[h][v] += q * key[v];
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int v = 0; v < kVectors; ++v) {
      const Doubles whole = sum[h][v];
      std::memcpy(u.dots + (head + h) * kIndexPanel + v * kLanes, &whole, sizeof whole);
    }
}

void index_dots(const IndexDots& u) {
  int head = 0;
  for (; head + kHeads <= u.heads; head += kHeads) some_dots<kHeads>(u, head);
  for (; head < u.heads; ++head) some_dots<1>(u, head);
}
