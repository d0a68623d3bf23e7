// The pools on the simulated device: where a slot lies, whose it is, and what was freed.
#include "runtime/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "runtime/histories.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph::kv_pool_test {
namespace {

SimOptions options() {
  SimOptions o;
  o.memory_bytes = size_t{1} << 24;
  return o;
}

struct Device {
  Status bind(const RuntimeConfig& config, const KvPoolSpec& spec) {
    Status status = TokenToKvPool::bind(arena, stream, config, spec, &pool);
    stream.synchronize();
    status.add(stream.take_status());
    return status;
  }
  void expect_update(const PoolState& state) {
    Status status = pool->update(state);
    status.add(arena.upload(stream.handle()));
    stream.synchronize();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  /// Laws that were broken since the last call.
  std::string found() {
    stream.synchronize();
    std::string laws;
    const Status status = device.take_findings();
    for (const Finding& f : status.findings()) laws += f.id + ' ' + f.where.field + ' ';
    return laws;
  }

  SimDevice device{options()};
  Arena arena{device, size_t{1} << 20};
  Stream stream{device};
  std::optional<TokenToKvPool> pool;
};

KvPoolSpec two_heads(std::vector<bool> window_layers) {
  KvPoolSpec spec;
  spec.num_kv_heads = 2, spec.head_dim_qk = 4, spec.head_dim_vo = 3;
  spec.window_layers = std::move(window_layers);
  return spec;
}

Progress nothing(LaunchFrame& /*frame*/) { return Progress::kDone; }
/// A page of 4 tokens, 2 heads, 4 dims, on behalf of row 0.
constexpr int64_t kPage = 4 * 2 * 4;
void write_page(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<float>(0), 0, kPage, 4, Access::kWrite, 0});
}
void read_page(const LaunchFrame& f, Footprint* spans) {
  spans->push_back({f.pointer<float>(0), 0, kPage, 4, Access::kRead, 0});
}
const Kernel kWriter{"writer", nothing, write_page};
const Kernel kReader{"reader", nothing, read_page};

/// What a request finds in page number page of K of layer 0.
std::string access(Device& d, const Kernel& kernel, OwnerId request, int64_t page) {
  d.device.set_row_owners(std::array{request});
  KernelLaunch launch;
  launch.kernel = &kernel;
  launch.args.pointer(d.pool->cache(0).k.data + page * kPage * 4);
  d.stream.launch(launch);
  return d.found();
}

TEST(KvPool, LayersHaveTheirPoolsSlots) {
  Device d;
  const RuntimeConfig config = with_window(config_of(4));
  ASSERT_TRUE(d.bind(config, two_heads({false, true, false, true})).ok());
  EXPECT_EQ(d.pool->layers(),
            (std::vector<TokenToKvPool::Place>{{0, false}, {0, true}, {1, false}, {1, true}}));
  const KvCache full = d.pool->cache(0), window = d.pool->cache(3);
  EXPECT_TRUE(full.well_formed && window.well_formed);
  EXPECT_EQ(full.num_pages, config.num_pages + 1);
  EXPECT_EQ(window.num_pages, config.swa_pages + 1);
  EXPECT_EQ(full.page_size, 4);
  EXPECT_EQ(full.num_kv_heads, 2);
  EXPECT_EQ(full.k.token_stride, 8);
  EXPECT_EQ(full.v.token_stride, 6);
  EXPECT_EQ(d.pool->req_to_token().shape[1], config.width());
  EXPECT_EQ(d.pool->full_to_swa().shape[0], 65 + 4);
  EXPECT_EQ(d.found(), "");
}

TEST(KvPool, ALatentIsKeyAndValue) {
  Device d;
  KvPoolSpec spec;
  spec.dtype = DType::kBF16, spec.latent = true, spec.head_dim_qk = 6, spec.head_dim_vo = 4;
  spec.window_layers = {false};
  ASSERT_TRUE(d.bind(config_of(1), spec).ok());
  const KvCache cache = d.pool->cache(0);
  EXPECT_TRUE(cache.well_formed);
  EXPECT_EQ(cache.k.data, cache.v.data);
  EXPECT_EQ(cache.k.token_stride, 6);
  EXPECT_EQ(cache.v.head_dim, 4);
  EXPECT_FALSE(d.pool->full_to_swa().defined());
}

TEST(KvPool, PageZeroIsZeroAndEverybodys) {
  Device d;
  ASSERT_TRUE(d.bind(config_of(4), two_heads({false})).ok());
  EXPECT_EQ(access(d, kReader, 1, 0), "");
  EXPECT_EQ(access(d, kReader, 1, 1), "mem.uninit_read k0 ");
  std::array<float, kPage> values{};
  values.fill(7);
  d.stream.copy(values.data(), d.pool->cache(0).k.data, sizeof values);
  d.stream.synchronize();
  EXPECT_EQ(std::ranges::count(values, 0.f), kPage);
}

TEST(KvPool, RefusesLayersWithoutAPool) {
  Device d;
  EXPECT_FALSE(d.bind(config_of(4), two_heads({true})).ok());
  KvPoolSpec spec = two_heads({false});
  spec.latent = true;
  EXPECT_FALSE(d.bind(config_of(4), spec).ok());
  spec = two_heads({false});
  spec.head_dim_qk = 1 << 20;
  EXPECT_FALSE(d.bind(config_of(4), spec).ok());
  EXPECT_FALSE(d.pool.has_value());
  EXPECT_EQ(d.arena.used(), 0);
}

