#include "fuzz/file/run_record.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <type_traits>
#include <utility>

#include "core/float_formats.h"
#include "core/fnv.h"
#include "core/laws.h"
#include "faults/faults.h"
#include "fuzz/file/history_fields.h"
#include "shadowgraph/version.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kDigestSchema = "shadowgraph.digest/1";

uint64_t hash_of(const void* bytes, size_t size, uint64_t hash) {
  return fnv1a({static_cast<const char*>(bytes), size}, hash);
}

/// The elements' text is made only if somebody wants it.
FieldRecord field_of(std::string name, std::vector<int64_t> shape, std::span<const int64_t> values,
                     bool elements) {
  FieldRecord field{std::move(name), 0, {}, std::move(shape)};
  field.hash = hash_of(field.shape.data(), field.shape.size() * sizeof(int64_t), kFnvStart);
  field.hash = hash_of(values.data(), values.size_bytes(), field.hash);
  for (size_t i = 0; elements && i < values.size(); ++i)
    field.elements.push_back(std::to_string(values[i]));
  return field;
}

/// The members of a step, by the names that they have in files.
class StepFields {
 public:
  StepFields(bool elements, std::vector<FieldRecord>* to) : elements_(elements), to_(*to) {}

  template <class T, class... Range>
  void operator()(const char* name, T& value, Range...) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      add(name, {static_cast<int64_t>(value)});
    } else if constexpr (requires { value.begin(); }) {
      list(name, value);
    } else {
      nested(name, value);
    }
  }

 private:
  template <class T>
  void list(const std::string& name, std::vector<T>& values) {
    if constexpr (std::is_class_v<T>) {
      for (size_t i = 0; i < values.size(); ++i)
        nested(name + "[" + std::to_string(i) + "]", values[i]);
    } else {
      add(name, {values.begin(), values.end()});
    }
  }
  template <class T>
  void nested(const std::string& name, T& value) {
    const std::string before = std::exchange(prefix_, prefix_ + name + ".");
    visit_fields(*this, value);
    prefix_ = before;
  }
  void add(const std::string& name, const std::vector<int64_t>& values) {
    to_.push_back(field_of(prefix_ + name, {std::ssize(values)}, values, elements_));
  }

  bool elements_;
  std::vector<FieldRecord>& to_;
  std::string prefix_;
};

std::string hex(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string float_text(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(value));
  return text;
}

/// Calls fn(offset) for each element, the last axis first.
template <class Fn>
void each_element(const ConstTensorView& t, Fn fn) {
  int64_t count = 1;
  for (int d = 0; d < t.rank; ++d) count *= t.shape[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0, rest = i;
    for (int d = t.rank; d-- > 0; rest /= t.shape[d]) offset += rest % t.shape[d] * t.stride[d];
    fn(offset);
  }
}

FieldRecord field_of(std::string name, const ConstTensorView& t, bool elements) {
  FieldRecord field{std::move(name), kFnvStart, {}, {t.shape.begin(), t.shape.begin() + t.rank}};
  field.hash = hash_of(field.shape.data(), field.shape.size() * sizeof(int64_t), kFnvStart);
  const auto* data = static_cast<const std::byte*>(t.data);
  each_element(t, [&](int64_t offset) {
    field.hash = hash_of(data + static_cast<size_t>(offset) * size_of(t.dtype), size_of(t.dtype),
                         field.hash);
    if (elements) field.elements.push_back(float_text(load_float(data, t.dtype, offset)));
  });
  return field;
}

/// "[1, 0]": where element number i stands.
std::string place_of(std::span<const int64_t> shape, int64_t i) {
  std::string text;
  for (size_t d = shape.size(); d-- > 0; i /= shape[d])
    text = std::to_string(i % shape[d]) + (text.empty() ? "" : ", ") + text;
  return "[" + text + "]";
}

