// SPDX-License-Identifier: Apache-2.0
//
// Text as part of HTML and SVG. Invariant: whatever a run is called, what comes out holds no markup of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace convoy {

/// & < > " ' as entities; control characters other than tab and newline as spaces.
[[nodiscard]] std::string escape(std::string_view text);

/// At most `most` characters (UTF-8), the last of them an ellipsis where some were left out. Not escaped.
[[nodiscard]] std::string shorten(std::string_view text, std::size_t most);

/// The CSS class of a run's colour, "c0" to "c7", with that of a dash for the runs beyond the eighth.
[[nodiscard]] std::string colour_class(std::size_t run);

}  // namespace convoy
