// SPDX-License-Identifier: Apache-2.0
//
// A machine that is not here: its stated or fitted figures and the counted work of a model together. Estimates, for
// comparing layouts.
#pragma once

#include <memory>

#include "app/planning/gpu_costs.h"
#include "app/planning/machine_figures.h"
#include "app/planning/machine_model.h"

namespace convoy {

[[nodiscard]] MachineModel stated_machine(const MachineFigures& figures, std::shared_ptr<const ModelWork> work);

}  // namespace convoy
