// SPDX-License-Identifier: Apache-2.0
//
// How errors and warnings reach the user: one line (or a few) on stderr. An error of a training that `convoy launch`
// supervises also goes to the file that kErrorFileVariable names, so that the supervisor knows an error of the program
// from a death by kill.
#pragma once

#include <functional>
#include <string>

namespace convoy {

/// The environment variable with the file's path.
inline constexpr const char* kErrorFileVariable = "CONVOY_ERROR_FILE";

/// What begins the line of that file that names the host at fault, before the message (SystemError::host()).
inline constexpr const char* kFaultyHost = "host: ";

/// Writes "convoy: error: MESSAGE". `host`: whose system is at fault, or empty. Never throws.
void report_error(const std::string& message, const std::string& host = "") noexcept;

/// Writes "convoy: warning: MESSAGE" to stderr.
void print_warning(const std::string& message);

/// Writes "convoy: note: MESSAGE" to stderr; nothing for a message that this process has written before, and none that
/// is empty.
void print_note(const std::string& message);

/// Called by report_error() with each message, until replaced; empty: nothing. Used by a training for its run folder.
void on_error_report(std::function<void(const std::string&)> listener);

}  // namespace convoy
