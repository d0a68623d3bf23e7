#include "check/traces/traces.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "check/traces/trace_fields.h"
#include "check/traces/trace_input.h"
#include "check/traces/trace_names.h"
#include "check/traces/trace_plans.h"
#include "check/traces/trace_roles.h"
#include "check/traces/trace_settings.h"
#include "core/laws.h"
#include "core/nearest.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {
namespace {

constexpr std::string_view kNull = "it is null, as if it were not there";
constexpr int64_t kMaxElements = int64_t{1} << 26;  // of one table that a twin makes

/// The twin's metadata of the batch, read back as the device has it.
class Twin {
 public:
  Twin() : device_({.seed = 0, .choose = {}, .checked = false}), stream_(device_) {}

  Status make(const Backend& backend, const TraceBatch& rebuilt) {
    const ForwardBatch& batch = rebuilt.batch;
    const Limits limits = limits_of(backend.info(), rebuilt);
    too_large_ = (int64_t{limits.tokens} + limits.rows + 1) * (int64_t{limits.max_kv_len} + 1) >
                 kMaxElements;
    if (too_large_) {
      Status status;
      status.add(make_finding(
          "batch.capacity", at("rows"),
          "a table of at most " + std::to_string(kMaxElements) + " entries",
          std::to_string(limits.rows) + " rows of " + std::to_string(limits.max_kv_len) + " keys"));
      return status;
    }
    arena_ = Arena(device_, kArenaBytes);
    Status status = backend.bind(arena_, limits, &meta_);
    if (status.ok() && !rebuilt.capture) status = backend.fill(batch, meta_);
    if (status.ok()) broken_ = arena_.upload(stream_.handle());
    stream_.synchronize();
    broken_.add(stream_.take_status());
    if (is_ours(status)) broken_.add(std::exchange(status, {}));
    return status;
  }
  /// The judge's own device failed, whatever the batch.
  const Status& broken() const { return broken_; }
  /// Whether that is why it was not made.
  bool too_large() const { return too_large_; }

  const Meta& meta() const { return meta_; }

 private:
  /// Where the cuts of a row depend on the others, those of padding count as well.
  static Limits limits_of(const BackendInfo& backend, const TraceBatch& rebuilt) {
    const ForwardBatch& batch = rebuilt.batch;
    if (rebuilt.capture)
      return Limits::bucket(batch.mode, rebuilt.rows, rebuilt.width, rebuilt.model,
                            batch.spec.step);
    Limits limits = Limits::exact(batch, rebuilt.model);
    if (!rebuilt.graph || backend.batch_splits.empty()) return limits;
    const ModelConfig& model = rebuilt.model;
    limits.rows = rebuilt.rows;
    limits.tokens = std::max(limits.tokens, static_cast<int32_t>(rebuilt.tokens()));
    limits.max_q_len = std::max(limits.max_q_len, rebuilt.width);
    limits.max_kv_len =
        std::max(limits.max_kv_len, model.seq_len_fill + limits.max_q_len + batch.spec.step);
    limits.sum_kv_lens = 0;
    return limits;
  }

  /// No batch breaks a law of memory or of device calls by what it says.
  static bool is_ours(const Status& status) {
    return std::ranges::any_of(status.findings(), [](const Finding& f) {
      return f.id.starts_with("input.") || f.id.starts_with("mem.") || f.id.starts_with("graph.");
    });
  }

  static constexpr size_t kArenaBytes = size_t{1} << 33;  // addresses; pages when touched
  SimDevice device_;
  Stream stream_;
  Arena arena_;
  Meta meta_;
  Status broken_;
  bool too_large_ = false;
};

class LineJudge {
 public:
  /// refused: what is wrong with the line already. judges_input: its input is the builder's, too.
  /// twice: keys of input that a field of expect tells, too. at_hand: the batch, if it is in
  /// memory.
  LineJudge(const TraceLine& line, std::set<std::string> twice, Status refused = {},
            bool judges_input = false, const ForwardBatch* at_hand = nullptr)
      : line_(line),
        twice_(std::move(twice)),
        judges_input_(judges_input),
        at_hand_(at_hand),
        refused_(std::move(refused)) {}

  TraceVerdict judge() {
    std::string missing = judge_metadata();
    if (!refused_.ok()) {
      verdict_.kind = TraceVerdict::Kind::kRefused;
      verdict_.skip = LawId("skip.bad_input").law().id;
      verdict_.findings = std::move(refused_);
    } else if (!verdict_.findings.ok()) {
      verdict_.kind = TraceVerdict::Kind::kFlagged;
      verdict_.skip = {};
    } else if (!missing.empty()) {
      verdict_.kind = TraceVerdict::Kind::kSkipped;
      verdict_.why = std::move(missing);
    }
    const bool all_rows = line_.phase.starts_with("replay") && !line_.input.contains("raw_bs");
    for (Finding& f : verdict_.findings.findings()) {
      if (all_rows && (f.id == "step.request" || f.id == "pool.slot" || f.id == "len.extent"))
        f.got += "; raw_bs is not said, so every row is taken for a request";
      f.case_id = line_.id;
      if (f.id == "io.line") {
        f.where.row = static_cast<int64_t>(line_.line);
        continue;
      }
      f.where.backend = line_.backend;
      f.where.mode = line_.mode;
      f.where.phase = line_.phase;
    }
    return std::move(verdict_);
  }

