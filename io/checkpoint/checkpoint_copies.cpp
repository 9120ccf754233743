// SPDX-License-Identifier: Apache-2.0
//
// Plain files: a copy is byte for byte the first file, so its checksum trailer holds too. It is read back from the disk
// where the system can drop its pages (posix_fadvise).
#include "io/checkpoint/checkpoint_copies.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <system_error>
#include <utility>

#include "io/checkpoint/checkpoint.h"
#include "io/files/atomic_file.h"
#include "io/files/crc32c.h"
#include "io/hdf5/checksum_trailer.h"
#include "layers/base/clock.h"
#include "layers/base/error.h"
#include "layers/base/file_text.h"
#include "layers/base/system_error.h"

namespace convoy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = 4 << 20;
constexpr std::chrono::seconds kFarewell{2};  // for a thread that is told to stop

using OnPiece = std::function<void()>;  // after each piece; may throw

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : path_(path), number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) fail_io("cannot open {}: {}", path, std::strerror(errno));
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // The checksum of the whole file; `use` gets each piece.
  template <class Use>
  std::uint32_t read_all(const Use& use) {
    std::vector<std::byte> piece(kPieceBytes);
    for (std::uint32_t crc = 0;;) {
      const ssize_t count = ::read(number_, piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_io("cannot read {}: {}", path_, std::strerror(errno));
      if (count == 0) return crc;
      const std::span bytes(piece.data(), static_cast<std::size_t>(count));
      crc = crc32c({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, crc);
      use(bytes);
    }
  }

 private:
  std::string path_;
  int number_;
};

// Written, synced and dropped from memory; returns the checksum of what was read from `from`.
std::uint32_t write_copy(const std::string& from, const AtomicFile& copy, const OnPiece& on_piece) {
  const std::uint32_t crc = Descriptor(from).read_all([&](std::span<const std::byte> bytes) {
    write_all(copy.descriptor(), bytes, copy.temporary());
    on_piece();
  });
  copy.sync();
  static_cast<void>(::posix_fadvise(copy.descriptor(), 0, 0, POSIX_FADV_DONTNEED));
  return crc;
}

void copy_with(const std::string& from, const std::string& to, const OnPiece& on_piece) {
  AtomicFile copy(to);
  const std::uint32_t written = write_copy(from, copy, on_piece);
  const std::uint32_t read = Descriptor(copy.temporary()).read_all([&](std::span<const std::byte>) { on_piece(); });
  if (read != written) fail("{}: what is read back is not what was written", copy.temporary());
  if (const TrailerCheck check = check_trailer(copy.temporary()); check.trailer == Trailer::kBroken) {
    fail("{}: {}, so it is not copied", from, check.problem);
  }
  copy.finish();
}

}  // namespace

void copy_checkpoint(const std::string& from, const std::string& to) {
  copy_with(from, to, [] {});
}

void prepare_copy_folder(const std::string& folder, const std::string& run) {
  const fs::path dir = fs::path(folder).parent_path();
  std::error_code error;
  fs::create_directory(dir, error);
  if (!error) fs::create_directory(folder, error);
  if (error) fail("cannot make {}: {} (name a folder that can be written)", folder, error.message());
  const std::string name = folder + "/run.txt", text = run + "\n";
  if (const auto before = file_text(name); before && *before != text) {
    fail_usage("{} says that the copies there are of another run: {} (name another folder, or move them away)", name,
               before->substr(0, before->find('\n')));
  }
  write_file_atomically(name, std::as_bytes(std::span(text)));
}

std::optional<fs::path> find_checkpoint_or_copy(const std::string& dir, const std::string& copies,
                                                const WarnCallback& warn) {
  std::vector<std::string> problems;
  const auto newest_first = [&](const std::string& folder) {
    std::vector<CheckpointFile> files;
    try {
      files = list_checkpoints(folder);
    } catch (const Error& unreadable) {
      problems.emplace_back(unreadable.what());
    }
    std::reverse(files.begin(), files.end());
    return files;
  };
  const auto is_valid = [&](const std::string& path) {
    const std::string problem = checkpoint_problem(path);
    if (!problem.empty()) problems.push_back(problem);
    return problem.empty();
  };
  const auto use = [&](const std::string& path, const std::string& note) {
    for (const auto& problem : problems) warn(fmt::format("checkpoint skipped: {}; using {} instead", problem, path));
    if (!note.empty()) warn(note);
    return fs::path(path);
  };
  const auto files = newest_first(dir);
  for (const CheckpointFile& file : files) {
    if (is_valid(file.path)) return use(file.path, "");
    const std::string copy = checkpoint_path(copies, file.step);
    std::error_code ignored;
    if (fs::exists(copy, ignored) && is_valid(copy)) return use(copy, "");
  }
  for (const CheckpointFile& copy : newest_first(copies)) {
    if (is_valid(copy.path))
      return use(copy.path, fmt::format("{} holds no checkpoint to resume from: using the copy {}", dir, copy.path));
  }
  return std::nullopt;
}

