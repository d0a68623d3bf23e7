// The way out of a call of the C ABI: statuses, the thread's last error, and no exception.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "shadowgraph.h"
#include "shadowgraph/status.h"

namespace shadowgraph::c_api {

/// Keeps the text for sg_last_error, cut where it is too long, and returns the status.
sg_status fail(sg_status status, std::string_view what) noexcept;

/// SG_USAGE: a word that the call does not know. "params.mode is Decode; did you mean decode?,
/// expected one of extend, decode, ..."
/// hint: another one than the nearest of the known.
sg_status fail_word(const char* member, std::string_view word,
                    const std::vector<std::string>& known, std::string_view hint = {});

/// SG_OK of a Status that is ok. Else the report gets its findings if the caller wants one; the
/// status is `wrong`, or SG_INTERNAL if memory ran out.
sg_status hand_out(const Status& findings, sg_status wrong, sg_report** report);

/// The same of a judge: SG_FINDINGS if a law is broken, SG_BAD_INPUT if something could only not be
/// judged.
sg_status hand_out_verdict(const Status& findings, sg_report** report);

/// Runs the body of a call: a function that returns a status.
template <class Body>
sg_status guarded(sg_report** report, const Body& body) noexcept {
  if (report != nullptr) *report = nullptr;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(SG_INTERNAL, "out of memory");
  } catch (const std::exception& e) {
    return fail(SG_INTERNAL, e.what());
  } catch (...) {
    return fail(SG_INTERNAL, "an exception of an unknown kind");
  }
}

/// A struct of any version as this library's: zeros stand behind a shorter one. False: it is none,
/// or says something that this library does not know; sg_last_error tells.
template <class T>
bool take(const char* name, const T* given, T* taken) noexcept {
  *taken = T{};
  const auto refuse = [&](const char* why) {
    char text[128];
    std::snprintf(text, sizeof text, "%s%s", name, why);
    fail(SG_USAGE, text);
    return false;
  };
  if (given == nullptr) return refuse(" is NULL");
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > size_t{1} << 16)
    return refuse(".struct_size is none: begin with SG_..._INIT");
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0) return refuse(" has members that this library does not know");
  std::memcpy(taken, given, size < sizeof(T) ? size : sizeof(T));
  return true;
}

}  // namespace shadowgraph::c_api
