// Pictures as inline SVG, coloured by the classes of html_style.h.
#pragma once

#include <string>

#include "report/pictures.h"

namespace shadowgraph {

/// A <figure>: title, drawing, legend. Of a large grid the part around what is wrong, and the
/// caption says so. The picture is_whole.
std::string draw(const Picture& picture);

}  // namespace shadowgraph
