// SPDX-License-Identifier: Apache-2.0
//
// For clang-tidy 14 only, which reads it before each source: libstdc++'s <source_location> is empty under that clang,
// for want of a builtin. Never part of a build.
#pragma once

namespace std {
class source_location {
 public:
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           unsigned line = __builtin_LINE()) noexcept {
    source_location place;
    place.file_ = file;
    place.function_ = function;
    place.line_ = line;
    return place;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr unsigned line() const noexcept { return line_; }
  constexpr unsigned column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  unsigned line_ = 0;
};
}  // namespace std
