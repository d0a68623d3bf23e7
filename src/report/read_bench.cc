#include "report/read_bench.h"

#include <algorithm>

namespace shadowgraph {
namespace {

constexpr int64_t kMostRounds = 1 << 20;  // threads and rounds

int read_int(JsonMembers& m, const char* key) {
  int64_t value = 0;
  m.count(key, &value);
  return static_cast<int>(std::min(value, kMostRounds));
}

void read_figures(JsonMembers& m, const char* key,
                  std::vector<std::pair<std::string, double>>* figures) {
  m.inside(key, [&](JsonMembers& all) {
    all.others([&](const std::string& name, const JsonValue&) {
      all.get(name.c_str(), &figures->emplace_back(name, 0).second);
    });
  });
}

void read(JsonMembers& m, BenchProbe* p) {
  p->threads = read_int(m, "threads");
  m.get("variant", &p->variant), m.get("gbps", &p->gbps), m.get("gflops", &p->gflops);
  m.get("void", &p->void_reason);
}

void read(JsonMembers& m, BenchRow* r) {
  m.need("shape", &r->shape), m.need("text", &r->text), m.need("of", &r->of);
  m.get("ratio", &r->ratio), m.get("low", &r->low), m.get("high", &r->high);
  m.get("goal", &r->goal), m.need("reached", &r->reached), m.get("void", &r->void_reason);
  std::string goal_is = "at_least";
  m.get("goal_is", &goal_is);
  r->at_most = goal_is == "at_most";
  if (goal_is != "at_least" && goal_is != "at_most")
    m.fail("goal_is", "at_least or at_most", goal_is);
  if (r->ratio && !(r->low && r->high)) m.fail("ratio", "low and high beside it", "none");
  m.get("ms", &r->ms), m.get("gbps", &r->gbps), m.get("gflops", &r->gflops);
  m.need("dtype", &r->dtype), m.need("arith", &r->arith), m.need("isa", &r->isa);
  r->threads = read_int(m, "threads"), r->rounds = read_int(m, "rounds");
  m.need("quiet", &r->quiet), m.get("interrupted", &r->interrupted);
  read_figures(m, "probes", &r->probes), read_figures(m, "others_ms", &r->others_ms);
  m.inside("rejected", [&](JsonMembers& all) {
    all.others([&](const std::string& why, const JsonValue&) {
      r->rejected[why] = read_int(all, why.c_str());
    });
  });
}

void read(JsonMembers& m, BenchPair* p) {
  m.need("shape", &p->shape), m.need("verdict", &p->verdict), m.get("why", &p->why);
  m.get("was", &p->was), m.get("is", &p->is);
}

}  // namespace

void read_bench(JsonMembers& document, int threads, BenchReport* bench) {
  document.inside("machine", [&](JsonMembers& all) {
    all.others([&](const std::string& what, const JsonValue&) {
      all.get(what.c_str(), &bench->machine.emplace_back(what, "").second);
    });
  });
  document.inside("probes", [&](JsonMembers& all) {
    all.others([&](const std::string& key, const JsonValue&) {
      all.inside(key.c_str(), [&](JsonMembers& m) {
        BenchProbe& p = bench->probes.emplace_back();
        read(m, &p);
        const std::string suffix = "_" + std::to_string(p.threads) + "t";
        const bool other = p.threads != threads && key.ends_with(suffix);
        p.name = key.substr(0, key.size() - (other ? suffix.size() : 0));
      });
    });
  });
  document.each("bench", [&](JsonMembers& m) { read(m, &bench->rows.emplace_back()); });
  document.get("plots", &bench->plots);
  document.inside("against", [&](JsonMembers& m) {
    BenchComparison& c = bench->against.emplace();
    m.need("file", &c.path);
    m.each("rows", [&](JsonMembers& row) { read(row, &c.rows.emplace_back()); });
  });
}

}  // namespace shadowgraph
