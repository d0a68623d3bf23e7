// Text from outside on its way to a terminal, or into a document.
#pragma once

#include <string>
#include <string_view>

namespace shadowgraph {

/// The text with everything that could steer a terminal or mislead a reader written out: C0, DEL,
/// C1 and bidirectional controls, and bytes that are not UTF-8, become \xNN for each byte.
/// Printable UTF-8 stays.
std::string escape_controls(std::string_view text);

/// The same as text or an attribute's value of XML and HTML: & < > " ' are entities.
std::string escape_xml(std::string_view text);

/// Columns that an escaped text takes, counting a code point as one.
size_t width_of(std::string_view text);

/// One word of a POSIX shell command: as it is where that is safe, else quoted; '$' quoting (bash,
/// zsh, ksh) where it holds a byte that escape_controls would write out.
std::string shell_word(std::string_view text);

}  // namespace shadowgraph
