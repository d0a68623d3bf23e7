// Preloaded, it gives a process a machine as bad as its environment says:
//   BAD_CLOCK=3600      its wall clock is so many seconds ahead
//   BAD_REPLIES=10      one in so many changes of a folder named "ledger" is done, and its reply is
//                       lost: the file server is asked again, and says that it cannot do it
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

long number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtol(text, nullptr, 10);
}

long clock_ahead() {
  static const long seconds = number_of("BAD_CLOCK");
  return seconds;
}

bool is_lost(const char* path) {
  static const long one_in = number_of("BAD_REPLIES");
  static unsigned state = 0;
  if (one_in == 0 || std::strstr(path, "/ledger/") == nullptr) return false;
  if (state == 0) state = static_cast<unsigned>(::getpid());
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % static_cast<unsigned>(one_in) == 0;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

/// The answer to the second request.
int replied(int result, const char* path, int error) {
  if (result != 0 || !is_lost(path)) return result;
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  static auto* const f = real<int(clockid_t, timespec*)>("clock_gettime");
  const int result = f(clock, time);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += clock_ahead();
  return result;
}

int gettimeofday(timeval* time, void* zone) {
  static auto* const f = real<int(timeval*, void*)>("gettimeofday");
  const int result = f(time, zone);
  time->tv_sec += clock_ahead();
  return result;
}

time_t time(time_t* to) {
  static auto* const f = real<time_t(time_t*)>("time");
  const time_t now = f(nullptr) + clock_ahead();
  if (to != nullptr) *to = now;
  return now;
}

int link(const char* from, const char* to) {
  static auto* const f = real<int(const char*, const char*)>("link");
  return replied(f(from, to), to, EEXIST);
}

int rename(const char* from, const char* to) {
  static auto* const f = real<int(const char*, const char*)>("rename");
  return replied(f(from, to), to, ENOENT);
}

int unlink(const char* path) {
  static auto* const f = real<int(const char*)>("unlink");
  return replied(f(path), path, ENOENT);
}

int mkdir(const char* path, mode_t mode) {
  static auto* const f = real<int(const char*, mode_t)>("mkdir");
  return replied(f(path, mode), path, EEXIST);
}

int open(const char* path, int flags, ...) {
  static auto* const f = real<int(const char*, int, ...)>("open");
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  const int fd = f(path, flags, mode);
  // A claim; temporary files have names that nobody else can have taken.
  const bool may_be_lost = (flags & O_EXCL) != 0 && std::strstr(path, "/claim/") != nullptr;
  if (fd < 0 || !may_be_lost || replied(0, path, EEXIST) == 0) return fd;
  ::close(fd);
  errno = EEXIST;
  return -1;
}

}  // extern "C"
