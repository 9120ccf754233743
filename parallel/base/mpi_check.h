// SPDX-License-Identifier: Apache-2.0
//
// Turns MPI's return codes into Errors. Relies on MPI_ERRORS_RETURN, which World sets on the world
// communicator and every other communicator inherits. Private to parallel/: it brings in mpi.h.
#pragma once

#include <mpi.h>

#include <string>

namespace convoy {

/// "rank 3 (node07)" of the world, or the host alone while MPI is not running.
[[nodiscard]] std::string mpi_whereabouts();

/// MPI's message for an error code.
[[nodiscard]] std::string mpi_error_text(int code);

/// Throws Error unless `code` is MPI_SUCCESS: the call, world rank, host, place and MPI's message.
void check_mpi(int code, const char* call, const char* file, int line);

}  // namespace convoy

#define CONVOY_MPI_CHECK(call) ::convoy::check_mpi((call), #call, __FILE__, __LINE__)
