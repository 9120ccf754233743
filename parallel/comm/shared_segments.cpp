// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/shared_segments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>

#include "parallel/base/mpi_check.h"

namespace convoy {

namespace {

bool all_true(MPI_Comm comm, bool mine) {
  int own = mine ? 1 : 0, all = 0;
  CONVOY_MPI_CHECK(MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, comm));
  return all != 0;
}

bool on_one_node(MPI_Comm comm, int ranks) {
  MPI_Comm node = MPI_COMM_NULL;
  int of_node = 0;
  CONVOY_MPI_CHECK(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  CONVOY_MPI_CHECK(MPI_Comm_size(node, &of_node));
  CONVOY_MPI_CHECK(MPI_Comm_free(&node));
  return all_true(comm, of_node == ranks);
}

std::string name_of(std::uint64_t token) { return fmt::format("/convoy.{:016x}", token); }

std::byte* map(int descriptor, std::size_t bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(start, bytes, MADV_HUGEPAGE);  // a wish
#endif
  return static_cast<std::byte*>(start);
}

// Memory under an unused name, all of it reserved; null when there is none.
std::byte* make_segment(std::size_t bytes, std::uint64_t& token) {
  std::random_device random;
  token = std::uint64_t{random()} << 32 | random();
  const int descriptor = shm_open(name_of(token).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    token = 0;
    return nullptr;
  }
  const bool reserved = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes)) == 0;
  std::byte* start = reserved ? map(descriptor, bytes) : nullptr;
  close(descriptor);
  return start;
}

std::byte* open_segment(std::size_t bytes, std::uint64_t token) {
  const int descriptor = shm_open(name_of(token).c_str(), O_RDWR | O_CLOEXEC, 0);
  if (descriptor < 0) return nullptr;
  std::byte* start = map(descriptor, bytes);
  close(descriptor);
  return start;
}

}  // namespace

std::unique_ptr<SharedSegments> SharedSegments::create(MPI_Comm comm, std::size_t bytes) {
  int rank = 0, ranks = 0;
  CONVOY_MPI_CHECK(MPI_Comm_rank(comm, &rank));
  CONVOY_MPI_CHECK(MPI_Comm_size(comm, &ranks));
  if (ranks < 2 || !on_one_node(comm, ranks)) return nullptr;
  std::unique_ptr<SharedSegments> segments(new SharedSegments());
  segments->bytes_ = bytes;
  std::vector<std::uint64_t> tokens(static_cast<std::size_t>(ranks));
  std::uint64_t token = 0;
  std::byte* own = make_segment(bytes, token);
  CONVOY_MPI_CHECK(MPI_Allgather(&token, sizeof token, MPI_BYTE, tokens.data(), sizeof token, MPI_BYTE, comm));
  bool mapped = own != nullptr;
  for (int i = 0; i < ranks; ++i) {
    std::byte* start = i == rank ? own : open_segment(bytes, tokens[static_cast<std::size_t>(i)]);
    mapped = mapped && start != nullptr;
    segments->starts_.push_back(start);
  }
  const bool works = all_true(comm, mapped);
  if (token != 0) shm_unlink(name_of(token).c_str());
  return works ? std::move(segments) : nullptr;
}

SharedSegments::~SharedSegments() {
  for (std::byte* start : starts_) {
    if (start != nullptr) munmap(start, bytes_);
  }
}

}  // namespace convoy
