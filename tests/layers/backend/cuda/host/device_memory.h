// SPDX-License-Identifier: Apache-2.0
//
// Device and pinned memory on the host, with guards around each block. Under AddressSanitizer, which sees more, there
// are none.
#pragma once

#include <cstddef>
#include <string>

namespace convoy::on_host {

/// What was written outside of blocks since the last call, for people; empty when nothing was.
[[nodiscard]] std::string damaged_guard();

/// Whether these bytes lie in one block that has not been freed.
[[nodiscard]] bool is_device_memory(const void* data, std::size_t bytes);

}  // namespace convoy::on_host
