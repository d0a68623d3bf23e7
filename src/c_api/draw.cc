// sg_history, sg_batch_draw: the generator of property tests, fed by a caller's choices;
// sg_property_check: such a test.
#include <memory>
#include <string>
#include <utility>

#include "c_api/batch.h"
#include "c_api/errors.h"
#include "c_api/report.h"
#include "core/laws.h"
#include "core/nearest.h"
#include "io/strict_json.h"
#include "testing/generate.h"
#include "testing/steps.h"

/// The steps of a scheduler: drawn by its caller, or those of a property test.
struct sg_history {
  /// The state refers to its neighbours, so it stays where it is.
  struct Drawn {
    Drawn(shadowgraph::testing::Options of, shadowgraph::Choices::Chooser choose, void* context)
        : options(std::move(of)), choices(choose, context) {}
    Drawn(const Drawn&) = delete;
    Drawn& operator=(const Drawn&) = delete;

    shadowgraph::testing::Options options;
    shadowgraph::Choices choices;
    shadowgraph::testing::Steps::State state{options, choices};
  };

  explicit sg_history(std::unique_ptr<Drawn> of) : drawn(std::move(of)), state(drawn->state) {}
  explicit sg_history(shadowgraph::testing::Steps& steps) : state(steps.state()) {}

  /// null: the history is over.
  std::unique_ptr<sg_batch> next() {
    const shadowgraph::testing::Case* c = state.next();
    if (c == nullptr) return nullptr;
    return std::make_unique<sg_batch>(state.step(), c->page_size, c->pool_pages);
  }
  std::unique_ptr<sg_batch> last() {
    std::unique_ptr<sg_batch> newest;
    while (std::unique_ptr<sg_batch> batch = next()) newest = std::move(batch);
    return newest;
  }

  std::unique_ptr<Drawn> drawn;
  shadowgraph::testing::Steps::State& state;
};

namespace shadowgraph::c_api {
namespace {

struct NumberKey {
  const char* name;
  int32_t testing::Options::*member;
};
constexpr NumberKey kNumbers[] = {
    {"max_requests", &testing::Options::max_requests},
    {"max_context_len", &testing::Options::max_context_len},
    {"max_extend_len", &testing::Options::max_extend_len},
    {"topk", &testing::Options::topk},
    {"num_steps", &testing::Options::num_steps},
    {"num_draft_tokens", &testing::Options::num_draft_tokens},
    {"dllm_block", &testing::Options::dllm_block},
    {"max_encoder_len", &testing::Options::max_encoder_len},
    {"window_left", &testing::Options::window_left},
    {"small_requests", &testing::Options::small_requests},
    {"steps", &testing::Options::steps},
};

/// Whether options may say how a property test runs, too.
enum class Reads : uint8_t { kHistories, kPropertyTest };

/// Reads a JSON object into options; what it does not say stays.
class OptionsReader {
 public:
  OptionsReader(Reads reads, testing::Options* options) : reads_(reads), options_(*options) {}

  Status read(const char* text) {
    if (text == nullptr || *text == 0) return {};
    JsonDocument document;
    Status status = parse_strict_json(text, "test.options", "options", 0, &document);
    if (!status.ok()) return status;
    for (const auto& [key, value] : *document.root.as<JsonValue::Object>()) read(key, value);
    return std::move(status_);
  }

 private:
  void refuse(const std::string& key, std::string expected, std::string got) {
    status_.add(make_finding("test.options", at(key), std::move(expected), std::move(got)));
  }

  bool number(const std::string& key, const JsonValue& value, int32_t* out) {
    const auto n = value.number();
    if (n && *n >= INT32_MIN && *n <= INT32_MAX && *n == static_cast<int32_t>(*n)) {
      *out = static_cast<int32_t>(*n);
      return true;
    }
    refuse(key, "an integer of 32 bits", value.describe());
    return false;
  }

  void read(const std::string& key, const JsonValue& value) {
    for (const NumberKey& known : kNumbers) {
      if (key == known.name) {
        number(key, value, &(options_.*known.member));
        return;
      }
    }
    if (key == "modes") return read_modes(value);
    if (key == "page_sizes") return read_page_sizes(value);
    if (reads_ == Reads::kPropertyTest && read_repetition(key, value)) return;
    if (key != "prefix_cache")
      return refuse(key, "an option of shadowgraph.h", "unknown" + meant(key));
    if (const bool* truth = value.as<bool>())
      options_.prefix_cache = *truth;
    else
      refuse(key, "true or false", value.describe());
  }

