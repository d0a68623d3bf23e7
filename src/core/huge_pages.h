// Asking the system for huge pages.
#pragma once

#include <cstddef>

namespace shadowgraph {

/// The huge pages that lie whole in [p, p + bytes) become such when they are touched, if the system
/// has them. A wish: nothing fails.
void ask_for_huge_pages(void* p, size_t bytes);

}  // namespace shadowgraph
