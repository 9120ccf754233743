// SPDX-License-Identifier: Apache-2.0
//
// The confusion matrices of runs on the page: of a few classes as a matrix, of many as the classes with the lowest
// accuracy and what these are taken for.
#pragma once

#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace convoy {

/// A section; empty when no run has a matrix.
[[nodiscard]] std::string confusion_section(const std::vector<ReportRun>& runs);

}  // namespace convoy
