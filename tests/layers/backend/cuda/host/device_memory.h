// SPDX-License-Identifier: Apache-2.0
//
// Device memory on the host, with guards around each block. Under AddressSanitizer, which sees more, there are none.
#pragma once

#include <string>

namespace convoy::on_host {

/// What was written outside of blocks since the last call, for people; empty when nothing was.
[[nodiscard]] std::string damaged_guard();

}  // namespace convoy::on_host
