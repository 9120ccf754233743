// SPDX-License-Identifier: Apache-2.0
//
// Collective error handling: work that may fail on some ranks (reading a file, initialising a device) ends with the
// same Error on all ranks, so that no rank waits for one that has ended, and only rank 0 reports. Relies on the
// communicator. Invariant: either all ranks return, or all throw the same message.
#pragma once

#include <functional>
#include <string>

#include "parallel/comm/communicator.h"

namespace convoy {

/// Every rank runs `body`, which must not communicate. If it throws on any rank, every rank throws the Error of the
/// lowest of them, marked collective; unless that is rank 0, or a stop (exit code 75), the message names its rank and
/// host. An Error of the system (layers/base/system_error.h) gets exit code 1 if another rank whose `body` tries the
/// same
/// (`tries`) has none. `what` names the work. Collective.
void agree(Communicator& communicator, const std::function<void()>& body, const std::string& what, bool tries = true);

/// Rank 0 runs `body`. Every rank returns its text, or throws its Error. Collective.
std::string on_root(Communicator& communicator, const std::function<std::string()>& body, const std::string& what);

}  // namespace convoy
