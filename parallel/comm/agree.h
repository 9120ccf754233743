// SPDX-License-Identifier: Apache-2.0
//
// Fails together or not at all: work that may fail on some ranks (reading a file, starting a device) ends with the same
// Error on all of them, so that no rank waits for one that has ended and rank 0 alone reports. Relies on the
// communicator. Invariant: either all ranks return, or all throw the same message.
#pragma once

#include <functional>
#include <string>

#include "parallel/comm/communicator.h"

namespace convoy {

/// Every rank runs `body`, which must not communicate, and learns whether all came through. If not, every
/// rank throws the Error of the lowest rank that failed, marked collective; unless that is rank 0, the
/// message says which rank and host it comes from. `what` names the work. Every member calls it.
void agree(Communicator& communicator, const std::function<void()>& body, const std::string& what);

/// Rank 0 alone runs `body`, and every rank gets the text it returned, or throws the Error that it threw.
/// Every member calls it.
std::string on_root(Communicator& communicator, const std::function<std::string()>& body, const std::string& what);

}  // namespace convoy
