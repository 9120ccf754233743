// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/rank_group.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "parallel/base/mpi_check.h"
#include "parallel/comm/mpi_communicator.h"
#include "parallel/comm/mpi_operation.h"
#include "parallel/watchdog/call_deadline.h"

namespace convoy {

namespace {

constexpr double kMinSeconds = 20;    // ranks are further apart at the start than in training
constexpr double kFreeSeconds = 600;  // the default of parallel.timeout

// Making communicators blocks inside MPI, where a late rank can be named by nobody: so all members meet before.
void meet(MPI_Comm comm, double timeout, const std::string& name) {
  auto identity = std::make_shared<CommunicatorIdentity>(comm, "start-up", std::max(timeout, kMinSeconds));
  if (identity->size == 1) return;
  MpiOperation operation(std::move(identity), {"barrier", 1, "before making '" + name + "'"});
  CONVOY_MPI_CHECK(MPI_Ibarrier(comm, operation.add_request()));
  operation.wait();
}

}  // namespace

struct RankGroup::Handle {
  explicit Handle(MPI_Comm comm) : mpi(comm) {}
  ~Handle() {
    int ended = 0;
    MPI_Finalized(&ended);
    // Freeing is collective: on the way to an abort it stays.
    const bool orderly = ended == 0 && std::uncaught_exceptions() == 0 && abandoned_operations() == 0;
    const bool predefined = mpi == MPI_COMM_WORLD || mpi == MPI_COMM_SELF || mpi == MPI_COMM_NULL;
    if (!predefined && orderly) {
      const CallDeadline deadline("the freeing of a group of ranks", kFreeSeconds);
      MPI_Comm_free(&mpi);
    }
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  MPI_Comm mpi;
};

std::unique_ptr<Communicator> RankGroup::communicator(double timeout, const std::string& name) const {
  meet(handle_->mpi, timeout, name);
  const CallDeadline deadline("the making of communicator '" + name + "'", std::max(timeout, kMinSeconds));
  MPI_Comm copy = MPI_COMM_NULL;
  CONVOY_MPI_CHECK(MPI_Comm_dup(handle_->mpi, &copy));
  return std::make_unique<MpiCommunicator>(copy, name, timeout);
}

std::unique_ptr<Communicator> RankGroup::split(int color, int key, double timeout, const std::string& name) const {
  meet(handle_->mpi, timeout, name);
  const CallDeadline deadline("the making of communicator '" + name + "'", std::max(timeout, kMinSeconds));
  MPI_Comm part = MPI_COMM_NULL;
  CONVOY_MPI_CHECK(MPI_Comm_split(handle_->mpi, color < 0 ? MPI_UNDEFINED : color, key, &part));
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiCommunicator>(part, name, timeout);
}

RankGroup RankGroup::first(int ranks) const {
  meet(handle_->mpi, kMinSeconds, fmt::format("first {} ranks", ranks));
  const CallDeadline deadline("the making of a group of ranks", kMinSeconds);
  MPI_Comm part = MPI_COMM_NULL;
  CONVOY_MPI_CHECK(MPI_Comm_split(handle_->mpi, rank_ < ranks ? 0 : MPI_UNDEFINED, rank_, &part));
  if (part == MPI_COMM_NULL) return {nullptr, -1, 0};
  CONVOY_MPI_CHECK(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN));
  return {std::make_shared<const Handle>(part), rank_, ranks};
}

RankGroup world_group() {
  int rank = 0, size = 1;
  CONVOY_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  CONVOY_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  return {std::make_shared<const RankGroup::Handle>(MPI_COMM_WORLD), rank, size};
}

RankGroup self_group() { return {std::make_shared<const RankGroup::Handle>(MPI_COMM_SELF), 0, 1}; }

}  // namespace convoy
