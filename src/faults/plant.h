// How a fault is written: a row of its theme's table, with the body beside its id. Most bodies are
// one function of what passes at one place of a step (check/tap.h); a fault that remembers
// something, or stands at several places, is a Tap of its own, in the same file.
//
//   {"M08", "STALE", "title", "refs", "mistakes", on_filled([](Tap& tap, auto& batch, Meta& meta) {
//      ... tap.act();  // where it changed something
//    })},
//
// Tested by tests/faults/.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "faults/buffers.h"
#include "faults/faults.h"

namespace shadowgraph {

using Launches = std::vector<TappedLaunch>;

template <class T>
std::unique_ptr<Tap> make_tap() {
  return std::make_unique<T>();
}

// Taps of one function: Tap::filled, Tap::launches, ... with the tap itself before the arguments. A
// body has no captures.

/// body(tap, batch, meta), and a Status where it has one.
template <class Body>
constexpr MakeFault on_filled(Body) {
  struct Hook final : Tap {
    Status filled(const ForwardBatch& batch, Meta& meta) override {
      if constexpr (std::is_void_v<decltype(Body{}(*this, batch, meta))>) {
        Body{}(*this, batch, meta);
        return {};
      } else {
        return Body{}(*this, batch, meta);
      }
    }
  };
  return make_tap<Hook>;
}
/// The same in replays only.
template <class Body>
constexpr MakeFault on_replay(Body) {
  return on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
    if (is_replay(batch, meta)) Body{}(tap, batch, meta);
  });
}
/// body(tap, batch, m) for each metadata, children too, that a backend of this class has bound.
template <class B, class Body>
constexpr MakeFault on_metas(Body) {
  return on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
    for_metas_of<B>(meta, [&](Meta& m) { Body{}(tap, batch, m); });
  });
}
/// body(tap, batch, m, buffer) for each bound buffer of these names, whichever backend's.
template <size_t n>
struct BufferName {
  consteval BufferName(const char (&name)[n]) { std::copy_n(name, n, text); }
  char text[n];
};
template <BufferName... names, class Body>
constexpr MakeFault on_buffers(Body) {
  return on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
    for_buffers(meta, {std::string_view(names.text)...},
                [&](Meta& m, const Buffer& b) { Body{}(tap, batch, m, b); });
  });
}
/// body(tap, launches, meta).
template <class Body>
constexpr MakeFault on_launches(Body) {
  struct Hook final : Tap {
    void launches(Launches& all, const Meta& meta, bool /*capturing*/) override {
      Body{}(*this, all, meta);
    }
  };
  return make_tap<Hook>;
}
/// body(tap, meta, capturing).
template <class Body>
constexpr MakeFault on_bound(Body) {
  struct Hook final : Tap {
    void bound(Meta& meta, bool capturing) override { Body{}(*this, meta, capturing); }
  };
  return make_tap<Hook>;
}
template <class Body>
constexpr MakeFault on_baked(Body) {
  struct Hook final : Tap {
    void baked(Meta& meta, bool capturing) override { Body{}(*this, meta, capturing); }
  };
  return make_tap<Hook>;
}
/// body(tap, limits).
template <class Body>
constexpr MakeFault on_limits(Body) {
  struct Hook final : Tap {
    void limits(Limits& limits) override { Body{}(*this, limits); }
  };
  return make_tap<Hook>;
}
/// body(tap, step, pools).
template <class Body>
constexpr MakeFault on_step(Body) {
  struct Hook final : Tap {
    void step(Step& step, const PoolState& pools) override { Body{}(*this, step, pools); }
  };
  return make_tap<Hook>;
}
/// body(tap, config).
template <class Body>
constexpr MakeFault on_runtime(Body) {
  struct Hook final : Tap {
    void runtime(RuntimeConfig& config) override { Body{}(*this, config); }
  };
  return make_tap<Hook>;
}

}  // namespace shadowgraph
