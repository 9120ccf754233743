// SPDX-License-Identifier: Apache-2.0
//
// How a command gets from the leader's mpirun to a member on another host: files in DIR/requests/HOST. NAME.json is the
// request, NAME.running a request that the member has taken up, NAME.err what the command writes, NAME.exit its exit
// code. Relies on rename() within a folder being atomic. Invariant: when NAME.json and NAME.running are both gone the
// request is withdrawn, and its command must end.
#pragma once

#include <string>
#include <vector>

namespace convoy {

/// The environment variable by which mpirun's children learn the job's folder.
inline constexpr const char* kJobFolderVariable = "CONVOY_JOB_FOLDER";

/// DIR/requests/HOST
[[nodiscard]] std::string request_folder(const std::string& job, const std::string& host);

/// Withdraws all requests of the job: those of an mpirun that has ended.
void withdraw_all_requests(const std::string& job);

/// convoy launch-remote HOST WORDS...: what mpirun calls in place of ssh. Has the words run by the member on the host,
/// as one shell command line; passes its stderr on and ends with its exit code, or withdraws it when it is itself told
/// to end or its mpirun has gone.
int launch_remote_command(const std::string& host, const std::vector<std::string>& words);

}  // namespace convoy
