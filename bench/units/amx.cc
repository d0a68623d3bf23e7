// The tile unit's peak: tdpbf16ps multiplies 16 x 32 by 32 x 16 bf16.
#include <immintrin.h>

#include <cstring>

#include "bench/units/unit.h"

namespace shadowgraph::bench {
namespace {

constexpr int kTileRows = 16, kTileRowBytes = 64;
constexpr double kTileFlop = 2.0 * 16 * 16 * 32;

/// The palette of eight full tiles; per thread.
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void configure() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.row_bytes[i] = kTileRowBytes, config.rows[i] = kTileRows;
  _tile_loadconfig(&config);
}

/// Sums 0..3 are two rows by two columns of tiles, as a matrix product holds them.
float dot(int64_t iterations) {
  alignas(64) std::byte zeros[kTileRows * kTileRowBytes] = {};
  configure();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, zeros, kTileRowBytes);
  _tile_loadd(5, zeros, kTileRowBytes);
  _tile_loadd(6, zeros, kTileRowBytes);
  _tile_loadd(7, zeros, kTileRowBytes);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, zeros, kTileRowBytes);
  _tile_release();
  float first;
  std::memcpy(&first, zeros, sizeof first);
  return first;
}

}  // namespace

const FlopVariant kAmxVariants[] = {{"2 x 2 tiles", 4 * kTileFlop, dot}};
const int kNumAmxVariants = 1;

}  // namespace shadowgraph::bench