 private:
  void judge_memory() {
    judged("mem.out_of_bounds", std::ssize(line_.triton_oob));
    for (const std::string& access : line_.triton_oob)
      verdict_.findings.add(
          make_finding("mem.out_of_bounds", at("triton_oob"), "inside the storage", access));
  }

  void leave_out(LawId law, std::string name, std::string why) {
    verdict_.left_out.push_back({law.law().id, std::move(name), std::move(why)});
  }
  void tell_unread(std::string name, std::string_view why) {
    verdict_.unread.push_back({LawId("unread.field").law().id, std::move(name), std::string(why)});
  }

  /// Why, if the line turns out to have no findings.
  std::string skip(LawId law, std::string why) {
    verdict_.skip = law.law().id;
    return why;
  }

  /// Keys that no trace has there.
  void check_key(const std::string& of, const std::string& key) {
    if (is_trace_key(of, key)) return check_read(of, key);
    std::string hint = meant_by(key, names_of_keys(of));
    for (const TraceKey& known : kTraceKeys) {
      if (known.name == key) hint = "; it belongs into " + std::string(known.of);
    }
    std::string name = key;
    if (of != "line") name.insert(0, of + '.');
    leave_out("left_out.unknown_name", std::move(name), "not known" + hint);
  }

  void check_read(const std::string& of, const std::string& key) {
    constexpr std::string_view kNotRead = "not read: ";
    for (const TraceKey& known : kTraceKeys)
      if (known.of == of && known.name == key && known.what.starts_with(kNotRead))
        tell_unread(of + '.' + key, known.what.substr(kNotRead.size()));
    const std::string_view why = of == "input" && refused_.ok() ? why_unread(line_, key) : "";
    if (!why.empty()) tell_unread(of + '.' + key, why);
  }

  void check_keys() {
    for (const std::string& key : line_.line_keys) check_key("line", key);
    for (const std::string& key : line_.config_keys) check_key("config", key);
    for (const auto& [key, field] : line_.input) {
      check_key("input", key);
      if (is_trace_key("input", key)) check_readable("input." + key, field);
    }
    for (const std::string& key : line_.null_inputs) {
      check_key("input", key);
      if (is_trace_key("input", key)) tell_unread("input." + key, kNull);
    }
    for (const std::string& key : line_.config.nulls) tell_unread("config." + key, kNull);
  }

  void check_readable(const std::string& name, const RecordedField& field) {
    if (!field.unreadable.empty())
      refused_.add(make_finding("io.line", at(name), "integers", field.unreadable));
    if (field.pages && name != "input.req_to_token")
      refused_.add(make_finding("io.line", at(name), "its elements", "pages"));
  }

  std::string no_twin() {
    if (is_foreign_backend(line_.backend))
      return skip("skip.backend", "no twin of " + line_.backend + " yet");
    std::vector<std::string> names;
    for (const Backend* known : all_backends()) names.emplace_back(known->info().name);
    const std::string hint = meant_by(line_.backend, names);
    return skip("skip.unknown_backend",
                "backend not known: " + line_.backend +
                    (hint.empty() ? "; laws judges any engine's arrays, others are in "
                                    "`shadowgraph list backends`"
                                  : hint));
  }

  /// Empty, or why it cannot be judged.
  std::string judge_metadata() {
    refused_.add(check_words(line_));
    const Backend* backend = find_backend(line_.backend);
    if (backend == nullptr) return no_twin();
    names_ = names_of_fields(backend->info());
    const bool composed = names_.empty();
    if (composed && !backend->info().dense)
      return skip("skip.composed", "metadata of its layers is not judged in traces yet");
    if (composed) return skip("skip.composed", "trace each part under its own backend's name");
    std::string why = judge_step(*backend);
    check_names(backend->info());
    return why;
  }

