// SPDX-License-Identifier: Apache-2.0
#include "parallel/base/mpi_check.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "layers/base/error.h"
#include "layers/base/host_name.h"

namespace convoy {

namespace {

// "parallel/world/world.cpp" where the compiler was given a path relative to the build folder, as ccache does.
std::string_view source_path(std::string_view file) {
  while (file.starts_with("../")) file.remove_prefix(3);
  return file;
}

}  // namespace

std::string mpi_whereabouts() {
  std::string host = host_name("?");
  int started = 0;
  int ended = 0;
  int world_rank = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started == 0 || ended != 0 || MPI_Comm_rank(MPI_COMM_WORLD, &world_rank) != MPI_SUCCESS) return host;
  return fmt::format("rank {} ({})", world_rank, host);
}

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  // MPICH: "Invalid communicator, error stack:\ninternal_Comm_rank(87): ...", with a line for each function
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  const std::string_view first = whole.substr(0, whole.find('\n'));
  return std::string(first.substr(0, first.find(", error stack:")));
}

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  fail("MPI failed on {}: {} at {}:{}: {}", mpi_whereabouts(), call, source_path(file), line, mpi_error_text(code));
}

}  // namespace convoy
