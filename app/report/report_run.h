// SPDX-License-Identifier: Apache-2.0
//
// A run as `convoy report` shows it: its name, metrics and config. Relies on the layout of a run's folder
// (docs/interface.md). Invariant: nothing is written, and a run that is under way is not disturbed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/report/run_metrics.h"
#include "app/train/confusion.h"

namespace convoy {

struct ReportRun {
  std::string name;    ///< the folder's; of several runs with one name, as much of the path as distinguishes them
  std::string folder;  ///< that metrics.jsonl lies in
  RunMetrics metrics;
  std::string config;                         ///< config.toml as it is; empty when it cannot be read
  std::map<std::string, std::string> values;  ///< its keys, "section.key", with their values as TOML
  std::string config_problem;                 ///< why there is no config, or no keys; empty when all is well
  Confusion confusion;                        ///< of the newest evaluation; empty: there is none
  std::string holder;                         ///< who is writing the run's folder now; empty: nobody
};

/// The metrics.jsonl of a run: `path` is its folder, or that file. Throws a usage Error when there is none.
[[nodiscard]] std::string metrics_path(const std::string& path);

/// path: a run's folder or its metrics.jsonl. Throws a usage Error when there is nothing to read.
[[nodiscard]] ReportRun read_run(const std::string& path);

/// Gives runs of equal names different ones.
void tell_apart(std::vector<ReportRun>& runs);

/// The keys of a TOML text, "section.key" and "section.list[0].key", with their values as TOML. Throws an Error when
/// the text is not TOML.
[[nodiscard]] std::map<std::string, std::string> flat_config(const std::string& text, const std::string& path);

/// The keys whose value is not the same in all runs (absent in one: an empty text), except run.name.
[[nodiscard]] std::vector<std::string> differing_keys(const std::vector<ReportRun>& runs);

}  // namespace convoy
