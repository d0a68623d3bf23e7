// What happens while a verb runs: Ctrl-C, and the line on stderr.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "cli.h"

namespace shadowgraph::cli {
namespace {

constexpr int kBarWidth = 20;
constexpr std::chrono::milliseconds kRedraw{100};

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
std::atomic<bool> interrupted_flag{false};

void on_interrupt(int) { interrupted_flag.store(true, std::memory_order_relaxed); }

}  // namespace

std::atomic<bool>& interrupted() { return interrupted_flag; }

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  // The handler is gone after its first signal, so that a second Ctrl-C ends what does not end by
  // itself.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Progress::Progress(const Common& common, std::string item)
    : shown_(!common.quiet && ::isatty(STDERR_FILENO) == 1), item_(std::move(item)) {}

Progress::~Progress() {
  if (shown_ && drawn_ != Clock::time_point()) write_stderr("\r\x1b[K");
}

void Progress::update(double fraction, int64_t done, int64_t findings) {
  if (!shown_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const Clock::time_point now = Clock::now();
  if (!lock || now - drawn_ < kRedraw) return;
  drawn_ = now;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string bar(static_cast<size_t>(fraction * kBarWidth), '#');
  write_stderr(fmt::format("\r[{:.<{}}] {:3.0f}%  {} {}  {:.0f}/s  {:.0f} s  {} finding{}\x1b[K",
                           bar, kBarWidth, fraction * 100, done, item_,
                           static_cast<double>(done) / std::max(seconds, 1e-3), seconds, findings,
                           findings == 1 ? "" : "s"));
}

}  // namespace shadowgraph::cli
