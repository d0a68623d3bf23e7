// The calls that a ledger makes of a file system, besides put_file (io/file.h): they do the same on
// a local disk and on one that several machines share.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "shadowgraph/status.h"

namespace shadowgraph {

/// "HOST PROCESS RANDOM": no other process of any machine has it.
std::string name_of_process();

bool exists(const std::string& path);
/// Makes a folder and those above it; io.write.
Status make_folder(const std::string& path);
/// The numbers N of its entries named "N" + suffix, first <= N < end; none where there is no such
/// folder.
std::set<uint64_t> numbers_in(const std::string& folder, std::string_view suffix, uint64_t first,
                              uint64_t end);
Status read_text(const std::string& path, std::string* text);
Status put_text(const std::string& path, std::string_view text, bool* put);
/// One line more at the end of a file, which is made.
void append_line(const std::string& path, std::string_view line);

/// Creates a file with O_EXCL; 0, or errno. The text may be missing where the disk is full.
int create_file(const std::string& path, std::string_view text);
/// Writes from the start of a file that is there, and makes it as new as any; nothing where it is
/// not.
void touch_file(const std::string& path, std::string_view text);
/// When a file was last touched, in seconds by the clock of whoever keeps the files. None where it
/// is not there.
std::optional<double> touched_at(const std::string& path);
/// The time of that clock, now: a file that is made in the folder is new. None where it has no
/// room.
std::optional<double> now_in(const std::string& folder);

}  // namespace shadowgraph
