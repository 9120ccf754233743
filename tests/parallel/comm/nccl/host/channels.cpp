// SPDX-License-Identifier: Apache-2.0
#include "tests/parallel/comm/nccl/host/channels.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace convoy::on_host {

namespace {

struct Id {
  pid_t process;
  int file;
};

}  // namespace

struct Channels::Memory {
  std::atomic<int> joined;
  Channel channels[1];  // as many as pairs
};

std::string Call::str() const {
  const char* name = kind == Kind::kAllReduce   ? "all_reduce"
                     : kind == Kind::kReduce    ? "reduce"
                     : kind == Kind::kBroadcast ? "broadcast"
                     : kind == Kind::kAllGather ? "all_gather"
                     : kind == Kind::kMessage   ? "message"
                                                : "reduce_scatter";
  return fmt::format("{} of {} elements of type {}, reduction {}, root {}", name, count, static_cast<int>(type),
                     static_cast<int>(op), root);
}

std::size_t Call::bytes() const {
  switch (type) {
    case ncclUint8: return count;
    case ncclFloat16:
    case ncclBfloat16: return 2 * count;
    case ncclFloat32: return 4 * count;
    default: return 8 * count;
  }
}

// The file stays open for the others until the process ends.
ncclUniqueId Channels::create() {
  const Id id{getpid(), memfd_create("nccl", MFD_CLOEXEC)};
  ncclUniqueId text{};
  std::memcpy(text.internal, &id, sizeof id);
  return text;
}

Channels::Channels(const ncclUniqueId& text, int size) : size_(size) {
  Id id{};
  std::memcpy(&id, text.internal, sizeof id);
  const int file = open(fmt::format("/proc/{}/fd/{}", id.process, id.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  bytes_ = sizeof(Memory) + sizeof(Channel) * static_cast<std::size_t>(size * size);
  void* memory = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes_)) == 0) {  // to the same size on all ranks
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory != MAP_FAILED) memory_ = static_cast<Memory*>(memory);
}

Channels::~Channels() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

void Channels::join() { ++memory_->joined; }
bool Channels::all_joined() const { return memory_->joined == size_; }
Channel& Channels::between(int from, int to) const { return memory_->channels[from * size_ + to]; }

void Transfer::announce() {
  if (sends_) {
    channel_.call = call_;
    number_ = ++channel_.offered;
    last_piece_ = channel_.written;
  } else {
    number_ = ++channel_.accepted;
    last_piece_ = channel_.read;
  }
}

bool Transfer::matched() const { return (sends_ ? channel_.accepted : channel_.offered) >= number_; }

bool Transfer::move() {
  while (moved_ < data.size()) {
    const std::size_t count = std::min(Channel::kPieceBytes, data.size() - moved_);
    if (sends_) {
      if (channel_.read < last_piece_) return false;
      std::memcpy(channel_.piece, data.data() + moved_, count);
      channel_.written = ++last_piece_;
    } else {
      if (channel_.written == last_piece_) return false;
      std::memcpy(data.data() + moved_, channel_.piece, count);
      channel_.read = ++last_piece_;
    }
    moved_ += count;
  }
  return !sends_ || channel_.read >= last_piece_;
}

}  // namespace convoy::on_host
