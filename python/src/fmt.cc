// fmt's own functions, so that the extension needs no libfmt of the system.
#include <fmt/format-inl.h>

template FMT_API auto fmt::detail::thousands_sep_impl(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;
template FMT_API auto fmt::detail::decimal_point_impl(fmt::detail::locale_ref) -> char;
