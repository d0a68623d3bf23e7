// What a real device answers: every program in a process of its own, as errors of execution and
// captures that went wrong stick to a process, and some programs never end. Tested by
// tests/conformance/answers_test.cc.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "conformance/conformance.h"

namespace shadowgraph {

/// nullptr, and why. Called in the process of a program alone: one that has opened a GPU once
/// cannot start others.
using OpenDevice = std::function<std::unique_ptr<DeviceApi>(std::string* why)>;

struct AnswerOptions {
  int processes = 8;                       // at once
  std::chrono::milliseconds limit{30000};  // for one; it is ended then
};

/// Why there is no such device; empty: there is one. Asked in a process of its own.
std::string why_no_device(const OpenDevice& open);

/// Runs the programs of these cases. fn(i, record) for each, in the order in which they end; of one
/// that did not end the record is not complete and has no steps. stop: what runs is ended.
void answers_of(std::span<const ConformanceCase> cases, const OpenDevice& open,
                const AnswerOptions& options, const std::atomic<bool>& stop,
                const std::function<void(size_t, Record)>& fn);

/// What an answer says of a device, against the recorded one: as run_case.
ProgramVerdict judge_answer(const ConformanceCase& c, Record answer);

}  // namespace shadowgraph