  /// False: no such key.
  bool read_repetition(const std::string& key, const JsonValue& value) {
    int32_t n = 0;
    if (key == "histories") {
      if (number(key, value, &n)) options_.histories = n;
    } else if (key == "seed") {
      if (number(key, value, &n)) options_.seed = static_cast<uint64_t>(n);
    } else if (key == "choices" || key == "command") {
      const auto* text = value.as<std::string>();
      if (text == nullptr)
        refuse(key, "a text", value.describe());
      else
        (key == "choices" ? options_.choices : options_.command) = *text;
    } else {
      return false;
    }
    return true;
  }

  std::string meant(const std::string& key) const {
    std::vector<std::string> names = {"modes", "page_sizes", "prefix_cache"};
    if (reads_ == Reads::kPropertyTest)
      names.insert(names.end(), {"histories", "seed", "choices", "command"});
    for (const NumberKey& known : kNumbers) names.emplace_back(known.name);
    return did_you_mean(key, names);
  }

  void read_modes(const JsonValue& value) {
    const auto* list = value.as<JsonValue::Array>();
    if (list == nullptr) return refuse("modes", "a list of modes", value.describe());
    options_.modes.clear();
    for (const JsonValue& element : *list) {
      const auto* name = element.as<std::string>();
      const size_t before = options_.modes.size();
      for (int i = 0; name != nullptr && i < kNumForwardModes; ++i)
        if (name_of(static_cast<ForwardMode>(i)) == *name)
          options_.modes.push_back(static_cast<ForwardMode>(i));
      if (options_.modes.size() == before) refuse("modes", "a forward mode", element.describe());
    }
  }

  void read_page_sizes(const JsonValue& value) {
    const auto* list = value.as<JsonValue::Array>();
    if (list == nullptr) return refuse("page_sizes", "a list of sizes", value.describe());
    options_.page_sizes.clear();
    for (const JsonValue& element : *list) {
      int32_t size = 0;
      if (number("page_sizes", element, &size)) options_.page_sizes.push_back(size);
    }
  }

  Reads reads_;
  testing::Options& options_;
  Status status_;
};

/// Makes a history of what the options say; not ok: they say no such thing.
Status make_history(const char* text, Choices::Chooser choose, void* context,
                    std::unique_ptr<sg_history>* history) {
  testing::Options options;
  Status status = OptionsReader(Reads::kHistories, &options).read(text);
  if (status.ok()) status = testing::validate(options);
  if (status.ok())
    *history =
        std::make_unique<sg_history>(std::make_unique<sg_history::Drawn>(options, choose, context));
  return status;
}

}  // namespace
}  // namespace shadowgraph::c_api

using namespace shadowgraph;
using namespace shadowgraph::c_api;

extern "C" {

sg_status sg_history_new(const char* options, uint32_t (*choose)(void*, uint32_t), void* context,
                         sg_history** history, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (history == nullptr || choose == nullptr) return fail(SG_USAGE, "choose or history is NULL");
    *history = nullptr;
    std::unique_ptr<sg_history> made;
    const Status status = make_history(options, choose, context, &made);
    *history = made.release();
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

sg_status sg_history_next(sg_history* history, sg_batch** batch) {
  return guarded(nullptr, [&]() -> sg_status {
    if (history == nullptr || batch == nullptr) return fail(SG_USAGE, "history or batch is NULL");
    *batch = nullptr;
    *batch = history->next().release();
    return SG_OK;
  });
}

sg_status sg_history_expect(sg_history* history, const sg_report* findings) {
  return guarded(nullptr, [&]() -> sg_status {
    if (history == nullptr) return fail(SG_USAGE, "history is NULL");
    if (findings == nullptr) return SG_OK;
    for (const Finding& finding : findings->report.findings) history->state.findings.add(finding);
    return SG_OK;
  });
}

void sg_history_free(sg_history* history) { delete history; }

sg_status sg_property_check(const char* options, void (*property)(void*, sg_history*),
                            void* context, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (property == nullptr) return fail(SG_USAGE, "property is NULL");
    testing::Options read;
    Status refused = OptionsReader(Reads::kPropertyTest, &read).read(options);
    if (refused.ok()) refused = testing::validate(read);
    if (!refused.ok()) return hand_out(refused, SG_BAD_INPUT, report);
    const Status status = testing::check(read, [&](testing::Steps& steps) {
      sg_history history(steps);
      property(context, &history);
    });
    return hand_out_verdict(status, report);
  });
}

sg_status sg_batch_draw(const char* options, uint32_t (*choose)(void*, uint32_t), void* context,
                        sg_batch** batch, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (batch == nullptr || choose == nullptr) return fail(SG_USAGE, "choose or batch is NULL");
    *batch = nullptr;
    std::unique_ptr<sg_history> history;
    const Status status = make_history(options, choose, context, &history);
    if (status.ok()) *batch = history->last().release();
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

}  // extern "C"