/// Requests 1 and 2, of which page 3 is shared, 1 and 2 are not, and 4 is the cache's alone.
PoolState two_requests(const RuntimeConfig& config) {
  PoolState s;
  s.config = config;
  s.width = config.width();
  s.req_to_token.resize(static_cast<size_t>((config.max_requests + 1) * s.width));
  const auto put = [&](int32_t row, int32_t first, int32_t page) {
    for (int32_t o = 0; o < 4; ++o)
      s.req_to_token[static_cast<size_t>(row * s.width + first + o)] = page * 4 + o;
  };
  put(1, 0, 3), put(1, 4, 1), put(2, 0, 3), put(2, 4, 2);
  s.requests = {{.id = 1, .row = 1, .kv_len = 7, .slots_len = 8, .shared_len = 4},
                {.id = 2, .row = 2, .kv_len = 7, .slots_len = 8, .shared_len = 4}};
  s.taken.resize(static_cast<size_t>(config.num_pages) + 1);
  for (size_t page = 1; page < 5; ++page) s.taken[page] = true;
  s.takes.assign(s.taken.begin(), s.taken.end());
  return s;
}

TEST(KvPool, APageIsItsRequestsOrSharedOrTheCaches) {
  Device d;
  const RuntimeConfig config = config_of(4);
  ASSERT_TRUE(d.bind(config, two_heads({false})).ok());
  d.expect_update(two_requests(config));
  EXPECT_EQ(access(d, kWriter, 1, 1), "");
  EXPECT_EQ(access(d, kReader, 1, 1), "");
  EXPECT_EQ(access(d, kReader, 2, 1), "mem.wrong_region k0 ");
  EXPECT_EQ(access(d, kWriter, 1, 2), "mem.wrong_region k0 ");
  EXPECT_EQ(access(d, kWriter, 1, 3), "");
  EXPECT_EQ(access(d, kReader, 2, 3), "");
  EXPECT_EQ(access(d, kWriter, 1, 4), "mem.wrong_region k0 ");
  EXPECT_EQ(access(d, kReader, 1, 0), "") << "the sink is everybody's";
}

TEST(KvPool, WhatWasFreedIsRetired) {
  Device d;
  const RuntimeConfig config = config_of(4);
  ASSERT_TRUE(d.bind(config, two_heads({false})).ok());
  PoolState state = two_requests(config);
  d.expect_update(state);
  EXPECT_EQ(access(d, kWriter, 1, 1), "");
  d.expect_update(state);
  EXPECT_EQ(access(d, kReader, 1, 1), "") << "nothing changed";
  state.takes[1] += 1;  // freed, and the same request's again
  d.expect_update(state);
  EXPECT_EQ(access(d, kReader, 1, 1), "mem.stale_input k0 ");
  EXPECT_EQ(access(d, kWriter, 1, 1), "");
  state.requests.erase(state.requests.begin());
  state.taken[1] = false;
  d.expect_update(state);
  EXPECT_EQ(access(d, kReader, 2, 1), "mem.stale_input k0 ");
}

TEST(KvPool, CopiesASlotInEveryLayerOfBothPools) {
  Device d;
  const RuntimeConfig config = with_window(config_of(4));
  ASSERT_TRUE(d.bind(config, two_heads({false, true})).ok());
  PoolState state;
  state.full_to_swa.resize(65 + 4);
  state.full_to_swa[6] = 10, state.full_to_swa[9] = 5;
  float token[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[4][8] = {};
  const KvCache full = d.pool->cache(0), window = d.pool->cache(1);
  d.stream.copy(full.k.data + 6 * 32, token, 32);
  d.stream.copy(full.v.data + 6 * 24, token, 24);
  d.stream.copy(window.k.data + 10 * 32, token, 32);
  d.stream.copy(window.v.data + 10 * 24, token, 24);
  d.pool->copy(d.stream, std::array{SlotCopy{6, 9}}, state);
  d.stream.copy(got[0], full.k.data + 9 * 32, 32);
  d.stream.copy(got[1], full.v.data + 9 * 24, 24);
  d.stream.copy(got[2], window.k.data + 5 * 32, 32);
  d.stream.copy(got[3], window.v.data + 5 * 24, 24);
  EXPECT_EQ(d.found(), "");
  for (int plane = 0; plane < 4; ++plane)
    EXPECT_TRUE(std::equal(token, token + (plane % 2 == 0 ? 8 : 6), got[plane])) << plane;
}

TEST(KvPool, FollowsAHistory) {
  Device d;
  RuntimeConfig config = with_window(drafting(4, {2, 3, 6}));
  ASSERT_TRUE(d.bind(config, two_heads({false, true})).ok());
  play(config, 1, 100, [&](const Moment& m, uint64_t, int) {
    d.expect_update(m.state);
    const ConstTensorView table = d.pool->req_to_token();
    std::vector<int32_t> rows(m.state.req_to_token.size());
    d.stream.copy(rows.data(), table.data, rows.size() * 4);
    EXPECT_EQ(d.found(), "");
    EXPECT_EQ(rows, m.state.req_to_token);
    for (const PoolRequest& r : m.state.requests) {
      if (r.slots_len == 0) continue;
      const int64_t page = m.state.text(r)[0] / 4;
      ASSERT_EQ(access(d, kWriter, r.id, page), "");
      ASSERT_EQ(access(d, kReader, r.id + 1, page), "mem.wrong_region k0 ");
    }
  });
}

}  // namespace
}  // namespace shadowgraph::kv_pool_test
