// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm/shared_segments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

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

// Where other processes of the node find the open file of a segment, and which file it must be.
struct Place {
  std::int64_t pid = 0;
  std::int64_t descriptor = -1;  // -1: there is none
  std::uint64_t device = 0, inode = 0;
};

std::byte* map(int descriptor, std::size_t bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(start, bytes, MADV_HUGEPAGE);  // a wish
#endif
  return static_cast<std::byte*>(start);
}

// The open file of a segment, until all ranks have mapped it.
class SegmentFile {
 public:
  // A file without a name, all of its memory reserved; place().descriptor is -1 when there is none.
  explicit SegmentFile(std::size_t bytes) : descriptor_(memfd_create("convoy", MFD_CLOEXEC)) {
    struct stat status {};
    const bool works = descriptor_ >= 0 && posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes)) == 0 &&
                       fstat(descriptor_, &status) == 0;
    if (works) place_ = {getpid(), descriptor_, status.st_dev, status.st_ino};
  }
  ~SegmentFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;
  [[nodiscard]] const Place& place() const { return place_; }

 private:
  int descriptor_;
  Place place_;
};

// Null when it cannot be mapped: processes in different containers do not find each other's files.
std::byte* map_segment(const Place& place, std::size_t bytes) {
  if (place.descriptor < 0) return nullptr;
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  struct stat status {};
  const bool same = fstat(descriptor, &status) == 0 && status.st_dev == place.device && status.st_ino == place.inode;
  std::byte* start = same ? map(descriptor, bytes) : nullptr;
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
  const SegmentFile own(bytes);
  std::vector<Place> places(static_cast<std::size_t>(ranks));
  CONVOY_MPI_CHECK(MPI_Allgather(&own.place(), sizeof(Place), MPI_BYTE, places.data(), sizeof(Place), MPI_BYTE, comm));
  bool mapped = true;
  for (const Place& place : places) {
    std::byte* start = map_segment(place, bytes);
    mapped = mapped && start != nullptr;
    segments->starts_.push_back(start);
  }
  const bool works = all_true(comm, mapped);
  return works ? std::move(segments) : nullptr;
}

SharedSegments::~SharedSegments() {
  for (std::byte* start : starts_) {
    if (start != nullptr) munmap(start, bytes_);
  }
}

}  // namespace convoy