  std::string judge_step(const Backend& backend) {
    const BackendInfo& info = backend.info();
    TraceBatch rebuilt;
    std::string problem;
    if (refused_.ok()) problem = rebuilt.build(line_, info, at_hand_);
    check_keys();
    check_arrays(info);
    refused_.add(std::move(rebuilt.refused));
    if (!refused_.ok()) return "";
    judge_memory();
    if (!problem.empty()) return skip("skip.large", std::move(problem));
    if (!rebuilt.wrong.ok()) {
      verdict_.findings.add(std::move(rebuilt.wrong));
      return "";
    }
    InputVerdict input = judge_input(rebuilt);
    for (Finding& f : input.findings.findings())
      if (twice_.contains(f.where.field)) f.where.field.insert(0, "input.");
    verdict_.findings.add(std::move(input.findings));
    if (!input.fits_twin) return "";
    rebuilt.store(std::move(input.stores));
    Twin twin;
    const Status status = twin.make(backend, rebuilt);
    refused_.add(twin.broken());
    if (!refused_.ok()) return "";
    if (!status.ok())
      return skip(twin.too_large() ? LawId("skip.large") : LawId("skip.refused_by_twin"),
                  why_refused(info, status.findings()[0]));
    names_ = names_of_fields(info, &twin.meta());
    judged("trace.exception");
    if (!line_.exception.empty()) {
      verdict_.findings.add(
          make_finding("trace.exception", at("exception"), "metadata", line_.exception));
      for (const std::string& name : names_of_fields(info)) {
        if (line_.expect.contains(name))
          leave_out("left_out.exception", name, "beside an exception");
      }
      return "";
    }
    const TraceStep step{line_, rebuilt, info, twin.meta()};
    return judge_fields(step);
  }

  static std::string why_refused(const BackendInfo& info, const Finding& f) {
    if (info.name != "laws") return "the twin refuses it: " + f.to_string();
    std::vector<std::string> modes;
    for (const ForwardMode mode : info.modes) modes.emplace_back(name_of(mode));
    return "arrays of such a step are not judged: " + f.where.field + " is " + f.got +
           ", expected " + (f.where.field == "mode" ? one_of(modes) : f.expected);
  }

  /// What an engine means by a field that holds nothing.
  static std::optional<int64_t> unsaid_of(const BackendInfo& backend, const std::string& name) {
    for (const BufferInfo& field : backend.buffers) {
      if (field.records(name) && field.unsaid) return field.unsaid;
    }
    return {};
  }

  void check_arrays(const BackendInfo& backend) {
    for (const auto& [name, recorded] : line_.expect) {
      if (has_field(backend, name)) check_readable("expect." + name, recorded);
    }
  }

  void check_names(const BackendInfo& backend) {
    const auto is_said = [&](const std::string& name) {
      if (has_field(backend, name)) return true;
      const std::string hint = meant_by(name, names_);
      if (is_field_of_any(name))
        leave_out("left_out.other_backend", name, "no field of " + line_.backend + hint);
      else
        leave_out("left_out.unknown_name", name, "not known" + hint);
      return false;
    };
    for (const auto& [name, recorded] : line_.expect) {
      if (!is_plan_key(line_, name)) is_said(name);
    }
    const auto is_found = [&](const std::string& name) {
      return std::ranges::any_of(verdict_.findings.findings(), [&](const Finding& f) {
        return f.id == "plan.missing" && f.where.field == name;
      });
    };
    for (const std::string& name : line_.null_fields) {
      if (is_said(name) && !unsaid_of(backend, name) && !is_found(name))
        leave_out("left_out.null", name, "null");
    }
    tell_plans(line_, &verdict_.left_out);
    const bool plans = std::ranges::any_of(
        backend.buffers, [](const BufferInfo& field) { return !plan_of(field.recorded).empty(); });
    if (line_.no_calls && !plans) tell_unread("expect.calls", "the backend plans nothing");
  }

  /// The verdict of the first of its readings, one per mode, for which the twin has a value.
  FieldVerdict judge_field_of(const TraceStep& step, const std::string& name,
                              const RecordedField& recorded) {
    FieldVerdict verdict{FieldVerdict::Kind::kUnread};
    for (const BufferInfo& field : step.backend.buffers) {
      if (!field.records(name)) continue;
      verdict = judge_field(step, field, recorded, &verdict_.findings);
      if (verdict.kind != FieldVerdict::Kind::kAbsent) break;
    }
    return verdict;
  }

  /// What an engine chose, which nothing but its lists shows to be so.
  static bool is_choice(const BackendInfo& backend, const std::string& name) {
    return std::ranges::any_of(backend.buffers, [&](const BufferInfo& field) {
      return field.records(name) && field.shape == FieldShape::kScalar &&
             field.rule == FieldRule::kConstant;
    });
  }

