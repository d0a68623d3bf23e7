// Whole files in and out, as hostile input: regular files only, size before memory, nothing
// half-written. Rules: verification.E. Tested by tests/io/safetensors_test.cc.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/laws.h"
#include "shadowgraph/status.h"

namespace shadowgraph {

/// Larger inputs are refused (io.memory): what a file holds is held in memory, and then some.
inline constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;

/// The bytes of a regular file. Anything else (directory, FIFO, device, missing) is io.open and
/// never blocks; a file that shrinks or grows meanwhile is io.truncated. On failure *bytes is
/// untouched.
Status read_file(const std::string& path, std::vector<std::byte>* bytes);

/// All of standard input, whatever it is; named "-" in findings. Much above `limit` is io.memory.
Status read_stdin(std::vector<std::byte>* bytes, uint64_t limit = kMaxFileBytes);

/// Writes a file whole or not at all: a new file beside it, synced, then renamed over it.
Status write_file(const std::string& path, std::span<const std::byte> bytes);

/// The same where there is no such file yet; one that is there stays, and *put is false.
Status put_file(const std::string& path, std::span<const std::byte> bytes, bool* put);

/// Untrusted text for messages: printable ASCII stays, the rest is \xNN, long text is cut.
std::string printable(std::string_view text);

/// A finding about the file `name`, or the case "FILE#ID"; whoever prints it escapes the name.
Finding file_finding(LawId law, const std::string& name, std::string field, std::string expected,
                     std::string got);

/// Runs body() -> Status; running out of memory is an ordinary finding.
template <class Body>
Status with_memory_findings(const std::string& name, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  Status status;
  status.add(file_finding("io.memory", name, "memory", "enough for the file", "exhausted"));
  return status;
}

}  // namespace shadowgraph
