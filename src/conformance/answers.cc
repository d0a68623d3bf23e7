#include "conformance/answers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "conformance/kernels.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Files through which processes answer; gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "shadowgraph.XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// As before the recorded programs: every kernel has been loaded, but for the one program that asks
/// what happens otherwise.
void warm_up(DeviceApi& api, const std::string& id) {
  if (id == "Q03") return;
  for (const Kernel* kernel :
       {&k::fill, &k::add, &k::mul, &k::copy, &k::len, &k::struct4, &k::count, &k::append, &k::spin,
        &k::spinflag, &k::rmw, &k::sys, &k::ptr, &k::wild, &k::cold, &k::cold2, &k::whilestep,
        &k::setcond}) {
    (void)api.func_get_attributes(kernel);
  }
  int32_t* nothing = nullptr;
  (void)api.launch_kernel({&k::fill, {1}, {32}, 0, k::args(nothing, 0, 0)}, kNullStream);
  (void)api.device_synchronize();
}

/// In the process of the program: 0 if its answer lies in the file.
int answer(const ConformanceCase& c, const OpenDevice& open, const std::string& path) {
  const Program* program = find_program(c.id);
  if (program == nullptr) return 1;
  for (const Variant& variant : variants_of(*program)) {
    if (variant.to_string() != c.variant) continue;
    const std::unique_ptr<DeviceApi> api = open(nullptr);
    if (api == nullptr) return 1;
    warm_up(*api, c.id);
    Run run(*api, c.id, variant);
    program->body(run);
    const RecordedProgram told{program->verdict, std::string(program->title), run.take()};
    const bool written = write_records(path, "device", "", {&told, 1}).ok();
    // What a program leaves undone may never end: no destructor waits for it.
    _exit(written ? 0 : 1);
  }
  return 1;
}

Record read_answer(const ConformanceCase& c, const std::string& path) {
  RecordFile file;
  if (read_records(path, &file).ok() && file.cases.size() == 1) {
    return std::move(file.cases[0].record);
  }
  Record nothing;
  nothing.id = c.id, nothing.variant = c.variant, nothing.complete = false;
  return nothing;
}

template <class Body>
pid_t start_process(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

}  // namespace

std::string why_no_device(const OpenDevice& open) {
  const Folder folder;
  const std::string path = folder.file("why");
  const pid_t child = start_process([&] {
    std::string why;
    if (open(&why) != nullptr) return 0;
    std::ofstream(path) << why;
    return 1;
  });
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no process could be started";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  std::string why;
  std::getline(std::ifstream(path), why);
  return why.empty() ? "the device could not be opened" : why;
}

void answers_of(std::span<const ConformanceCase> cases, const OpenDevice& open,
                const AnswerOptions& options, const std::atomic<bool>& stop,
                const std::function<void(size_t, Record)>& fn) {
  struct Running {
    size_t index;
    Clock::time_point until;
  };
  const Folder folder;
  std::map<pid_t, Running> running;
  const auto path_of = [&](size_t i) { return folder.file(std::to_string(i) + ".jsonl"); };
  size_t next = 0;
  while ((next < cases.size() && !stop) || !running.empty()) {
    while (!stop && next < cases.size() && std::ssize(running) < options.processes) {
      const size_t i = next++;
      const pid_t child = start_process([&] { return answer(cases[i], open, path_of(i)); });
      if (child > 0) running[child] = {i, Clock::now() + options.limit};
      if (child <= 0) fn(i, read_answer(cases[i], path_of(i)));
    }
    for (auto it = running.begin(); it != running.end();) {
      const auto [child, run] = *it;
      if (stop || Clock::now() >= run.until) kill(child, SIGKILL);
      if (waitpid(child, nullptr, WNOHANG) != child) {
        ++it;
        continue;
      }
      it = running.erase(it);
      if (!stop) fn(run.index, read_answer(cases[run.index], path_of(run.index)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

ProgramVerdict judge_answer(const ConformanceCase& c, Record answer) {
  const Program* program = find_program(c.id);
  const auto variant = Variant::parse(c.variant);
  if (program == nullptr || !variant) {
    ProgramVerdict verdict;
    verdict.why = "there is no such program here";
    verdict.findings.add(make_finding("conformance.record", at("program"), "one of `list programs`",
                                      c.id + ' ' + c.variant));
    return verdict;
  }
  ProgramVerdict verdict =
      judge_once(*program, *variant, c.recorded ? &c.recorded->record : nullptr, std::move(answer));
  for (Finding& finding : verdict.findings.findings()) finding.case_id = c.id + ' ' + c.variant;
  return verdict;
}

}  // namespace shadowgraph