/// Two fields have the name, and other hashes.
RunDifference difference_of(const FieldRecord& mine, const FieldRecord& others) {
  RunDifference d{0, mine.name, "", "hash " + hex(mine.hash), "hash " + hex(others.hash)};
  const auto known = [](const FieldRecord& f) { return !f.elements.empty() || !f.shape.empty(); };
  if (!known(mine) || !known(others)) return d;
  const auto size = [](const FieldRecord& f) {
    std::string text;
    for (const int64_t n : f.shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
    return "shape [" + text + "]";
  };
  d.mine = size(mine), d.others = size(others);
  if (mine.shape != others.shape) return d;
  for (size_t i = 0; i < mine.elements.size(); ++i) {
    if (mine.elements[i] == others.elements[i]) continue;
    d.place = place_of(mine.shape, static_cast<int64_t>(i));
    d.mine = mine.elements[i], d.others = others.elements[i];
    return d;
  }
  d.mine = d.others = "a number of this text, in other bits";
  return d;
}

std::optional<RunDifference> first_difference(const StepRecord& mine, const StepRecord& others) {
  if (mine.mode != others.mode) return RunDifference{0, "mode", "", mine.mode, others.mode};
  for (size_t i = 0; i < std::max(mine.fields.size(), others.fields.size()); ++i) {
    const std::string none = "not there";
    if (i >= mine.fields.size()) return RunDifference{0, others.fields[i].name, "", none, "there"};
    if (i >= others.fields.size()) return RunDifference{0, mine.fields[i].name, "", "there", none};
    const FieldRecord &a = mine.fields[i], &b = others.fields[i];
    if (a.name != b.name) return RunDifference{0, a.name, "", "there", "in its place " + b.name};
    if (a.hash != b.hash) return difference_of(a, b);
  }
  return std::nullopt;
}

}  // namespace

uint64_t StepRecord::hash() const {
  uint64_t all = fnv1a(mode);
  for (const FieldRecord& f : fields) {
    all = fnv1a(f.name, all);
    all = hash_of(&f.hash, sizeof f.hash, all);
  }
  return all;
}

/// Hands on what it sees.
class RunRecorder::Passing final : public Tap {
 public:
  explicit Passing(BufferLog* log) : log_(*log) {}
  void bound(Meta& meta, bool capturing) override { log_.bound(meta, capturing); }
  Status filled(const ForwardBatch& batch, Meta& meta) override { return log_.filled(batch, meta); }
  void ran(const Meta& meta) override { log_.ran(meta); }

 private:
  BufferLog& log_;
};

std::unique_ptr<Tap> RunRecorder::tap() { return std::make_unique<Passing>(&log_); }

void RunRecorder::watch(RunnerOptions* options) {
  options->outputs = [this, before = std::move(options->outputs)](std::span<const LayerIo> layers) {
    if (before) before(layers);
    add(layers);
  };
}

void RunRecorder::end_step(size_t step) {
  add_logs();
  if (fields_.empty()) return;
  steps_.resize(step + 1);
  steps_[step] = std::exchange(fields_, {});
}

void RunRecorder::add_logs() {
  for (const StepLog& log : log_.take()) {
    phase_ = log.phase;
    for (const BufferStates& b : log.buffers)
      if (!b.filled.empty())
        fields_.push_back(field_of(log.phase + " " + b.name.substr(b.name.find('/') + 1), b.shape,
                                   b.filled, elements_));
  }
}

void RunRecorder::add(std::span<const LayerIo> layers) {
  add_logs();
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string layer = " of layer " + std::to_string(i);
    const ConstTensorView out = layers[i].out, lse = layers[i].lse.tensor;
    if (out.defined()) fields_.push_back(field_of(phase_ + " out" + layer, out, elements_));
    if (lse.defined()) fields_.push_back(field_of(phase_ + " lse" + layer, lse, elements_));
  }
}

std::vector<StepRecord> RunRecorder::take(std::span<const Step> steps) {
  if (!steps.empty()) end_step(steps.size() - 1);
  std::vector<StepRecord> all(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step = steps[i];
    all[i].mode = name_of(step.mode);
    StepFields fields(elements_, &all[i].fields);
    visit_fields(fields, step);
    if (i < steps_.size())
      std::move(steps_[i].begin(), steps_[i].end(), std::back_inserter(all[i].fields));
  }
  steps_.clear();
  return all;
}

namespace {

/// The fault, then what records.
MakeTap recorded(const MakeTap& make_tap, RunRecorder* recorder) {
  return [make_tap, recorder] {
    std::vector<std::unique_ptr<Tap>> taps;
    if (make_tap) taps.push_back(make_tap());
    taps.push_back(recorder->tap());
    return std::make_unique<Taps>(std::move(taps));
  };
}

}  // namespace

