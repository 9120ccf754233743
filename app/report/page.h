// SPDX-License-Identifier: Apache-2.0
//
// The page that `convoy report` writes: HTML with its style sheet and its pictures in it, for screens in light and dark
// and for A4. Invariant: it names nothing outside itself and holds no script.
#pragma once

#include <string>
#include <vector>

#include "app/report/report_run.h"

namespace convoy {

/// runs: at least one, with different names.
[[nodiscard]] std::string report_page(const std::vector<ReportRun>& runs);

}  // namespace convoy
