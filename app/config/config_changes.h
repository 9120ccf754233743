// SPDX-License-Identifier: Apache-2.0
//
// In what a config differs from the one that a checkpoint was written with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/config/config.h"

namespace convoy {

/// A key with two values as TOML text; "not set" where it does not apply.
struct ConfigChange {
  std::string key, before, after;

  /// "optimizer.lr 0.05 -> 0.2"
  [[nodiscard]] std::string str() const { return key + " " + before + " -> " + after; }
};

/// `before`: a resolved config, also of an earlier version, whose missing keys have their defaults. In the order of the
/// sections. Left out is what changes no result: [run] (a checkpoint has its seed), [log], checkpoint.dir and
/// checkpoint.resume. None if `before` is no TOML.
[[nodiscard]] std::vector<ConfigChange> config_changes(std::string_view before, const Config& after);

}  // namespace convoy