HistoryResult record_history(History history, Choices& choices, const MakeTap& make_tap,
                             RunRecord* run) {
  RunRecorder recorder(false);
  recorder.watch(&history.runner);
  std::vector<Step> steps;
  HistoryResult result = run_history(history, choices, recorded(make_tap, &recorder), &steps, [&] {
    if (!steps.empty()) recorder.end_step(steps.size() - 1);
    return false;
  });
  run->choices = choices.made();
  run->steps = recorder.take(steps);
  return result;
}

Status record_case(const HistoryCase& x, const MakeTap& make_tap, RunRecord* run) {
  RunRecorder recorder(true);
  HistoryCase watched = x;
  recorder.watch(&watched.history.runner);
  const std::unique_ptr<Tap> tap = recorded(make_tap, &recorder)();
  size_t played = 0;
  Status status = run_case(watched, tap.get(), [&](size_t step, const Status&) {
    played = step + 1;
    recorder.end_step(step);
  });
  run->choices = x.choices;
  run->steps = recorder.take(std::span(x.steps).first(status.ok() ? x.steps.size() : played));
  return status;
}

std::optional<RunDifference> first_difference(std::span<const StepRecord> mine,
                                              std::span<const StepRecord> others) {
  for (size_t i = 0; i < std::min(mine.size(), others.size()); ++i) {
    std::optional<RunDifference> d = first_difference(mine[i], others[i]);
    if (d) d->step = i;
    if (d) return d;
  }
  if (mine.size() == others.size()) return std::nullopt;
  return RunDifference{std::min(mine.size(), others.size()), "steps", "",
                       std::to_string(mine.size()), std::to_string(others.size())};
}

std::string to_digest(std::span<const RunRecord> runs) {
  std::string text(kDigestSchema);
  text += std::string(" ") + SHADOWGRAPH_VERSION + "\n";
  for (const RunRecord& run : runs) {
    text += "history " + to_text(run.choices) + (run.what.empty() ? "" : " ") + run.what + "\n";
    for (size_t i = 0; i < run.steps.size(); ++i) {
      const StepRecord& step = run.steps[i];
      text += "step " + std::to_string(i + 1) + " " + hex(step.hash()) + " " + step.mode + "\n";
      for (const FieldRecord& f : step.fields) text += "  " + hex(f.hash) + " " + f.name + "\n";
    }
  }
  return text;
}

bool is_digest(std::string_view text) { return text.starts_with(kDigestSchema); }

namespace {

/// Takes words off a line.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view next() {
    const size_t end = std::min(rest_.find(' '), rest_.size());
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return word;
  }
  std::string rest() const { return std::string(rest_); }

 private:
  std::string_view rest_;
};

std::optional<uint64_t> hash_of(std::string_view text) {
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  const bool whole = error == std::errc() && end == text.data() + text.size() && text.size() == 16;
  return whole ? std::optional(hash) : std::nullopt;
}

/// False: it is no line of a digest, or has no place here.
bool read_line(std::string_view line, std::vector<RunRecord>* runs) {
  Words words(line);
  if (line.starts_with("  ")) {
    words.next(), words.next();
    const std::optional<uint64_t> hash = hash_of(words.next());
    if (!hash || runs->empty() || runs->back().steps.empty()) return false;
    runs->back().steps.back().fields.push_back({words.rest(), *hash});
    return true;
  }
  const std::string_view kind = words.next(), first = words.next();
  if (kind == "history") {
    auto choices = choices_of(first);
    if (choices) runs->push_back({*std::move(choices), words.rest(), {}});
    return choices.has_value();
  }
  if (kind != "step" || runs->empty() || !hash_of(words.next())) return false;
  runs->back().steps.push_back({words.rest(), {}});
  return true;
}

}  // namespace

Status parse_digest(std::string_view text, const std::string& name, std::vector<RunRecord>* out) {
  std::vector<RunRecord> runs;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool read = number == 1 ? is_digest(line) : read_line(line, &runs);
    if (read) continue;
    Status status;
    status.add(make_finding("io.kind", at(name + ":" + std::to_string(number)),
                            "a line of " + std::string(kDigestSchema), std::string(line)));
    return status;
  }
  *out = std::move(runs);
  return {};
}

}  // namespace shadowgraph
