// SPDX-License-Identifier: Apache-2.0
//
// Files that this user alone may have made: temporary files under names that nobody can guess, and files that a later
// process continues. In a folder that others may write, somebody may have put a link under a name that is known
// before. Relies on O_EXCL, O_NOFOLLOW and fstat(). Invariant: a descriptor from here is a regular file of this user.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace convoy {

/// 16 hexadecimal digits from the system's random numbers.
[[nodiscard]] std::string unguessable_digits();
/// Whether these are such digits.
[[nodiscard]] bool are_unguessable_digits(std::string_view text);

/// Creates a file that was not there, open for reading and writing; -1 and errno when it cannot (EEXIST: there is one).
[[nodiscard]] int create_new_file(const std::string& path, mode_t mode);

/// Opens the file; -1 and errno when it cannot. `flags` as those of open(). EPERM when what is there is no regular file
/// of this user, or has a second name, which may be a link that another user has made to it; ELOOP for a symbolic link.
[[nodiscard]] int open_own_file(const std::string& path, int flags, mode_t mode = 0);

}  // namespace convoy
