// The programs by theme, one file each. programs.cc joins them.
#pragma once

#include <span>

#include "conformance/program.h"

namespace shadowgraph {

std::span<const Program> programs_baking();           // G01-G14
std::span<const Program> programs_copies();           // G15-G28: copies, memsets, host functions
std::span<const Program> programs_legality();         // G29-G45: calls on the capturing stream
std::span<const Program> programs_legality_beside();  // G46-G63: calls beside a capture
std::span<const Program> programs_events();           // G64-G83
std::span<const Program> programs_launch();           // G84-G96
std::span<const Program> programs_update();           // G97-G110
std::span<const Program> programs_memory_nodes();     // G111-G122
std::span<const Program> programs_conditional();      // G123-G129
std::span<const Program> programs_faults();           // G130-G135
std::span<const Program> programs_questions();        // Q01-Q15
std::span<const Program> programs_matrix();           // M:...: the unsafe-call matrix

}  // namespace shadowgraph