  std::string judge_fields(const TraceStep& step) {
    int judged = judges_input_ ? 1 : 0;
    for (const auto& [name, recorded] : line_.expect) {
      const FieldVerdict verdict = judge_field_of(step, name, recorded);
      judged += verdict.kind == FieldVerdict::Kind::kJudged && !is_choice(step.backend, name);
      if (verdict.kind == FieldVerdict::Kind::kUnread && !verdict.why.empty())
        tell_unread(name, verdict.why);
      else if (!verdict.why.empty())
        verdict_.left_out.push_back({verdict.law, name, verdict.why});
    }
    for (const std::string& name : names_of_fields(step.backend)) {
      const auto unsaid = unsaid_of(step.backend, name);
      const bool null = std::ranges::find(line_.null_fields, name) != line_.null_fields.end();
      if (unsaid && !line_.expect.contains(name) && (null || is_planned(line_, name)))
        judge_field_of(step, name, {"pyint", {}, 1, {*unsaid}});
    }
    judge_plans(step, &verdict_.findings);
    if (judged > 0) return "";
    return skip("skip.no_field", line_.expect.empty() ? "no array is there that could be judged"
                                                      : "no field that is read in this mode");
  }

  const TraceLine& line_;
  const std::set<std::string> twice_;
  const bool judges_input_;
  const ForwardBatch* at_hand_;
  TraceVerdict verdict_;
  Status refused_;
  std::vector<std::string> names_;  // fields of the backend, in this mode if its twin is made
};

/// The keys that a line has both in `input` and in `expect`, where its backend's name may differ.
std::set<std::string> said_twice(const TraceLine& line) {
  std::set<std::string> twice;
  for (const auto& [name, field] : line.expect) {
    const auto role = line.roles.find(name);
    const std::string& key = role == line.roles.end() ? name : role->second;
    if (line.input.contains(key)) twice.insert(key);
  }
  return twice;
}

/// Findings of the field, by its own name.
void add_findings_of(const NamedLine::Again& other, TraceVerdict again, TraceVerdict* verdict) {
  for (Finding& f : again.findings.findings()) {
    if (f.where.field != other.role && f.where.field != "expect." + other.role) continue;
    f.where.field = other.own;
    if (verdict->kind == TraceVerdict::Kind::kAgreed) verdict->kind = again.kind;
    verdict->findings.add(std::move(f));
  }
}

/// Whether fields are judged by roles, and not by their backend's own names.
bool has_roles(const TraceLine& line) {
  return find_backend(line.backend) != nullptr && (!line.roles.empty() || line.backend == "laws");
}

TraceVerdict judge_own_names(const TraceLine& line, const ForwardBatch* at_hand) {
  return LineJudge(line, said_twice(line), {}, false, at_hand).judge();
}

}  // namespace

TraceVerdict judge_fields(const TraceLine& line) {
  return has_roles(line) ? judge_fields(TraceLine(line)) : judge_own_names(line, nullptr);
}

TraceVerdict judge_fields(TraceLine&& line, const ForwardBatch* at_hand) {
  if (!has_roles(line)) return judge_own_names(line, at_hand);
  const std::set<std::string> twice = said_twice(line);
  const BackendInfo& backend = find_backend(line.backend)->info();
  const NamedLine named_line = name_fields(std::move(line), backend);
  TraceVerdict verdict =
      LineJudge(named_line.line, twice, named_line.refused, named_line.judges_input, at_hand)
          .judge();
  named_line.tell_own_names(&verdict);
  for (const NamedLine::Again& other : named_line.again) {
    const TraceLine again = named_line.with(other);
    add_findings_of(
        other, LineJudge(again, said_twice(again), {}, named_line.judges_input, at_hand).judge(),
        &verdict);
  }
  return verdict;
}

Finding passed_over(std::string_view law, std::string field, std::string why) {
  Finding finding;
  finding.id = law;
  if (const Law* listed = find_law(law); listed != nullptr) finding.title = listed->sentence;
  finding.where.field = std::move(field);
  finding.got = std::move(why);
  return finding;
}

std::vector<Finding> passed_over(const TraceLine& line, const TraceVerdict& verdict) {
  std::vector<Finding> findings;
  if (!verdict.why.empty()) findings.push_back(passed_over(verdict.skip, "", verdict.why));
  for (const auto& [law, name, why] : verdict.left_out)
    findings.push_back(passed_over(law, name, why));
  for (Finding& f : findings)
    f.where.backend = line.backend, f.where.mode = line.mode, f.where.phase = line.phase;
  return findings;
}

TraceVerdict judge_trace(const TraceLine& line) {
  TraceVerdict verdict = judge_fields(line);
  using enum TraceVerdict::Kind;
  if (verdict.kind != kAgreed && verdict.kind != kFlagged) return verdict;
  const auto judge = [](const TraceLine& trial) { return judge_fields(trial); };
  for (const std::string& key : unread_settings(line, verdict, judge))
    verdict.unread.push_back({LawId("unread.field").law().id, "config." + key,
                              "no value of it changes what is found in such a line"});
  return verdict;
}

}  // namespace shadowgraph