struct CheckpointCopier::Shared {
  std::string from, to;
  int keep = 0;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> pieces{0};  // read or written
  std::mutex mutex;                     // of what follows
  std::condition_variable changed;
  bool asked = false, busy = false;
  StepScores scores;
  std::vector<Result> results;
  bool rotation_failed = false;  // the thread's own
};

CheckpointCopier::CheckpointCopier(std::string from, std::string to, int keep) : shared_(std::make_shared<Shared>()) {
  shared_->from = std::move(from);
  shared_->to = std::move(to);
  shared_->keep = keep;
  thread_ = std::thread([shared = shared_] { work(*shared); });
}

CheckpointCopier::~CheckpointCopier() {
  shared_->stop = true;
  bool idle = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.notify_all();
    idle = shared_->changed.wait_for(lock, kFarewell, [&] { return !shared_->busy; });
  }
  if (idle) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void CheckpointCopier::work(Shared& shared) noexcept {
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10));  // as the thread that writes
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.asked || shared.stop; });
    if (shared.stop) return;
    shared.asked = false;
    shared.busy = true;
    const StepScores scores = shared.scores;
    lock.unlock();
    std::string problem;
    try {
      copy_missing(shared, scores);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    lock.lock();
    if (!problem.empty()) shared.results.push_back({0, shared.to, 0, problem});
    shared.busy = false;
    shared.changed.notify_all();
  }
}

void CheckpointCopier::copy_missing(Shared& shared, const StepScores& scores) {
  const auto files = list_checkpoints(shared.from);
  if (files.empty()) return;
  std::vector<CheckpointFile> wanted{files.back()};
  if (const auto best = best_checkpoint(files, scores); best && best->step != files.back().step)
    wanted.push_back(*best);
  std::error_code ignored;
  fs::create_directory(shared.to, ignored);  // its disk may have been mounted since, empty
  bool copied = false;
  for (const CheckpointFile& file : wanted) {
    Result result{file.step, checkpoint_path(shared.to, file.step), 0, ""};
    if (fs::exists(result.path, ignored)) continue;
    const auto start = std::chrono::steady_clock::now();
    try {
      copy_with(file.path, result.path, [&] {
        ++shared.pieces;
        if (shared.stop) fail("the run ended meanwhile");
      });
      copied = true;
    } catch (const std::exception& error) {
      if (!fs::exists(file.path, ignored)) continue;  // rotated away meanwhile: there is a newer one
      result.problem = error.what();
    }
    result.seconds = seconds_since(start);
    const std::scoped_lock lock(shared.mutex);
    shared.results.push_back(std::move(result));
  }
  if (!copied) return;
  const auto problems = rotate_checkpoints(shared.to, shared.keep, files.back().step, scores);
  if (!problems.empty() && !shared.rotation_failed) {
    const std::scoped_lock lock(shared.mutex);
    shared.results.push_back({files.back().step, shared.to, 0, "old copies stay: " + problems.front()});
  }
  shared.rotation_failed = !problems.empty();
}

void CheckpointCopier::wake(StepScores scores) {
  const std::scoped_lock lock(shared_->mutex);
  shared_->asked = true;
  shared_->scores = std::move(scores);
  shared_->changed.notify_all();
}

std::vector<CheckpointCopier::Result> CheckpointCopier::take() {
  const std::scoped_lock lock(shared_->mutex);
  return std::exchange(shared_->results, {});
}

bool CheckpointCopier::finish(std::chrono::milliseconds patience) {
  std::unique_lock lock(shared_->mutex);
  for (std::int64_t before = shared_->pieces;; before = shared_->pieces) {
    if (shared_->changed.wait_for(lock, patience, [&] { return !shared_->asked && !shared_->busy; })) return true;
    if (shared_->pieces == before) return false;
  }
}

}  // namespace convoy
