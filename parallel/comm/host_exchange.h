// SPDX-License-Identifier: Apache-2.0
//
// Sends texts and named host arrays between two ranks, one at a time, so that at most one is buffered.
#pragma once

#include <string>
#include <vector>

#include "layers/base/host_tensor.h"
#include "parallel/comm/communicator.h"

namespace convoy {

void send_text(Communicator& communicator, const std::string& text, int peer, const std::string& what);
[[nodiscard]] std::string receive_text(Communicator& communicator, int peer, const std::string& what);

void send_tensors(Communicator& communicator, const std::vector<HostTensor>& tensors, int peer,
                  const std::string& what);
[[nodiscard]] std::vector<HostTensor> receive_tensors(Communicator& communicator, int peer, const std::string& what);

}  // namespace convoy
