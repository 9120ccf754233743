// SPDX-License-Identifier: Apache-2.0
//
// The members of a job: every `convoy launch --job DIR` holds DIR/members/HOST.lock, with its slots as the note. Relies
// on io/lock_file for heartbeats. Invariant: one member on each host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "app/launch/host_source.h"
#include "io/files/lock_file.h"

namespace convoy {

/// Waits for a lock that may be stale, 17 s at most and not at all when its owner certainly runs; null then.
[[nodiscard]] std::unique_ptr<LockFile> take_lock(LockAttempt& attempt, const LockFile::OnLost& on_lost);

/// Joins as this host. Throws a usage Error when another launch of this host has joined.
[[nodiscard]] std::unique_ptr<LockFile> join_job(const std::string& job, const std::string& host, int slots,
                                                 const LockFile::OnLost& on_lost);

/// The hosts of the members whose heartbeat goes on.
[[nodiscard]] std::unique_ptr<HostSource> member_hosts(const std::string& job);

}  // namespace convoy
