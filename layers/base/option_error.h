// SPDX-License-Identifier: Apache-2.0
//
// Errors about options. Each carries the path of its option, so that the reader of configs can add the place where the
// option was given.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "layers/base/error.h"

namespace convoy {

/// A usage error about one option. `key` is its path, "optimizer.momentum"; what() begins with it.
class OptionError : public Error {
 public:
  OptionError(std::string key, const std::string& message)
      : Error(key + ": " + message, ExitCode::kUsage), key_(std::move(key)) {}
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  std::string key_;
};

/// Throws an OptionError: the value of `key` is wrong.
template <class... Args>
[[noreturn]] void fail_option(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  throw OptionError(std::string(key), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace convoy
