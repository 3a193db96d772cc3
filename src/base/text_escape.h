// Text from files and users made safe to show: control bytes and broken UTF-8 become visible escapes.
#pragma once

#include <string>
#include <string_view>

namespace honeycrisp {

/// Control characters (C0, DEL, C1, U+2028/2029 and bidirectional overrides) and malformed UTF-8 become \n, \t, \xNN or
/// \u{…}; everything else stays. Longer texts are cut at `limit` bytes (on a character) with "…" put after; 0 = no
/// limit.
std::string escape_for_display(std::string_view text, size_t limit = 0);

}  // namespace honeycrisp
